import { connect, createServer, type Server, type Socket } from 'node:net';
import { Worker } from 'node:worker_threads';

import type { ResponseHeaders, Wire, WireController, WireHandler } from '../../src/http1/wire.ts';
import { WirePool } from '../../src/http1/pool.ts';
import { RequestHead } from '../../src/http1/request.ts';
import { PATIENCE_MS } from './patience.ts';
import { tcpSockets } from './tcp-table.ts';
import { waitUntil } from './wait-until.ts';

/** A host name that does not exist. Its label is too long, so that no resolver is asked. */
export const NO_HOST = 'x'.repeat(64);

/** A TCP server, and the HTTP client under test that connects to it. */
export interface Line extends AsyncDisposable {
  readonly wire: Wire;
  readonly server: Server;
  readonly port: number;
  /** All connections so far, in order, open or not. */
  readonly sockets: readonly Socket[];
  /** The text received on each connection. */
  readonly received: readonly string[];
  ask(options?: AskOptions): Asked;
}

export interface AskOptions {
  readonly method?: 'GET' | 'POST' | 'DELETE';
  readonly headers?: readonly string[];
  readonly body?: string;
  readonly headersMs?: number;
  readonly bodyMs?: number;
  /** Further handlers. They run after the event is added to `events`. */
  readonly on?: Partial<WireHandler>;
}

/** One request, with the events that its handler received. */
export interface Asked {
  /** The events in order: `start`, `response 200`, `data`, `end`, `error`. */
  readonly events: string[];
  /** Resolves with the body at the end of the response. */
  readonly answer: Promise<{ readonly status: number; readonly headers: ResponseHeaders; readonly body: Buffer }>;
  /** Resolves with the error that the request failed with. */
  readonly failure: Promise<Error>;
  /** Resolves when `events` contains this event. */
  until(event: string): Promise<void>;
  abort(): void;
}

/** Listens. Calls `talk` with all text of a connection each time more of it arrives. */
export async function line(
  talk: (socket: Socket, soFar: string, index: number) => void,
  host = '127.0.0.1',
): Promise<Line> {
  const sockets: Socket[] = [];
  const received: string[] = [];
  const server = createServer((socket) => {
    const index = sockets.push(socket) - 1;
    received.push('');
    socket.on('error', () => undefined);
    socket.on('data', (chunk) => {
      const soFar = `${received[index]}${chunk.toString('latin1')}`;
      received[index] = soFar;
      talk(socket, soFar, index);
    });
  });
  server.listen(0, host);
  await new Promise((resolve) => {
    server.once('listening', resolve);
  });
  const port = portOf(server);
  const wire = wireTo(host.includes(':') ? `[${host}]` : host, port);
  return {
    wire,
    server,
    port,
    sockets,
    received,
    ask: (options) => ask(wire, options),
    [Symbol.asyncDispose]: async () => {
      await wire.destroy();
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => {
        server.close(resolve);
      });
    },
  };
}

export function wireTo(host: string, port: number, connectMs = PATIENCE_MS): Wire {
  return new WirePool(new URL(`http://${host}:${port}/mcp`), connectMs);
}

function portOf(server: Server): number {
  const address = server.address();
  if (address === null || typeof address === 'string') throw new TypeError('not listening on a port');
  return address.port;
}

export function ask(wire: Wire, options: AskOptions = {}): Asked {
  const { method = 'POST', headers = [], headersMs = 0, bodyMs = 0, on = {} } = options;
  const body = method === 'POST' ? (options.body ?? '{}') : undefined;
  const events: string[] = [];
  const waits = new Set<{ readonly event: string; resolve(): void }>();
  const record = (event: string): void => {
    events.push(event);
    for (const wait of waits) if (wait.event === event) wait.resolve();
  };
  const answer = Promise.withResolvers<Awaited<Asked['answer']>>();
  const failure = Promise.withResolvers<Error>();
  const chunks: Buffer[] = [];
  let controller: WireController | undefined;
  let head: { status: number; headers: ResponseHeaders } = { status: 0, headers: {} };
  // A test awaits only one of the two.
  answer.promise.catch(() => undefined);
  failure.promise.catch(() => undefined);
  wire.dispatch(
    { head: new RequestHead(method, 'test.example', '/mcp', headers), body, headersMs, bodyMs },
    {
      onRequestStart(given) {
        record('start');
        controller = given;
        on.onRequestStart?.(given);
      },
      onResponseStart(given, status, responseHeaders) {
        record(`response ${status}`);
        head = { status, headers: responseHeaders };
        on.onResponseStart?.(given, status, responseHeaders);
      },
      onResponseData(given, chunk) {
        if (events.at(-1) !== 'data') record('data');
        chunks.push(Buffer.from(chunk));
        on.onResponseData?.(given, chunk);
      },
      onResponseEnd(given) {
        record('end');
        on.onResponseEnd?.(given);
        answer.resolve({ ...head, body: Buffer.concat(chunks) });
        failure.reject(new Error('it was answered'));
      },
      onResponseError(given, thrown) {
        record('error');
        on.onResponseError?.(given, thrown);
        failure.resolve(thrown);
        answer.reject(new Error('it failed', { cause: thrown }));
      },
    },
  );
  return {
    events,
    answer: answer.promise,
    failure: failure.promise,
    until: (event) => {
      const { promise, resolve } = Promise.withResolvers<void>();
      if (events.includes(event)) resolve();
      else waits.add({ event, resolve });
      return promise;
    },
    abort: () => controller?.abort(new Error('aborted by the test')),
  };
}

/** Returns whether the text is this number of whole requests with the body `{}`. */
export function holds(soFar: string, requests: number): boolean {
  return soFar.split('\r\n\r\n{}').length - 1 === requests;
}

export function ok(body: string, ...headers: readonly string[]): string {
  return [`HTTP/1.1 200 OK`, `Content-Length: ${body.length}`, ...headers, '', body].join('\r\n');
}

/** The queue of waiting connections holds one more than this. */
const BACKLOG = 1;

const ASLEEP = `
  const server = require('node:net').createServer().listen(0, '127.0.0.1', ${BACKLOG}, () => {
    require('node:worker_threads').parentPort.postMessage(server.address().port);
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);
  });
`;
/** Returns a port whose server accepts no connection, with a full queue of waiting connections. */
export async function neverAccepting(): Promise<AsyncDisposable & { readonly port: number }> {
  const worker = new Worker(ASLEEP, { eval: true });
  const port = await new Promise<number>((resolve) => {
    worker.once('message', (given) => resolve(Number(given)));
  });
  const waiting: Socket[] = [];
  for (let n = 0; n <= BACKLOG; n++) waiting.push(connect(port, '127.0.0.1').on('error', () => undefined));
  const isFull = () => tcpSockets().some((one) => one.isListening && one.localPort === port && one.waiting > BACKLOG);
  await waitUntil(isFull);
  return {
    port,
    [Symbol.asyncDispose]: async () => {
      for (const socket of waiting) socket.destroy();
      await worker.terminate();
    },
  };
}

/** Resolves when the other end has closed the connection. */
export function closed(socket: Socket): Promise<void> {
  return new Promise((resolve) => {
    if (socket.closed) resolve();
    else socket.once('close', () => resolve());
  });
}
