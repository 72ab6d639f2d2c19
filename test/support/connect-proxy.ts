import { once } from 'node:events';
import { connect, createServer, type Socket } from 'node:net';
import { listenLocally } from './local-port.ts';

/** An HTTP proxy for CONNECT on 127.0.0.1, which keeps what it reads before the tunnel. */
export interface ConnectProxy extends AsyncDisposable {
  readonly port: number;
  /** The heads of all requests. */
  readonly heads: readonly string[];
  /** The bytes of clients after their heads. */
  readonly tunnelled: () => string;
}

/** The reaction of a proxy to a request: a tunnel, or these bytes. `silence`: nothing. */
type Answer = (head: string) => { readonly port: number } | { readonly text: string } | 'silence';

/** Starts a proxy. @param answer by default every authority leads to the same port of 127.0.0.1. */
export async function startConnectProxy(answer: Answer = tunnelToItsPort): Promise<ConnectProxy> {
  const heads: string[] = [];
  const bytes: Buffer[] = [];
  const sockets = new Set<Socket>();
  const server = createServer((client) => {
    const keep = (socket: Socket): void => {
      sockets.add(socket);
      socket.on('error', () => undefined);
      socket.once('close', () => sockets.delete(socket));
    };
    keep(client);
    let text = '';
    const read = (chunk: Buffer): void => {
      text += chunk.toString('latin1');
      const end = text.indexOf('\r\n\r\n');
      if (end < 0) return;
      client.off('data', read);
      const head = text.slice(0, end);
      heads.push(head);
      const to = answer(head);
      if (to === 'silence') return;
      if ('text' in to) {
        client.end(to.text, 'latin1');
        return;
      }
      const target = connect(to.port, '127.0.0.1', () => {
        client.write('HTTP/1.1 200 Connection established\r\n\r\n');
        client.on('data', (piece: Buffer) => void bytes.push(piece));
        client.pipe(target).pipe(client);
      });
      keep(target);
      target.once('close', () => client.destroy());
      client.once('close', () => target.destroy());
    };
    client.on('data', read);
  });
  const port = await listenLocally(server);
  return {
    port,
    heads,
    tunnelled: () => Buffer.concat(bytes).toString('latin1'),
    [Symbol.asyncDispose]: async () => {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, 'close');
    },
  };
}

function tunnelToItsPort(head: string): { readonly port: number } {
  const [, port = '0'] = /^CONNECT \S*:(\d+) /.exec(head) ?? [];
  return { port: Number(port) };
}
