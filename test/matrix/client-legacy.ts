/** A client that begins with `initialize`, over any transport. */
import { PATIENCE_MS } from '../support/patience.ts';
import {
  type Asked,
  type Call,
  type CallOptions,
  type Client,
  type Disconnect,
  Notifications,
  type Received,
  type Reply,
} from './client.ts';
import { HttpWire, SseWire, StdioWire, type Wire } from './client-wire.ts';
import { idOf, isMembers, object, same, string, type Id, type Members, type Message } from './json.ts';
import { clientCapabilities } from './offering.ts';
import { errorProblems, messageProblems, resultProblems } from './strict.ts';
import type { Revision } from './words.ts';

/** The address of the server, or the command that starts it. */
export type Address =
  | { readonly kind: 'http'; readonly url: string }
  | { readonly kind: 'stdio'; readonly args: readonly string[] };

interface Pending {
  readonly method: string;
  readonly params: Members;
  readonly options: CallOptions;
  readonly received: Received[];
  readonly answered: PromiseWithResolvers<Reply>;
  isCancelled: boolean;
}

/** @throws {Error} of the promise, or if it takes too long. */
export async function inTime<T>(promise: Promise<T>, what: string): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`no answer to ${what} within ${PATIENCE_MS} ms`)), PATIENCE_MS);
  // A call whose client has disconnected gets no answer, and the process ends without it.
  timer.unref();
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

export class LegacyClient implements Client {
  readonly revision: Revision;
  readonly notifications = new Notifications();
  readonly violations: string[] = [];
  capabilities: Members = {};
  instructions: string | undefined;
  disconnectMeans: Disconnect = 'the session ends';
  readonly #pending = new Map<Id, Pending>();
  readonly #idOfCall = new WeakMap<Call, Id>();
  #wire: Wire | undefined;
  #http: HttpWire | undefined;
  #sessionId: string | undefined;
  #asked: Asked | undefined;
  #level: string | undefined;
  #lastId = 0;

  private constructor(revision: Revision) {
    this.revision = revision;
  }

  static async connect(revision: Revision, address: Address): Promise<LegacyClient> {
    const client = new LegacyClient(revision);
    await client.#open(address);
    const { reply } = client.call('initialize', {
      protocolVersion: revision,
      capabilities: clientCapabilities(revision),
      clientInfo: { name: 'matrix', version: revision },
    });
    const { result, error } = await reply;
    if (result === undefined) throw new Error(`initialize: ${JSON.stringify(error)}`);
    if (result['protocolVersion'] !== revision) {
      client.violations.push(`initialize for ${revision} was answered with ${string(result['protocolVersion'])}`);
    }
    client.capabilities = object(result['capabilities']);
    const { instructions } = result;
    client.instructions = typeof instructions === 'string' ? instructions : undefined;
    await client.#wire?.send({ jsonrpc: '2.0', method: 'notifications/initialized' });
    await client.#http?.listen();
    return client;
  }

