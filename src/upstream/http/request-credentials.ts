import type { HeaderList } from '../../http1/request.ts';

/** One credential, as the headers that carry it. A renewed credential is another object. */
export interface Credential {
  /** Names in lower case. */
  readonly headers: HeaderList;
}

/**
 * The credentials of the requests to one upstream. Every request of every method and transport asks for them, so that a new kind of
 * credentials is another implementation of this contract. docs/decisions/0068-credentials-for-upstreams.md
 *
 * An audience is the key of a principal, or empty for credentials of the gateway itself.
 */
export interface RequestCredentials {
  /** Returns a credential that is valid now; undefined if one must be acquired first. */
  current(audience: string): Credential | undefined;
  /**
   * Resolves with a valid credential. Simultaneous calls share one request for it.
   *
   * @throws {GatewayError} `upstream-unavailable` (executed `no`) if there is none.
   */
  acquire(audience: string): Promise<Credential>;
  /**
   * Handles that the upstream has refused a credential with 401. Resolves with another one; with undefined if there is none to try.
   */
  renew(audience: string, refused: Credential): Promise<Credential | undefined>;
  /**
   * Handles that the upstream has refused a credential with 403, because it lacks scopes. Resolves with one that has them; with undefined if there is none to try.
   */
  extend(audience: string, refused: Credential, scopes: readonly string[]): Promise<Credential | undefined>;
}
