import { createServer, type Server, type Socket } from 'node:net';
import { setImmediate as turn } from 'node:timers/promises';
import { rawAnswer } from './raw-answers.ts';
import { listenLocally } from '../support/local-port.ts';

const HEAD_END = '\r\n\r\n';

/** An upstream over HTTP that writes the bytes which its calls name, heads included, and closes the connection then. */
export class RawHttp implements AsyncDisposable {
  readonly url: string;
  readonly #server: Server;
  readonly #sockets: ReadonlySet<Socket>;

  private constructor(server: Server, sockets: ReadonlySet<Socket>, port: number) {
    this.#server = server;
    this.#sockets = sockets;
    this.url = `http://127.0.0.1:${port}/mcp`;
  }

  static async start(): Promise<RawHttp> {
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      sockets.add(socket);
      socket.on('close', () => sockets.delete(socket));
      socket.on('error', () => undefined);
      serve(socket).catch(() => socket.destroy());
    });
    const port = await listenLocally(server);
    return new RawHttp(server, sockets, port);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#sockets) socket.destroy();
    await new Promise((resolve) => {
      this.#server.close(resolve);
    });
  }
}

/** Answers the requests of one connection. */
async function serve(socket: Socket): Promise<void> {
  let received = '';
  socket.setEncoding('latin1');
  for await (const chunk of socket) {
    received += String(chunk);
    for (;;) {
      const end = received.indexOf(HEAD_END);
      if (end < 0) break;
      const head = received.slice(0, end);
      const length = Number(/^content-length: *(\d+)/im.exec(head)?.[1] ?? 0);
      const from = end + HEAD_END.length;
      if (received.length < from + length) break;
      const body = Buffer.from(received.slice(from, from + length), 'latin1').toString('utf8');
      received = received.slice(from + length);
      if (!(await answer(socket, head.startsWith('POST '), body))) return;
    }
  }
}

/** Writes one answer. Resolves with whether the connection stays open. */
async function answer(socket: Socket, isPost: boolean, body: string): Promise<boolean> {
  const raw = isPost ? rawAnswer(body) : undefined;
  if (raw?.kind === 'bytes') {
    for (const chunk of raw.chunks) {
      socket.write(chunk);
      await turn();
    }
    socket.end();
    return false;
  }
  const status = raw === undefined ? '405 Method Not Allowed' : raw.kind === 'nothing' ? '202 Accepted' : '200 OK';
  const text = raw?.kind === 'message' ? raw.text : '';
  const length = Buffer.byteLength(text);
  socket.write(`HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${length}\r\n\r\n${text}`);
  return true;
}
