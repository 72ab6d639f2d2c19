import { once } from 'node:events';
import { createServer, type Socket } from 'node:net';
import { listenLocally } from './local-port.ts';

/** A port of this machine that counts connections and bytes, and answers nothing. */
export interface TcpSpy extends AsyncDisposable {
  readonly port: number;
  readonly connections: number;
  readonly bytes: number;
}

/** Starts a spy. @param host address of this machine. @param port 0 for any. */
export async function startTcpSpy(host = '127.0.0.1', port = 0): Promise<TcpSpy> {
  const sockets = new Set<Socket>();
  const seen = { connections: 0, bytes: 0 };
  const server = createServer((socket) => {
    seen.connections++;
    sockets.add(socket);
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      seen.bytes += chunk.length;
      // A client of TLS waits for an answer otherwise.
      socket.destroy();
    });
  });
  const own = await listenLocally(server, port, host);
  return {
    port: own,
    get connections() {
      return seen.connections;
    },
    get bytes() {
      return seen.bytes;
    },
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}
