import { createServer, type Server } from 'node:http';
import { IssuerKey, type SignToken } from './issuer-key.ts';
import { listenLocally } from '../support/local-port.ts';

/** An issuer of tokens, with the endpoint of its key. */
export class FuzzIssuer implements AsyncDisposable {
  static readonly ISSUER = 'https://issuer.example.com';
  static readonly AUDIENCE = 'https://gateway.example.com/mcp';
  readonly jwksUrl: string;
  readonly #server: Server;
  readonly #key: IssuerKey;

  private constructor(server: Server, port: number, key: IssuerKey) {
    this.#server = server;
    this.jwksUrl = `http://127.0.0.1:${port}/jwks`;
    this.#key = key;
  }

  static async start(): Promise<FuzzIssuer> {
    const key = new IssuerKey({ iss: FuzzIssuer.ISSUER, aud: FuzzIssuer.AUDIENCE });
    const server = createServer((_, response) => {
      response.setHeader('content-type', 'application/json').end(JSON.stringify({ keys: [key.publicJwk] }));
    });
    const port = await listenLocally(server);
    return new FuzzIssuer(server, port, key);
  }

  readonly sign: SignToken = (header, claims) => this.#key.sign(header, claims);

  async [Symbol.asyncDispose](): Promise<void> {
    this.#server.closeAllConnections();
    await new Promise((resolve) => {
      this.#server.close(resolve);
    });
  }
}
