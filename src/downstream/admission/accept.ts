/** The allowed forms of an answer to a POST. */
export type AnswerForm = 'any' | 'json' | 'events';

/** The header of every client that follows the specification. */
const USUAL = 'application/json, text/event-stream';

const CHARSET = /;\s*charset\s*=\s*"?([^\s";]*)/i;

/** Returns the media ranges that a client accepts, in lower case. */
function ranges(accept: string): string[] {
  return accept
    .toLowerCase()
    .split(',')
    .filter((range) => !/;\s*q=0(?:\.0*)?\s*(?:;|$)/.test(range))
    .map((range) => range.split(';', 1)[0]?.trim() ?? '');
}

/** Returns the allowed forms of an answer, or undefined if the client accepts neither JSON nor events. */
export function postForm(accept: string | undefined): AnswerForm | undefined {
  if (accept === undefined || accept === USUAL || accept.trim() === '') return 'any';
  const taken = ranges(accept);
  const json = taken.some((range) => range === 'application/json' || range === 'application/*' || range === '*/*');
  const events = taken.some((range) => range === 'text/event-stream' || range === 'text/*' || range === '*/*');
  if (json) return events ? 'any' : 'json';
  return events ? 'events' : undefined;
}

/** Returns the resource that a GET requests. The address bar of a browser accepts anything, and gets a hint. */
export function getForm(accept: string | undefined): 'events' | 'hint' | 'nothing' {
  const taken = ranges(accept ?? '*/*');
  if (taken.includes('text/event-stream')) return 'events';
  if (taken.includes('text/html')) return 'hint';
  return taken.includes('*/*') || taken.includes('text/*') ? 'events' : 'nothing';
}

/** Returns whether the type is JSON in UTF-8. A web page cannot send it to another site without a preflight. */
export function isJson(contentType: string | undefined): boolean {
  if (contentType === 'application/json') return true;
  if (contentType === undefined || contentType.split(';', 1)[0]?.trim().toLowerCase() !== 'application/json')
    return false;
  const [, charset = 'utf-8'] = CHARSET.exec(contentType) ?? [];
  return charset.toLowerCase() === 'utf-8' || charset.toLowerCase() === 'utf8';
}
