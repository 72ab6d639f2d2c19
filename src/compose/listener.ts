import { messageOf, systemCode } from '../thrown.ts';
import { once } from 'node:events';
import { createServer, type RequestListener, type Server, type ServerOptions, ServerResponse } from 'node:http';
import type { Server as TlsServer } from 'node:https';
import { Server as NetServer, type Socket } from 'node:net';
import { getRequestListener, type Http2Bindings, type HttpBindings } from '@hono/node-server';
import type { Hono } from 'hono';
import type { Address, ServerTls } from '../config/values/config.ts';
import { connectionLimit, openFileLimit } from './connection-limit.ts';
import { settlesWithin } from '../deadline.ts';
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
/** A turn of the event loop in which hardly anything happened. */
const SHORT_TURN_MS = 0.05;
const SHORT_TURN_TRIES = 1_000;
/** Longer than load balancers keep idle connections, so that the load balancer closes them first. */
const KEEP_ALIVE_TIMEOUT_MS = 65_000;
/** The longest wait for the rest of a body that nobody reads. */
const BODY_MS = 500;

/** By the address for all addresses, which nobody can connect to under this name, the one for this machine. */
const LOOPBACK_OF: ReadonlyMap<string, string> = new Map([
  ['0.0.0.0', '127.0.0.1'],
  ['::', '::1'],
]);

interface ListenerOptions {
  readonly ports?: number;
  readonly connections?: number;
  readonly tls?: ServerTls | undefined;
  readonly bodyMs?: number;
}

/** @throws {StartError} if both addresses have one port: the new one cannot be opened before the old one is closed. */
export function assertOtherPort(key: string, before: Address | undefined, after: Address | undefined): void {
  if (before?.port !== after?.port || before === undefined) return;
  throw new StartError(
    `${key}: another host or protocol at the same port (${before.port}) needs a restart, or another port`,
  );
}

/** One listening socket. */
export class Listener {
  /** `http://host:port` or `https://host:port`, with the port that the socket is bound to, and a host that can be connected to. */
  readonly origin: string;
  /** The port that the socket is bound to. */
  readonly port: number;
  /** Handles new requests. Can be replaced at any time. */
  handler: HttpHandler;
  #isEnding = false;
  readonly #server: Server | TlsServer;
  /** All open connections, also those that are in a handshake, which the server does not close. */
  readonly #sockets = new Set<Socket>();

