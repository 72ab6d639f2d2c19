import type { DestinationStream, Logger } from 'pino';
import { type AuthVerdict, createAuthenticator } from '../../src/auth/authenticate.ts';
import type { AuthConfig } from '../../src/config/values/config.ts';
import type { TokenAuth } from '../../src/config/values/credentials.ts';
import { IdentityKeys } from '../../src/credentials/identity-keys.ts';
import { upstreamCredentials } from '../../src/credentials/upstream-credentials.ts';
import { Egress } from '../../src/egress/egress.ts';
import { Callers } from '../../src/policy/callers.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import type { HeaderList } from '../../src/http1/request.ts';
import { resolvePrivate } from './urls.ts';

export const ENDPOINT = 'https://gateway.example.com/mcp';

/** The parts of a gateway that ask issuers. */
export interface IssuerClient extends AsyncDisposable {
  /** Gets the headers of a request to an upstream. @param subjectToken of the caller, for an exchange. */
  credential(auth: TokenAuth, subjectToken: string): Promise<HeaderList>;
  /** Authenticates clients by their tokens. */
  verdicts(auth: AuthConfig): (token: string) => Promise<AuthVerdict>;
  /** Returns the log since the last call. */
  takeLog(): string;
}

/** The parts of the real gateway, in this process. */
export class RealIssuerClient implements IssuerClient {
  readonly #egress = new Egress(undefined, resolvePrivate());
  readonly #log: Logger;
  #logged = '';

  constructor() {
    const destination: DestinationStream = { write: (line) => void (this.#logged += line) };
    this.#log = createLogger('debug', destination);
  }

  async credential(auth: TokenAuth, subjectToken: string): Promise<HeaderList> {
    const callers = new Callers(() => undefined);
    const { requests } = upstreamCredentials(auth, {
      upstream: 'up',
      egress: this.#egress,
      callers,
      identity: new IdentityKeys(),
      log: this.#log,
      onLimit: () => undefined,
      onAttempt: () => undefined,
    });
    callers.remember({ key: 'caller', label: 'caller', scopes: [] }, subjectToken);
    try {
      return (await requests.acquire(auth.kind === 'exchange' ? 'caller' : '')).headers;
    } catch (thrown) {
      // As the gateway does with a request that fails.
      this.#log.warn({ err: thrown }, 'request failed');
      throw thrown;
    }
  }

  verdicts(auth: AuthConfig): (token: string) => Promise<AuthVerdict> {
    const authenticator = createAuthenticator(auth, {
      log: this.#log,
      egress: this.#egress,
      exchangesTokens: () => true,
    });
    return (token) => authenticator.authenticate({ authorization: [`Bearer ${token}`] }, ENDPOINT);
  }

  takeLog(): string {
    const logged = this.#logged;
    this.#logged = '';
    return logged;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#egress[Symbol.asyncDispose]();
  }
}
