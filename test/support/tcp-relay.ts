import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { Transform } from 'node:stream';
import { listenLocally } from './local-port.ts';

/** A port of 127.0.0.1 that leads to another one, until it is cut. */
export class TcpRelay implements AsyncDisposable {
  readonly port: number;
  /** Called with all bytes of clients. */
  onClientBytes: ((bytes: Buffer) => void) | undefined;
  readonly #server: Server;
  readonly #sockets: Set<Socket>;
  #isCut = false;
  #isPaused = false;

  private constructor(port: number, server: Server, sockets: Set<Socket>) {
    this.port = port;
    this.#server = server;
    this.#sockets = sockets;
  }

  /** Opens a relay to a port of 127.0.0.1. @param rewrite replaces the bytes of the server. */
  static async open(target: number, rewrite?: (bytes: Buffer) => Buffer): Promise<TcpRelay> {
    const sockets = new Set<Socket>();
    const server = createServer((inner) => {
      if (relay.#isCut) {
        inner.destroy();
        return;
      }
      const outer = connect(target, '127.0.0.1');
      for (const socket of [inner, outer]) {
        sockets.add(socket);
        socket.on('error', () => undefined);
        socket.on('close', () => {
          sockets.delete(socket);
          inner.destroy();
          outer.destroy();
        });
      }
      inner.on('data', (bytes: Buffer) => relay.onClientBytes?.(bytes));
      inner.pipe(outer);
      if (rewrite === undefined) outer.pipe(inner);
      else outer.pipe(new Transform({ transform: (bytes: Buffer, _, done) => done(null, rewrite(bytes)) })).pipe(inner);
      if (relay.#isPaused) for (const socket of [inner, outer]) socket.pause();
    });
    const port = await listenLocally(server);
    const relay = new TcpRelay(port, server, sockets);
    return relay;
  }

  /** Ends all connections, and refuses further ones. */
  cut(): void {
    this.#isCut = true;
    for (const socket of this.#sockets) socket.destroy();
  }

  /** The number of connections of clients. */
  get connections(): number {
    return this.#sockets.size / 2;
  }

  /** Passes nothing on. Connections stay open, and the kernel accepts further bytes. */
  pause(): void {
    this.#isPaused = true;
    for (const socket of this.#sockets) socket.pause();
  }

  /** Passes on what has come meanwhile. */
  resume(): void {
    this.#isPaused = false;
    for (const socket of this.#sockets) socket.resume();
  }

  /** Accepts connections again. */
  restore(): void {
    this.#isCut = false;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.cut();
    this.#server.close();
    await once(this.#server, 'close');
  }
}
