import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse, type Server } from 'node:http';
import { type CryptoKey, exportJWK, generateKeyPair, type JWK, SignJWT } from 'jose';
import { pino } from 'pino';

export const SILENT = pino({ level: 'silent' });
export const ENDPOINT = 'https://gw.example.com/mcp';

interface SigningKey {
  readonly alg: string;
  readonly kid: string;
  readonly privateKey: CryptoKey;
  readonly jwk: JWK;
}

export async function signingKey(alg: string, kid: string): Promise<SigningKey> {
  const { publicKey, privateKey } = await generateKeyPair(alg, { extractable: true });
  return { alg, kid, privateKey, jwk: { ...(await exportJWK(publicKey)), kid } };
}

export type Claims = Readonly<Record<string, unknown>>;
type Answer = (request: IncomingMessage, response: ServerResponse) => void;

/** An authorization server with the parts that a resource server uses: a JWKS endpoint, and tokens. */
export class TestIssuer implements AsyncDisposable {
  readonly issuer = 'https://issuer.example.com';
  readonly jwksUrl: string;
  /** The keys that the endpoint serves. */
  keys: readonly JWK[];
  /** Replaces the normal answer. */
  answer: Answer | undefined;
  fetches = 0;
  readonly #server: Server;
  readonly #key: SigningKey;

  private constructor(server: Server, key: SigningKey) {
    const address = server.address();
    if (address === null || typeof address === 'string') throw new Error('no port');
    this.jwksUrl = `http://127.0.0.1:${address.port}/jwks`;
    this.#server = server;
    this.#key = key;
    this.keys = [key.jwk];
    server.on('request', (request, response) => {
      this.fetches++;
      if (this.answer !== undefined) return this.answer(request, response);
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: this.keys }));
    });
  }

  static async start(key: SigningKey): Promise<TestIssuer> {
    const server = createServer().listen(0, '127.0.0.1');
    await once(server, 'listening');
    return new TestIssuer(server, key);
  }

  /**
   * Returns a token that is valid for {@link ENDPOINT}. Given claims replace the default ones; undefined removes one.
   */
  token(claims: Claims = {}, header: Readonly<Record<string, unknown>> = {}, key = this.#key): Promise<string> {
    const now = Math.floor(Date.now() / 1_000);
    const payload: Claims = { iss: this.issuer, aud: ENDPOINT, sub: 'alice', exp: now + 600, ...claims };
    return new SignJWT(payload)
      .setProtectedHeader({ alg: key.alg, kid: key.kid, ...header })
      .sign(key.privateKey, { crit: { b64: true, 'urn:x': true, exp: true, alg: true } });
  }

  /** Closes the endpoint; afterwards it refuses connections. */
  async stop(): Promise<void> {
    if (!this.#server.listening) return;
    const closed = once(this.#server, 'close');
    this.#server.close();
    this.#server.closeAllConnections();
    await closed;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }
}
