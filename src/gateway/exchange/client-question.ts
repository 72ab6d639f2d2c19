import type { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';

/** A server request on its way to the client, in the client's revision. */
export interface ClientQuestion {
  readonly upstream: string;
  readonly method: string;
  readonly params: RawObject;
  /** Answers the upstream. Later calls are ignored. */
  answer(answer: Answer): void;
  /** Reports progress of the client to the upstream; undefined if the upstream has sent no progress token. */
  readonly onProgress: ((params: RawObject) => void) | undefined;
  /** Registers a callback that runs when the question ends without an answer: with the params of its upstream's notification, if that has cancelled it. */
  onWithdrawn(run: (cancelled?: RawObject) => void): void;
}
