import type { Principal } from '../../policy/principal.ts';
import type { RawObject } from '../../json/json.ts';
import type { Revision } from '../../protocol/revisions.ts';

/** All that the core knows about the sender of a request. */
export interface Caller {
  readonly principal: Principal;
  /** The id of the endpoint's view. */
  readonly view: string;
  readonly revision: Revision;
  /** The client capabilities as the client declared them. */
  readonly capabilities: RawObject;
  /** The number of processes that have passed the request on. Default: 0. */
  readonly hops?: number;
  /** The `itemDigest` of the item about which an external decision has allowed the request in one of them. */
  readonly allowedItem?: string | undefined;
}
