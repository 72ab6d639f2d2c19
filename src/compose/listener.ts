import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import type { Hono } from 'hono';
import type { Address } from '../config/config.ts';
import { connectionLimit, openFileLimit } from './connection-limit.ts';
import { StartError } from '../errors.ts';

/** Handles the requests of a listener. */
export interface HttpHandler {
  readonly app: Pick<Hono<{ Bindings: HttpBindings }>, 'fetch'>;
  /** Handles a request before the router. Returns false if it leaves the request, untouched, to the router. */
  tryFastPath?(env: HttpBindings): boolean;
  /** Called after the server has closed a connection beyond the limit. */
  onConnectionDropped?(): void;
}

/** Deadlines for the headers and for the whole request, so that slow clients do not hold sockets. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
const CHECK_MS = 5_000;
/** The interval at which a retired listener closes idle connections. */
const RETIRE_POLL_MS = 250;
/** Longer than load balancers keep idle connections, so that the load balancer closes them first. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;

/** One listening socket. */
export class Listener {
  /** `http://host:port`, with the port that the socket is bound to. */
  readonly origin: string;
  /** Handles new requests. Can be replaced at any time. */
  handler: HttpHandler;
  readonly #server: Server;

  private constructor(server: Server, origin: string, handler: HttpHandler) {
    this.#server = server;
    this.origin = origin;
    this.handler = handler;
  }

  /**
   * Listens on an address.
   *
   * @param key the config key of the address, for messages.
   * @param ports how many ports to try, upwards, if the first one is in use.
   * @param connections how many connections to accept at once.
   * @throws {StartError} if no port can be used; the message says what to do.
   */
  static async open(
    address: Address,
    key: string,
    make: (origin: string) => HttpHandler,
    ports = 1,
    connections: number = connectionLimit(openFileLimit() ?? Infinity),
  ): Promise<Listener> {
    let listener: Listener | undefined;
    const routed = getRequestListener(
      (request, env) => listener?.handler.app.fetch(request, env) ?? new Response(null, { status: 503 }),
      { overrideGlobalObjects: false },
    );
    const options = {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    };
    const server = createServer(options, (incoming, outgoing) => {
      if (listener?.handler.tryFastPath?.({ incoming, outgoing }) !== true) void routed(incoming, outgoing);
    });
    if (Number.isFinite(connections)) server.maxConnections = connections;
    server.on('drop', () => listener?.handler.onConnectionDropped?.());
    // A server emits further errors later: with no file descriptor left, for each connection that it cannot accept.
    server.on('error', () => undefined);
    await listen(server, address, key, ports);
    const bound = server.address();
    const port = typeof bound === 'object' && bound !== null ? bound.port : address.port;
    const origin = `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${port}`;
    listener = new Listener(server, origin, make(origin));
    return listener;
  }

  /**
   * Accepts no more connections, and closes each open one after its request in flight. Resolves when all are closed, at the latest
   * after `drainMs`.
   */
  async retire(drainMs: number): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    // Only connections without a request are idle; a connection that becomes idle later is closed by the next turn.
    const idle = setInterval(() => this.#server.closeIdleConnections(), RETIRE_POLL_MS);
    const late = setTimeout(() => this.#server.closeAllConnections(), drainMs);
    try {
      await closed;
    } finally {
      clearInterval(idle);
      clearTimeout(late);
    }
  }

  /** Closes the socket and all its connections. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}

/** Binds to the address, or to one of the next ports if it is in use. @throws {StartError} */
async function listen(server: Server, { host, port }: Address, key: string, ports: number): Promise<void> {
  for (let next = port; ; next++) {
    try {
      server.listen(next, host);
      await once(server, 'listening');
      return;
    } catch (thrown) {
      const code = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : undefined;
      const isLast = next >= Math.min(port + ports - 1, MAX_PORT);
      if (code === 'EADDRINUSE' && !isLast) continue;
      const advice = ADVICE.get(code ?? '') ?? (thrown instanceof Error ? thrown.message : String(thrown));
      throw new StartError(`cannot listen on ${host}:${port} (${key}): ${advice}`, { cause: thrown });
    }
  }
}

const MAX_PORT = 65_535;

/** Advice to the operator, by error code. */
const ADVICE: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'the port is in use by another program; stop it, or choose another port'],
  ['EACCES', 'not permitted; choose a port above 1023'],
  ['EADDRNOTAVAIL', 'this machine has no such address'],
]);
