/** How a POST may be answered. */
export type Shape = 'any' | 'json' | 'events';

/** What every client of the specification sends. */
const USUAL = 'application/json, text/event-stream';

const CHARSET = /;\s*charset\s*=\s*"?([^\s";]*)/i;

/** Media ranges a client takes, in lower case, without those it weighs with zero. */
function ranges(accept: string): string[] {
  return accept
    .toLowerCase()
    .split(',')
    .filter((range) => !/;\s*q=0(?:\.0*)?\s*(?:;|$)/.test(range))
    .map((range) => range.split(';', 1)[0]?.trim() ?? '');
}

/** Undefined when the client takes neither JSON nor events. */
export function postShape(accept: string | undefined): Shape | undefined {
  if (accept === undefined || accept === USUAL || accept.trim() === '') return 'any';
  const taken = ranges(accept);
  const json = taken.some((range) => range === 'application/json' || range === 'application/*' || range === '*/*');
  const events = taken.some((range) => range === 'text/event-stream' || range === 'text/*' || range === '*/*');
  if (json) return events ? 'any' : 'json';
  return events ? 'events' : undefined;
}

/**
 * What a GET is for. A browser's address bar says that it takes anything, and means a page.
 */
export function getShape(accept: string | undefined): 'events' | 'page' | 'nothing' {
  const taken = ranges(accept ?? '*/*');
  if (taken.includes('text/event-stream')) return 'events';
  if (taken.includes('text/html')) return 'page';
  return taken.includes('*/*') || taken.includes('text/*') ? 'events' : 'nothing';
}

/** A page cannot send this type to another site without asking first, which makes it a defence as well. */
export function isJson(contentType: string | undefined): boolean {
  if (contentType === 'application/json') return true;
  if (contentType === undefined || contentType.split(';', 1)[0]?.trim().toLowerCase() !== 'application/json')
    return false;
  const [, charset = 'utf-8'] = CHARSET.exec(contentType) ?? [];
  return charset.toLowerCase() === 'utf-8' || charset.toLowerCase() === 'utf8';
}
