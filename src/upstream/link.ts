import type { RawObject } from '../json/json.ts';
import type { Connection } from './connection.ts';
import type { Hello } from './handshake.ts';
import type { Listening } from './listening.ts';

/** What a client can do that an upstream may use, and the name of that set: equal for equal ones, `''` for none. */
export interface Features {
  readonly offered: RawObject;
  readonly profile: string;
}

/** Whoever connections are opened for: a client session. */
export interface LinkUser extends Features {
  /** Unique among all users. */
  readonly key: string;
  /** Key of its principal. */
  readonly principal: string;
}

/** One connection that shook hands, and whom it serves. */
export interface Link<Owner, User extends LinkUser> extends Features {
  readonly key: string;
  readonly upstream: string;
  readonly connection: Connection<Owner>;
  readonly hello: Hello;
  /** What is listened to in the modern era; undefined in the legacy one, where every connection speaks unasked. */
  readonly listening: Listening | undefined;
  /** Serves nobody in particular: many clients at once, or the gateway alone for its lists. */
  readonly shared: boolean;
  readonly users: Set<User>;
  /** Subscribed resources by the upstream's URI, and who wants to hear of them. While there are any, the link is not idle. */
  readonly held: Map<string, Set<User>>;
  /** Tasks it works on for clients that ask about them now and then, and whose they are. While there are any, it is not idle. */
  readonly tasks: Map<string, Owner>;
  /** Monotonic ms of the last call's start or end. */
  usedMs: number;
  /** Whether it ever answered a call, so that its end is no sign of a crash loop. */
  served: boolean;
}

/** Whether nobody would miss it at this moment. */
export function isIdle<Owner, User extends LinkUser>(link: Link<Owner, User>): boolean {
  return link.connection.inFlight === 0 && link.held.size === 0 && link.tasks.size === 0;
}
