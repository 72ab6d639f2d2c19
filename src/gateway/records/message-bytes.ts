import { detach } from '../../json/kept-text.ts';
import { type Notification, type Request, type Response, type Result, tailBytes } from '../../protocol/jsonrpc.ts';

const BYTES = Symbol('bytes');

type Message = (Request | Notification | Response) & { readonly [BYTES]?: number };

/** Returns the size of a result in UTF-8. The bytes of a list are counted once, not for each answer. */
export function resultBytes(answer: Result): number {
  // The text of a page is made when it is read, so it is not read here.
  return answer.tail === undefined ? Buffer.byteLength(answer.result) : tailBytes(answer.tail) - '}'.length;
}

/** Returns the size of the content of a message in UTF-8: its `params` or `result`. */
export function bytesOf(message: Message): number {
  if (message[BYTES] !== undefined) return message[BYTES];
  if ('method' in message) return message.params === undefined ? 0 : Buffer.byteLength(message.params.toString());
  return message.kind === 'result' ? Buffer.byteLength(message.result) : 0;
}

/** Returns a request that may be kept for hours: without `params`, but with their size. */
export function lastingRequest(request: Request): Request {
  const { kind, id, method } = request;
  const lasting: Message = {
    kind,
    id: detach(id),
    method: detach(method),
    params: undefined,
    [BYTES]: bytesOf(request),
  };
  return lasting;
}
