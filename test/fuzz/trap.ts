import { createServer } from 'node:net';
import { listenLocally } from '../support/local-port.ts';

/** A port of this machine that nothing may connect to. */
export class Trap implements AsyncDisposable {
  readonly port: number;
  /** Connections so far. */
  readonly #connections: { count: number };
  readonly #close: () => Promise<void>;

  private constructor(port: number, connections: { count: number }, close: () => Promise<void>) {
    this.port = port;
    this.#connections = connections;
    this.#close = close;
  }

  static async start(): Promise<Trap> {
    const connections = { count: 0 };
    const server = createServer((socket) => {
      connections.count++;
      socket.on('error', () => undefined).destroy();
    });
    const port = await listenLocally(server);
    return new Trap(port, connections, async () => {
      await new Promise((resolve) => {
        server.close(resolve);
      });
    });
  }

  get connections(): number {
    return this.#connections.count;
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#close();
  }
}
