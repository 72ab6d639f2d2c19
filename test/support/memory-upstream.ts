import { RawObject } from '../../src/json/json.ts';
import {
  type Message,
  type Notification,
  parseMessage,
  type Request,
  type Response,
} from '../../src/protocol/jsonrpc.ts';
import type { StartTransport, TransportEvents, TransportRequest } from '../../src/upstream/rpc/transport.ts';
import { GatewayError } from '../../src/errors.ts';
import { Changes } from './changes.ts';

/** One connection to a scripted server, seen from the server's side. */
export interface Peer {
  /** The capabilities that `initialize` declared. */
  readonly capabilities: RawObject;
  readonly received: Message[];
  /** The principal that the connection is for; empty for all. */
  readonly audience: string;
  /** Sends a message. @param about id of the request on whose stream it is sent, as in Streamable HTTP. */
  send(text: string, about?: number): void;
  crash(why?: string): void;
  /** Closes the connection with this error, as a transport reports it. */
  end(error: GatewayError): void;
  /** Fails one request only, as a transport reports it. */
  fail(id: string, error: GatewayError): void;
}

export interface Script {
  readonly capabilities?: object;
  readonly revision?: string;
  readonly lists?: Partial<Record<'tools' | 'prompts' | 'resources' | 'resourceTemplates', readonly object[]>>;
  /** The number of items of one page of a list. Default: all. */
  readonly pageItems?: number;
  /** The lists of one connection, if connections have different ones. */
  listsOf?(peer: Peer): Script['lists'];
  /** Awaited before a list request is answered. */
  hold?(peer: Peer, request: Request): Promise<void>;
  /** Awaited before a connection opens; may reject to prevent it. */
  start?(request: TransportRequest): Promise<void>;
  /** Lets the script answer `initialize` too. */
  readonly isRaw?: boolean;
  /** Answers a request with `peer.send`. Other methods get an empty result. */
  request?(peer: Peer, request: Request): void;
  notification?(peer: Peer, notification: Notification): void;
  response?(peer: Peer, response: Response): void;
}

export interface MemoryUpstream {
  readonly start: StartTransport;
  /** All connections so far, in order of opening. */
  readonly peers: Peer[];
  readonly open: Set<Peer>;
  /** The number of requested connections. */
  readonly starts: number;
  /** Returns all requests of this method so far, on all connections, in order of arrival. */
  requests(method: string): Request[];
  /**
   * Resolves with the first defined value of `found`, which runs again at each event of a connection. Bounded in
   * time.
   */
  until<T>(found: () => T | undefined): Promise<T>;
}

const LISTS = new Map([
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
] as const);

export function result(request: Request, value: object): string {
  return `{"jsonrpc":"2.0","id":${request.id},"result":${JSON.stringify(value)}}`;
}

function aborted(signal: AbortSignal): Promise<never> {
  return new Promise((_resolve, reject) => {
    const abort = () => reject(new GatewayError('upstream-unavailable', { message: 'not begun in time' }));
    if (signal.aborted) abort();
    else signal.addEventListener('abort', abort, { once: true });
  });
}

/** A transport without a wire: messages reach the script on the next tick, as text, in order. */
export function memoryUpstream(script: Script): MemoryUpstream {
  const peers: Peer[] = [];
  const open = new Set<Peer>();
  const requests: Request[] = [];
  let starts = 0;
  const changes = new Changes();
  const start: StartTransport = async (events: TransportEvents, signal: AbortSignal, request: TransportRequest) => {
    starts++;
    changes.announce();
    if (script.start !== undefined) await Promise.race([script.start(request), aborted(signal)]);
    let isClosed = false;
    const close = (error: GatewayError) => {
      if (isClosed) return;
      isClosed = true;
      open.delete(peer);
      events.onClose(error);
      changes.announce();
    };
    const received: Message[] = [];
    let capabilities = RawObject.EMPTY;
    const peer: Peer = {
      get capabilities() {
        return capabilities;
      },
      received,
      audience: request.audience,
      send: (text, about) => {
        if (!isClosed) events.onMessage(parseMessage(text), about);
      },
      crash: (why = 'crashed') => close(new GatewayError('upstream-lost', { message: why })),
      end: close,
      fail: (id, error) => events.onSendFailed(Number(id), error),
    };
    peers.push(peer);
    open.add(peer);
    changes.announce();
    const receive = (message: Message) => {
      if (isClosed) return;
      received.push(message);
      if (message.kind === 'request') requests.push(message);
      changes.announce();
      if (message.kind === 'notification') return script.notification?.(peer, message);
      if (message.kind !== 'request') return script.response?.(peer, message);
      if (message.method === 'initialize' && script.isRaw !== true) {
        capabilities = message.params?.object('capabilities') ?? RawObject.EMPTY;
        const declared = script.capabilities ?? { tools: { listChanged: true }, logging: {} };
        const serverInfo = { name: 'memory', version: '1' };
        const protocolVersion = script.revision ?? '2025-11-25';
        return peer.send(result(message, { protocolVersion, capabilities: declared, serverInfo }));
      }
      const list = [...LISTS].find(([method]) => method === message.method)?.[1];
      if (list !== undefined) {
        const answer = () => {
          const lists = script.listsOf?.(peer) ?? script.lists;
          const start = Number(message.params?.string('cursor') ?? 0);
          const end = start + (script.pageItems ?? Infinity);
          const items = lists?.[list] ?? [];
          const next = end < items.length ? { nextCursor: String(end) } : {};
          peer.send(result(message, { [list]: items.slice(start, end), ...next }));
        };
        if (script.hold === undefined) return answer();
        return void script.hold(peer, message).then(answer);
      }
      if (script.request === undefined) return peer.send(result(message, {}));
      return script.request(peer, message);
    };
    return {
      send: ({ text }) => setImmediate(() => receive(parseMessage(text))),
      forget: () => undefined,
      setRevision: () => undefined,
      close: () => {
        close(new GatewayError('upstream-lost', { message: 'closed by us' }));
        return Promise.resolve();
      },
    };
  };
  return {
    start,
    peers,
    open,
    get starts() {
      return starts;
    },
    requests: (method) => requests.filter((request) => request.method === method),
    until: (found) => changes.until(found),
  };
}