  private constructor(server: Server | TlsServer, origin: string, port: number, handler: HttpHandler) {
    this.#server = server;
    // Over TLS there are two sockets, and the second one has the response.
    for (const event of ['connection', 'secureConnection']) {
      server.on(event, (socket: Socket) => {
        this.#sockets.add(socket);
        socket.once('close', () => this.#sockets.delete(socket));
      });
    }
    this.origin = origin;
    this.port = port;
    this.handler = handler;
  }

  /**
   * Listens on an address.
   *
   * @param key the config key of the address, for messages.
   * @param options `ports`: how many ports to try, upwards, if the first one is in use. `connections`: how many connections to accept
   * at once. `tls`: the certificate of an HTTPS listener. `bodyMs`: the longest wait for the rest of a body that nobody reads.
   * @throws {StartError} if no port can be used; the message says what to do.
   */
  static async open(
    address: Address,
    key: string,
    make: (origin: string) => HttpHandler,
    {
      ports = 1,
      connections = connectionLimit(openFileLimit() ?? Infinity),
      tls,
      bodyMs = BODY_MS,
    }: ListenerOptions = {},
  ): Promise<Listener> {
    let listener: Listener | undefined;
    const routed = getRequestListener(
      (request, env) => {
        const answer = listener?.handler.app.fetch(request, env) ?? new Response(null, { status: 503 });
        return needsWholeBody(env) ? afterBody(env, answer, bodyMs) : answer;
      },
      { overrideGlobalObjects: false },
    );
    const options = {
      headersTimeout: HEADERS_TIMEOUT_MS,
      requestTimeout: REQUEST_TIMEOUT_MS,
      connectionsCheckingInterval: CHECK_MS,
      keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS,
    };
    const server = await serverOf(tls, options, (incoming, outgoing) => {
      if (listener !== undefined && listener.#isEnding) outgoing.shouldKeepAlive = false;
      const env = { incoming, outgoing };
      if (asksForUpgrade(env) || listener?.handler.tryFastPath?.(env) !== true) void routed(incoming, outgoing);
    });
    if (Number.isFinite(connections)) server.maxConnections = connections;
    server.on('drop', () => listener?.handler.onConnectionDropped?.());
    // A server emits further errors later: with no file descriptor left, for each connection that it cannot accept.
    server.on('error', () => undefined);
    await listen(server, address, key, ports);
    const bound = server.address();
    const [ip, port] = typeof bound === 'object' && bound !== null ? [bound.address, bound.port] : ['', address.port];
    const host = LOOPBACK_OF.get(ip) ?? address.host;
    const origin = `${tls === undefined ? 'http' : 'https'}://${host.includes(':') ? `[${host}]` : host}:${port}`;
    listener = new Listener(server, origin, port, make(origin));
    return listener;
  }

  /**
   * The responses that are due. Node has the one of each connection there (`lib/_http_server.js`); keeping them here made a small call a fifth more
   * expensive.
   */
  get #responses(): readonly ServerResponse[] {
    const messages = [...this.#sockets].map((socket): unknown => Reflect.get(socket, '_httpMessage'));
    return messages.filter((message) => message instanceof ServerResponse);
  }

  /** Uses a renewed certificate for new connections, if the listener speaks HTTPS. */
  setTls({ cert, key }: ServerTls): void {
    if ('setSecureContext' in this.#server) this.#server.setSecureContext({ cert, key });
  }

  /**
   * Closes each connection after its next response, also after one that is due already. So clients and load balancers keep none that would
   * be cut later. A stream that has begun has announced that its connection stays open.
   */
  announceEnd(): void {
    this.#isEnding = true;
    for (const response of this.#responses) response.shouldKeepAlive = false;
  }

  /**
   * Accepts no more connections, and closes each open one after its request in flight. Resolves when all are closed, at the latest
   * after `drainMs`.
   */
  async retire(drainMs: number): Promise<void> {
    this.announceEnd();
    const closed = this.#closeAfterAccepting();
    // Only connections without a request are idle; a connection that becomes idle later is closed by the next turn.
    const idle = setInterval(() => this.#closeIdle(), RETIRE_POLL_MS);
    const late = setTimeout(() => this.#destroySockets(), drainMs);
    try {
      await closed;
    } finally {
      clearInterval(idle);
      clearTimeout(late);
      // Ends the checks of connections.
      this.#server.close();
    }
  }

  /** Closes connections without a request. To Node, one is idle whose response has ended, though its client has not read all of it. */
  #closeIdle(): void {
    const isUnread = this.#responses.some(({ writableEnded, writableFinished }) => writableEnded && !writableFinished);
    if (!isUnread) this.#server.closeIdleConnections();
  }

  /**
   * Closes the socket at a moment at which all connections are accepted. Those in the queue of a socket that closes are reset, though their
   * clients may have sent a request. After a turn of the event loop that has accepted none, the queue was empty. The socket closes in the
   * same tick, and a short turn leaves hardly any time for another connection. Resolves when all connections are closed.
   */
  #closeAfterAccepting(): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    let accepted = 0;
    const onConnection = () => void accepted++;
    this.#server.on('connection', onConnection);
    const next = (tries: number) => {
      const [beganMs, before] = [performance.now(), accepted];
      setImmediate(() => {
        const isQuiet = accepted === before && performance.now() - beganMs < SHORT_TURN_MS;
        if (!isQuiet && tries > 1) return next(tries - 1);
        // `close` of an HTTP server would also end connections whose first request is on its way.
        NetServer.prototype.close.call(this.#server, () => resolve());
        this.#server.off('connection', onConnection);
      });
    };
    next(SHORT_TURN_TRIES);
    return promise;
  }

  /** Resolves when the responses that have begun are written, at the latest after `waitMs`. A request that is still being received gets none. */
  async finish(waitMs: number): Promise<void> {
    const signal = AbortSignal.timeout(Math.ceil(waitMs));
    const begun = this.#responses.filter(({ headersSent }) => headersSent);
    await Promise.allSettled(begun.map((response) => once(response, 'close', { signal })));
  }

  /** Closes the socket and all its connections. */
  async close(): Promise<void> {
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#destroySockets();
    await closed;
  }

  #destroySockets(): void {
    for (const socket of this.#sockets) socket.destroy();
  }
}

/** Returns whether a client offers another protocol, as Java's client does with the first request of a connection. */
function asksForUpgrade({ incoming }: HttpBindings | Http2Bindings): boolean {
  return incoming.headers.upgrade !== undefined;
}

/**
 * Returns whether an answer before the end of the body would do harm. Node drops what it reads together with the end of a request that asks
 * for another protocol, and this could be the next request. A close with unread bytes resets the connection, and the reset can overtake
 * the answer.
 */
function needsWholeBody(env: HttpBindings | Http2Bindings): boolean {
  return asksForUpgrade(env) || ('shouldKeepAlive' in env.outgoing && !env.outgoing.shouldKeepAlive);
}

/** Resolves with the answer once the body has arrived, at the latest after `waitMs`. */
async function afterBody(
  { incoming, outgoing }: HttpBindings | Http2Bindings,
  answer: Response | Promise<Response>,
  waitMs: number,
): Promise<Response> {
  const response = await answer;
  if (incoming.complete) return response;
  incoming.resume();
  await settlesWithin(once(incoming, 'end'), waitMs);
  if (!incoming.complete && 'shouldKeepAlive' in outgoing) outgoing.shouldKeepAlive = false;
  return response;
}

async function serverOf(
  tls: ServerTls | undefined,
  options: ServerOptions,
  onRequest: RequestListener,
): Promise<Server | TlsServer> {
  if (tls === undefined) return createServer(options, onRequest);
  const { createServer: createTlsServer } = await import('node:https');
  return createTlsServer({ ...options, ...tls, handshakeTimeout: HEADERS_TIMEOUT_MS }, onRequest);
}

/** Binds to the address, or to one of the next ports if it is in use. @throws {StartError} */
async function listen(server: Server | TlsServer, { host, port }: Address, key: string, ports: number): Promise<void> {
  for (let next = port; ; next++) {
    try {
      server.listen(next, host);
      await once(server, 'listening');
      return;
    } catch (thrown) {
      const code = systemCode(thrown);
      const isLast = next >= Math.min(port + ports - 1, MAX_PORT);
      if (code === 'EADDRINUSE' && !isLast) continue;
      const advice = ADVICE.get(code ?? '') ?? messageOf(thrown);
      throw new StartError(`cannot listen on ${host}:${port} (${key}): ${advice}`, { cause: thrown });
    }
  }
}

const MAX_PORT = 65_535;

/** Advice to the operator, by error code. */
const ADVICE: ReadonlyMap<string, string> = new Map([
  [
    'EADDRINUSE',
    'the port is in use by another program, perhaps another start of this gateway; stop it, or choose another port',
  ],
  ['EACCES', 'not permitted; choose a port above 1023'],
  ['EADDRNOTAVAIL', 'this machine has no such address; write one of its own, or 0.0.0.0 for all'],
  ['ENOTFOUND', 'no address is known for this name; check its spelling, or write an IP address'],
  ['EAI_AGAIN', 'the name could not be looked up now; check the DNS, or write an IP address'],
]);
