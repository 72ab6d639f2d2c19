import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { freePort } from '../support/free-port.ts';

/** A forwarder in front of an HTTP server. Connections to it are refused until it is opened. */
export interface Forwarder extends AsyncDisposable {
  /** The URL of the server, with the port of the forwarder. */
  readonly url: string;
  open(): Promise<void>;
}

/** Sends the server's own address in `Host`, because some servers check it. */
export async function createForwarder(target: string): Promise<Forwarder> {
  const { origin, host } = new URL(target);
  const server = createServer((from, to) => {
    const headers = { ...from.headers, host };
    const onward = request(new URL(from.url ?? '/', origin), { method: from.method, headers });
    onward.on('response', (answer) => {
      to.writeHead(answer.statusCode ?? 502, answer.headers);
      to.flushHeaders();
      answer.on('error', () => to.destroy());
      answer.pipe(to);
    });
    onward.on('error', () => to.destroy());
    to.on('close', () => onward.destroy());
    from.pipe(onward);
  });
  const port = await freePort();
  const url = new URL(target);
  url.port = String(port);
  return {
    url: url.href,
    open: async () => {
      server.listen(port, '127.0.0.1');
      await once(server, 'listening');
    },
    [Symbol.asyncDispose]: async () => {
      if (!server.listening) return;
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}
