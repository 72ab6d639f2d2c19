import type { TokenAuth, UpstreamAuth } from '../config/values/credentials.ts';
import type { Egress } from '../egress/egress.ts';
import { NeedsAuthorizationError } from '../upstream/rpc/needs-authorization-error.ts';
import type { Acquired } from './credential-cache.ts';
import { IssuerMetadata, type TokenEndpoint } from './issuer-metadata.ts';
import { requestToken, TokenRefusedError } from './token-request.ts';

/** Gets tokens for one upstream from its authorization server. */
export class TokenSource {
  readonly #egress: Egress;
  readonly #metadata: IssuerMetadata | undefined;
  #auth: TokenAuth;

  constructor(auth: TokenAuth, egress: Egress) {
    this.#auth = auth;
    this.#egress = egress;
    this.#metadata = auth.issuer === undefined ? undefined : new IssuerMetadata(auth.issuer, egress);
  }

  /** Uses other secrets of the same client for later requests. */
  update(auth: UpstreamAuth): void {
    if (auth.kind !== 'identity') this.#auth = auth;
  }

  /**
   * Gets a token, as the headers that carry it.
   *
   * @param scopes besides those of the settings.
   * @param subjectToken the verified token of the user that the token is for; undefined for the gateway itself.
   * @throws {NeedsAuthorizationError} if the server refuses, or leaves one of `scopes` out; another error if it cannot be asked.
   */
  async acquire(scopes: readonly string[], subjectToken?: string): Promise<Acquired> {
    try {
      const endpoint = await this.#endpoint();
      const auth = { ...this.#auth, scopes: [...this.#auth.scopes, ...scopes] };
      const issued = await requestToken(auth, endpoint, this.#egress, subjectToken);
      const { accessToken, expiresInS, scopes: granted = auth.scopes } = issued;
      const missing = scopes.filter((scope) => !granted.includes(scope));
      if (missing.length > 0) {
        const why = `the token endpoint gave out no token with "${missing.join(' ')}"`;
        throw new NeedsAuthorizationError(why, { isOfScopes: true });
      }
      const lifeMs = expiresInS === undefined ? Infinity : expiresInS * 1_000;
      return { credential: { headers: ['authorization', `Bearer ${accessToken}`] }, lifeMs };
    } catch (thrown) {
      if (!(thrown instanceof TokenRefusedError)) throw thrown;
      const actor = subjectToken === undefined || thrown.isOfClient ? 'operator' : 'caller';
      const { isOfScopes } = thrown;
      throw new NeedsAuthorizationError(thrown.message, { cause: thrown, actor, isOfScopes });
    }
  }

  async #endpoint(): Promise<TokenEndpoint> {
    const { tokenUrl = '' } = this.#auth;
    // A server without metadata has no name but its URL.
    return (await this.#metadata?.tokenEndpoint()) ?? { issuer: tokenUrl, url: tokenUrl, source: 'configured' };
  }
}