  async #open(address: Address): Promise<void> {
    const received = (message: Message, on: Id | null | undefined) => this.#received(message, on);
    if (address.kind === 'stdio') this.#wire = new StdioWire(address.args, received);
    else if (this.revision === '2024-11-05') this.#wire = await SseWire.open(address.url, received);
    else {
      this.disconnectMeans = 'the call goes on';
      this.#http = new HttpWire({
        url: address.url,
        received,
        headers: () => ({
          ...(this.#sessionId === undefined ? {} : { 'mcp-session-id': this.#sessionId }),
          ...(this.#sessionId === undefined || this.revision < '2025-06-18'
            ? {}
            : { 'mcp-protocol-version': this.revision }),
        }),
        answered: (headers) => {
          const id = headers['mcp-session-id'];
          if (typeof id === 'string') this.#sessionId = id;
        },
        primed: () => {
          if (this.revision < '2025-11-25') this.violations.push('an event without data');
        },
      });
      this.#wire = this.#http;
    }
  }

  call(method: string, params: Members, options: CallOptions = {}): Call {
    const id = ++this.#lastId;
    // Ids of both types must be returned unchanged.
    const own: Id = id % 2 === 0 ? `id-${id}` : id;
    const pending: Pending = {
      method,
      params,
      options,
      received: [],
      answered: Promise.withResolvers<Reply>(),
      isCancelled: false,
    };
    this.#pending.set(own, pending);
    // A call may be cancelled before its answer is awaited.
    pending.answered.promise.catch(() => undefined);
    const call: Call = {
      reply: inTime(this.#send(own, pending), method),
      received: pending.received,
      cancel: () => {
        pending.isCancelled = true;
        pending.answered.reject(new Error('cancelled'));
        const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: own } };
        this.#wire?.send(cancelled).catch((thrown: unknown) => this.violations.push(String(thrown)));
      },
      disconnect: () => this.#wire?.drop(own),
    };
    call.reply.catch(() => undefined);
    this.#idOfCall.set(call, own);
    return call;
  }

  async #send(id: Id, { method, params, options, answered }: Pending): Promise<Reply> {
    const { progressToken, logLevel, asked } = options;
    this.#asked = asked;
    if (logLevel !== undefined && logLevel !== this.#level) {
      this.#level = logLevel;
      await this.call('logging/setLevel', { level: logLevel }).reply;
      this.#asked = asked;
    }
    const meta = progressToken === undefined ? {} : { _meta: { progressToken } };
    this.#wire?.send({ jsonrpc: '2.0', id, method, params: { ...params, ...meta } }).catch(answered.reject);
    return await answered.promise;
  }

  resume(call: Call): void {
    const id = this.#idOfCall.get(call);
    if (id === undefined || this.#http === undefined) throw new Error('nothing to come back for');
    this.#http.resume(id).catch((thrown: unknown) => this.#pending.get(id)?.answered.reject(thrown));
  }

  async watch(uris: readonly string[]): Promise<{ end(): Promise<void> }> {
    const each = async (method: string) => {
      for (const uri of uris) {
        const { error } = await this.call(method, { uri }).reply;
        if (error !== undefined) throw new Error(`${method}: ${JSON.stringify(error)}`);
      }
    };
    await each('resources/subscribe');
    return { end: () => each('resources/unsubscribe') };
  }

  async rootsChanged(): Promise<boolean> {
    await this.#wire?.send({ jsonrpc: '2.0', method: 'notifications/roots/list_changed' });
    return true;
  }

  async close(): Promise<void> {
    await this.#http?.end();
    await this.#wire?.close();
  }

  #received(message: Message, on: Id | null | undefined): void {
    const { method } = message;
    const id = idOf(message);
    if (message['jsonrpc'] !== '2.0') this.violations.push(`not JSON-RPC: ${JSON.stringify(message).slice(0, 200)}`);
    if (typeof method !== 'string') this.#answered(message, id, on);
    else {
      this.violations.push(...messageProblems(this.revision, method, message['params']));
      const params = object(message['params']);
      if (id !== undefined) this.#question(id, method, params);
      else this.#noted(method, params, on);
    }
  }

  #answered({ result, error }: Message, id: Id | undefined, on: Id | null | undefined): void {
    const pending = id === undefined ? undefined : this.#pending.get(id);
    if (id === undefined || pending === undefined) {
      this.violations.push(`an answer to a request that is not there: ${String(id)}`);
      return;
    }
    this.#pending.delete(id);
    if (on !== undefined && on !== id) this.violations.push(`the answer to ${id} came on the stream of ${on ?? 'GET'}`);
    // A cancelled call may still get an error if its transport requires an answer to every request.
    if (pending.isCancelled && error === undefined)
      this.violations.push(`a result of ${pending.method}, which was cancelled`);
    if (isMembers(result)) {
      const isTask = pending.params['task'] !== undefined && result['task'] !== undefined;
      if (!isTask) this.violations.push(...resultProblems(this.revision, this.#shapeOf(pending.method), result));
    } else this.violations.push(...errorProblems(this.revision, object(error)['code']));
    pending.answered.resolve({
      result: isMembers(result) ? result : undefined,
      error: isMembers(error) ? error : undefined,
      received: pending.received,
    });
  }

  /** Task requests have different results, which are compared whole. */
  #shapeOf(method: string): string {
    return method === 'tasks/result' ? 'tools/call' : method.startsWith('tasks/') ? '' : method;
  }

  #question(id: Id, method: string, params: Members): void {
    const declared = clientCapabilities(this.revision);
    const [kind = ''] = method.split('/');
    if (method !== 'ping' && declared[kind] === undefined) {
      this.violations.push(`asked ${method}, which was not declared`);
    }
    const answer =
      method === 'ping'
        ? { result: {} }
        : this.#asked === undefined
          ? { error: { code: -32603, message: 'Nobody to ask' } }
          : { result: this.#asked(method, withoutMeta(params)) };
    if (method !== 'ping' && this.#asked === undefined) this.violations.push(`asked ${method} when nobody can be`);
    this.#wire
      ?.send({ jsonrpc: '2.0', id, ...answer })
      .catch((thrown: unknown) => this.violations.push(String(thrown)));
  }

  #noted(method: string, params: Members, on: Id | null | undefined): void {
    const received = { method, params };
    if (method === 'notifications/progress') {
      const token = params['progressToken'];
      const whose = [...this.#pending].find(([, { options }]) => same(options.progressToken, token));
      if (whose === undefined) this.violations.push(`progress for ${JSON.stringify(token)}, which is not under way`);
      else {
        if (on !== undefined && on !== whose[0]) this.violations.push('progress on the stream of another request');
        whose[1].received.push(received);
      }
    } else if (method === 'notifications/message') {
      // Without a stream per request, the message belongs to the only call in flight.
      const whose = typeof on === 'number' || (on !== undefined && on !== null) ? this.#pending.get(on) : undefined;
      const inFlight = [...this.#pending.values()].findLast(({ isCancelled }) => !isCancelled);
      (whose ?? inFlight)?.received.push(received);
      this.notifications.received.push(received);
    } else this.notifications.received.push(received);
  }
}

/** The gateway may have replaced the progress token. */
function withoutMeta(params: Members): Members {
  return Object.fromEntries(Object.entries(params).filter(([key]) => key !== '_meta'));
}
