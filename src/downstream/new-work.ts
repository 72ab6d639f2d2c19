import type { Load, LoadRefusal, Work } from '../load/load.ts';
import { isRetry } from '../protocol/input-required.ts';
import type { Id, Message, MessageError, Request } from '../protocol/jsonrpc.ts';
import { refuse } from './admission/refusal.ts';
import { type ClassifiedPost, type ClientInput, requestIn } from './classify.ts';
import { readModern } from './modern-envelope.ts';

/** Methods that cost work at an upstream. */
const CALLS: ReadonlySet<string> = new Set(['tools/call', 'prompts/get', 'resources/read', 'completion/complete']);

/** Returns the work that a request begins; undefined if it costs little, or ends work. */
function workOf(request: Request | undefined): Work | undefined {
  const method = request?.method ?? '';
  if (method === 'initialize') return 'session';
  if (method === 'subscriptions/listen') return 'stream';
  return CALLS.has(method) ? 'call' : undefined;
}

function isCall(item: Message | MessageError): boolean {
  return workOf(requestIn(item)) === 'call';
}

/** Returns the work that an input of a session begins. A batch begins work if it does nothing else. */
function workIn(input: ClientInput): Work | undefined {
  if ('kind' in input) return workOf(requestIn(input));
  return input.length > 0 && input.every(isCall) ? 'call' : undefined;
}

/** Returns whether an input without headers of its own is a retry that continues a call. Only clients of 2026-07-28 have retries. */
export function continuesCall(input: ClientInput): boolean {
  const request = requestIn(input);
  return request !== undefined && isRetry(request.params) && readModern(request, undefined)?.kind === 'modern';
}

/** Returns the work that a POST begins. A retry with answers continues a call; only clients of 2026-07-28 have retries. */
function workOfPost(posted: ClassifiedPost): Work | undefined {
  switch (posted.kind) {
    case 'initialize':
      return 'session';
    case 'modern':
      return isRetry(posted.request.params) ? undefined : workOf(posted.request);
    case 'session':
      return workIn(posted.input);
    case 'sessionless':
      return workOf(posted.request);
    case 'ignored':
    case 'refused':
      return undefined;
  }
}

/** Returns the refusal of a POST because of the load; undefined if what it asks for may begin. */
export function refusalOfPost(load: Load, posted: ClassifiedPost): LoadRefusal | undefined {
  const work = load.isHigh ? workOfPost(posted) : undefined;
  return work && load.refusalOf(work);
}

/** Like {@link refusalOfPost}, for an input without headers of its own. */
export function refusalOfInput(load: Load, input: ClientInput): LoadRefusal | undefined {
  const work = load.isHigh && !continuesCall(input) ? workIn(input) : undefined;
  return work && load.refusalOf(work);
}

/**
 * Like {@link refusalOfPost}, for a modern request that another process has passed on. The end of a part would end a whole subscription stream, and
 * its client would open it again at once.
 */
export function refusalOfForwarded(load: Load, request: Request): LoadRefusal | undefined {
  return load.isHigh && isCall(request) && !isRetry(request.params) ? load.refusalOf('call') : undefined;
}

export function refuseForLoad({ error, retryAfterSeconds }: LoadRefusal, id?: Id): Response {
  return refuse(error, id, { 'retry-after': String(retryAfterSeconds) });
}
