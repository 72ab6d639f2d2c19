/** Requests that an upstream answers equally in every revision. */
import { array, object, string, type Members } from './json.ts';
import {
  completed,
  noteContents,
  prompts,
  resources,
  staticContents,
  templates,
  textResult,
  tools,
} from './offering.ts';
import { Refusal } from './upstream-acts.ts';
import { MODERN, type Revision } from './words.ts';

const PAGE = 10;

function page(member: string, items: readonly Members[], params: Members): Members {
  const { cursor } = params;
  const start = cursor === undefined ? 0 : Number(/^after-(\d+)$/.exec(string(cursor))?.[1]);
  if (Number.isNaN(start)) throw new Refusal({ code: -32602, message: 'Invalid cursor' });
  const end = start + PAGE;
  const nextCursor = end < items.length ? { nextCursor: `after-${end}` } : {};
  return { [member]: items.slice(start, end), ...nextCursor };
}

function read(revision: Revision, uri: string): Members {
  if (uri === 'test://static/text') return { contents: staticContents(revision) };
  if (uri.startsWith('test://note/') && !uri.includes('missing')) return { contents: noteContents(uri) };
  const code = revision === MODERN ? -32602 : -32002;
  throw new Refusal({ code, message: 'Resource not found', data: { uri } });
}

function get(params: Members): Members {
  const { who, tone } = object(params['arguments']);
  if (params['name'] !== 'greet' || who === undefined) throw new Refusal({ code: -32602, message: 'Unknown prompt' });
  const [block] = array(textResult(`Greet ${string(who)} ${string(tone)}`)['content']);
  return { description: 'A greeting', messages: [{ role: 'user', content: block }] };
}

/** Returns the result; undefined for other requests. @throws {Refusal} */
export function reading(
  revision: Revision,
  grown: ReadonlySet<string>,
  method: string,
  params: Members,
): Members | undefined {
  switch (method) {
    case 'tools/list':
      return page('tools', tools(revision, grown), params);
    case 'prompts/list':
      return page('prompts', prompts(revision, grown), params);
    case 'resources/list':
      return page('resources', resources(revision, grown), params);
    case 'resources/templates/list':
      return page('resourceTemplates', templates(revision), params);
    case 'resources/read':
      return read(revision, string(params['uri']));
    case 'prompts/get':
      return get(params);
    case 'completion/complete': {
      const { argument, ref, context } = params;
      const known = revision >= '2025-06-18' && context !== undefined ? object(context) : undefined;
      return { completion: completed(object(argument), object(ref), known) };
    }
    default:
      return undefined;
  }
}
