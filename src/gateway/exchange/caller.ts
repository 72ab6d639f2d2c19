import type { Principal } from '../../policy/principal.ts';
import type { RawObject } from '../../json/json.ts';
import type { Revision } from '../../protocol/revisions.ts';

/** All the core may know about who asks. */
export interface Caller {
  readonly principal: Principal;
  /** Which endpoint was asked: a view's id. */
  readonly view: string;
  readonly revision: Revision;
  /** What the client declared, as it declared it. */
  readonly capabilities: RawObject;
}
