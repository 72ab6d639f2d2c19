import type { RawObject } from '../../json/json.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';

/** A server request on its way to the client, in the client's revision. */
export interface ClientQuestion extends Omit<ServerRequest<unknown>, 'about'> {
  readonly upstream: string;
  /** Reports progress of the client to the upstream; undefined if the upstream has sent no progress token. */
  readonly onProgress: ((params: RawObject) => void) | undefined;
}
