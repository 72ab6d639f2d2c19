import { createServer, type IncomingMessage } from 'node:http';
import type { Socket } from 'node:net';
import { type Carrier, ECHO } from './issuer-carriers.ts';
import { listenLocally } from '../support/local-port.ts';

/** A request that reached the issuer. */
export interface IssuerRequest {
  readonly method: string;
  readonly path: string;
}

/** The answers of the issuer to one input, by the kind of the request. */
export type IssuerScript = Readonly<Record<IssuerRoute, ScriptedAnswer>>;
export type IssuerRoute = 'metadata' | 'token' | 'jwks' | 'introspect';

/** A document, and the way in which it is sent. */
export interface ScriptedAnswer {
  readonly text: string;
  readonly carrier: Carrier;
}

const FILLER = Buffer.alloc(65_536, 'x');
/** Nothing reads more than that. */
const MAX_FILLER_BYTES = 32 * 1_024 * 1_024;
const DRIP_MS = 100;

/** An issuer at `http://127.0.0.1:<port>/<number>` for each input, which answers as the script of that input says. */
export class ScriptedIssuer implements AsyncDisposable {
  readonly origin: string;
  readonly #close: () => Promise<void>;
  readonly #scripts = new Map<string, IssuerScript>();
  readonly #requests = new Map<string, IssuerRequest[]>();
  #mostBytes = 0;

  private constructor(port: number, close: () => Promise<void>) {
    this.origin = `http://127.0.0.1:${port}`;
    this.#close = close;
  }

  static async start(): Promise<ScriptedIssuer> {
    let issuer: ScriptedIssuer | undefined;
    const server = createServer((request) => {
      issuer?.answer(request).catch(() => request.destroy());
    });
    const port = await listenLocally(server);
    issuer = new ScriptedIssuer(port, async () => {
      server.closeAllConnections();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    });
    return issuer;
  }

  /** Returns the URL of the issuer with this number, which answers by a script from now on. */
  play(index: number, script: IssuerScript): string {
    this.#scripts.set(String(index), script);
    this.#requests.set(String(index), []);
    return `${this.origin}/${index}`;
  }

  /** Ends a script. Returns its requests. */
  stop(index: number): readonly IssuerRequest[] {
    const requests = this.#requests.get(String(index)) ?? [];
    this.#scripts.delete(String(index));
    this.#requests.delete(String(index));
    return requests;
  }

  /** Returns the most bytes that one connection has taken since the last call. */
  takeMostBytes(): number {
    const most = this.#mostBytes;
    this.#mostBytes = 0;
    return most;
  }

  async answer(request: IncomingMessage): Promise<void> {
    const { method = '', url: path = '', headers, socket } = request;
    let body = '';
    for await (const chunk of request.setEncoding('utf8')) body += String(chunk);
    const [number = ''] = /(?<=\/)\d+(?=\/|$)/.exec(path) ?? [];
    this.#requests.get(number)?.push({ method, path });
    const scripted = this.#scripts.get(number)?.[routeOf(path)];
    if (scripted === undefined) return void socket.end('HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n');
    const echo = JSON.stringify(`${headers.authorization ?? ''} ${decodeURIComponent(body)}`).slice(1, -1);
    const { bytes, end } = scripted.carrier.answer(scripted.text.replaceAll(ECHO, echo));
    socket.on('error', () => undefined);
    socket.on('close', () => (this.#mostBytes = Math.max(this.#mostBytes, socket.bytesWritten)));
    if (end === 'closes') return void socket.end(bytes);
    socket.write(bytes);
    if (end === 'endless') fill(socket);
    if (end === 'drips') drip(socket);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#close();
  }
}

function routeOf(path: string): IssuerRoute {
  if (path.includes('/.well-known/')) return 'metadata';
  if (path.includes('/jwks')) return 'jwks';
  return path.includes('/introspect') ? 'introspect' : 'token';
}

function fill(socket: Socket): void {
  while (!socket.destroyed && socket.bytesWritten < MAX_FILLER_BYTES) {
    if (socket.write(FILLER)) continue;
    socket.once('drain', () => fill(socket));
    return;
  }
  socket.destroy();
}

function drip(socket: Socket): void {
  const timer = setInterval(() => socket.write(' '), DRIP_MS);
  socket.on('close', () => clearInterval(timer));
}
