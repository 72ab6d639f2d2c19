import { z } from 'zod';
import { resultWithin } from '../deadline.ts';
import { EgressError } from '../egress/egress-error.ts';
import type { Egress } from '../egress/egress.ts';
import type { UrlSource } from '../egress/guarded-connector.ts';
import { NeedsAuthorizationError } from '../upstream/rpc/needs-authorization-error.ts';

/** The time that metadata are used without asking again. */
const FRESH_MS = 3_600_000;
/** Known metadata that cannot be read again are used meanwhile, and read after this time. */
const RETRY_MS = 30_000;
/** Metadata that nobody has tried to read again for `FRESH_MS` are waited for, so long. */
const WAIT_MS = 2_000;

export interface TokenEndpoint {
  readonly issuer: string;
  readonly url: string;
  /** A token endpoint on the origin of a configured issuer is as good as configured. */
  readonly source: UrlSource;
}

/**
 * Returns the URLs of the metadata of an issuer, in the order in which they are asked.
 *
 * @see https://www.rfc-editor.org/rfc/rfc8414#section-3
 * @see https://openid.net/specs/openid-connect-discovery-1_0.html#ProviderConfig
 */
function metadataUrls(issuer: string): readonly string[] {
  const { origin, pathname } = new URL(issuer);
  const path = pathname.replace(/\/$/, '');
  const inserted = ['oauth-authorization-server', 'openid-configuration'].map(
    (name) => `${origin}/.well-known/${name}${path}`,
  );
  return path === '' ? inserted : [...inserted, `${origin}${path}/.well-known/openid-configuration`];
}

/** The longest name of an issuer in a message. */
const MAX_NAME_CHARS = 200;

const METADATA = z.object({ issuer: z.string(), token_endpoint: z.string().optional() });

/** The token endpoint of an issuer, by its metadata. */
export class IssuerMetadata {
  readonly #issuer: string;
  readonly #egress: Egress;
  #found: TokenEndpoint | undefined;
  #untilMs = 0;
  /** The running read, which all that need the metadata share. */
  #reading: Promise<TokenEndpoint> | undefined;

  constructor(issuer: string, egress: Egress) {
    this.#issuer = issuer;
    this.#egress = egress;
  }

  /**
   * Returns a known endpoint at once, also while it is read again, unless it is old.
   *
   * @throws {NeedsAuthorizationError} if the metadata are those of another issuer.
   * @throws {EgressError} if they do not name a usable token endpoint.
   */
  async tokenEndpoint(nowMs = performance.now()): Promise<TokenEndpoint> {
    const found = this.#found;
    if (found !== undefined && nowMs < this.#untilMs) return found;
    this.#reading ??= this.#readAgain(nowMs).finally(() => {
      this.#reading = undefined;
    });
    if (found === undefined) return await this.#reading;
    // Read again, the metadata keep a known endpoint, so that the reading cannot fail.
    if (nowMs < this.#untilMs + FRESH_MS) return found;
    // An endpoint that has moved meanwhile must not get the secret of the client and the token of a user.
    return (await resultWithin(this.#reading, WAIT_MS)) ?? found;
  }

  async #readAgain(nowMs: number): Promise<TokenEndpoint> {
    try {
      this.#found = await this.#read();
      this.#untilMs = nowMs + FRESH_MS;
    } catch (thrown) {
      // A token endpoint seldom moves, and the token request finds out.
      if (this.#found === undefined) throw thrown;
      this.#untilMs = nowMs + RETRY_MS;
    }
    return this.#found;
  }

  async #read(): Promise<TokenEndpoint> {
    const issuer = this.#issuer;
    let fault: EgressError | NeedsAuthorizationError | undefined;
    const statuses = new Set<number>();
    for (const url of metadataUrls(issuer)) {
      try {
        const response = await this.#egress.fetch(url, 'configured', { headers: { accept: 'application/json' } });
        if (response.status === 200) return endpointIn(await readMetadata(response, url), issuer, url);
        statuses.add(response.status);
      } catch (thrown) {
        // Some issuers answer unknown paths with a page or a redirect to it, and have their metadata at the next URL.
        if (!(thrown instanceof EgressError || thrown instanceof NeedsAuthorizationError)) throw thrown;
        const { status = 200 } = thrown instanceof EgressError ? thrown : {};
        if (status === 200) fault ??= thrown;
        else statuses.add(status);
      }
    }
    throw fault ?? new EgressError(`${issuer} has no metadata (HTTP ${[...statuses].join(', ')}); configure tokenUrl`);
  }
}

function endpointIn(metadata: z.output<typeof METADATA>, issuer: string, url: string): TokenEndpoint {
  const { issuer: named, token_endpoint: endpoint = '' } = metadata;
  // Without this check, one issuer could speak for another. https://www.rfc-editor.org/rfc/rfc8414#section-3.3
  if (named !== issuer) {
    const name = named.slice(0, MAX_NAME_CHARS);
    throw new NeedsAuthorizationError(
      `the metadata at ${url} are those of another issuer, ${name}; auth.issuer is ${issuer}`,
    );
  }
  const parsed = URL.parse(endpoint);
  if (parsed === null) throw new EgressError(`the metadata of ${issuer} name no token endpoint`);
  const source = parsed.origin === new URL(issuer).origin ? 'configured' : 'discovered';
  return { issuer, url: parsed.href, source };
}

async function readMetadata(response: Response, url: string): Promise<z.output<typeof METADATA>> {
  try {
    return METADATA.parse(await response.json());
  } catch (thrown) {
    throw new EgressError(`the metadata at ${url} cannot be read`, { cause: thrown });
  }
}
