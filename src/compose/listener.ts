import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import { getRequestListener, type HttpBindings } from '@hono/node-server';
import type { Hono } from 'hono';
import type { Address } from '../config/config.ts';
import { connectionLimit, openFileLimit } from './connection-limit.ts';
import { HeaderReusingRequest } from '../downstream/http/header-reusing-request.ts';
import type { IncomingPost } from '../downstream/http/post-fast-path.ts';
import { StartError } from '../errors.ts';

/** Handles the requests of a listener. */
export interface HttpHandler {
  readonly app: Pick<Hono<{ Bindings: HttpBindings }>, 'fetch'>;
  /** Handles a request before the routes see it. Returns false for one that it left to them, untouched. */
  tryFastPath?(env: IncomingPost): boolean;
  /** A connection beyond the limit was closed. */
  onConnectionDropped?(): void;
}

/** A connection must have sent its headers, and its whole request, within these. Slow drips hold no sockets. */
const HEADERS_TIMEOUT_MS = 10_000;
const REQUEST_TIMEOUT_MS = 30_000;
const CHECK_MS = 5_000;
/** Longer than what load balancers keep idle connections for, so that it is they who close them. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;

/** One listening socket. */
export class Listener {
  /** `http://host:port`, as bound. */
  readonly origin: string;
  /** Handles the requests that come from now on. Another handler may take its place at any time. */
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
   * @param key where in the config the address stands.
   * @param ports how many ports are tried, upwards, where the first is in use.
   * @param connections how many are accepted at once.
   * @throws {StartError} when it cannot be listened on, with what to do in words.
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
      IncomingMessage: HeaderReusingRequest,
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
    // There are errors after the first: with no descriptor left, each connection that cannot be accepted is one.
    server.on('error', () => undefined);
    await listen(server, address, key, ports);
    const bound = server.address();
    const port = typeof bound === 'object' && bound !== null ? bound.port : address.port;
    const origin = `http://${address.host.includes(':') ? `[${address.host}]` : address.host}:${port}`;
    listener = new Listener(server, origin, make(origin));
    return listener;
  }

  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#server.closeAllConnections();
    await closed;
  }
}

/** Binds to the address, or where it is in use to one of the next ports. @throws {StartError} */
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

/** What to do about it, by error code. */
const ADVICE: ReadonlyMap<string, string> = new Map([
  ['EADDRINUSE', 'the port is in use by another program; stop it, or choose another port'],
  ['EACCES', 'not permitted; choose a port above 1023'],
  ['EADDRNOTAVAIL', 'this machine has no such address'],
]);
