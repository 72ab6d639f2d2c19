import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { freePort } from './port.ts';

/** A TCP forwarder in front of an HTTP server. Connections to it are refused until it is opened. */
export interface Forwarder extends AsyncDisposable {
  /** The URL of the server, with the port of the forwarder. */
  readonly url: string;
  open(): Promise<void>;
}

export async function createForwarder(target: string): Promise<Forwarder> {
  const url = new URL(target);
  const { hostname, port } = url;
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const onward = connect(Number(port), hostname);
    for (const [from, to] of [
      [client, onward],
      [onward, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => to.destroy());
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
      from.pipe(to);
    }
  });
  const ownPort = await freePort();
  url.port = String(ownPort);
  return {
    url: url.href,
    open: async () => {
      server.listen(ownPort, '127.0.0.1');
      await once(server, 'listening');
    },
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      if (!server.listening) return;
      server.close();
      await once(server, 'close');
    },
  };
}
