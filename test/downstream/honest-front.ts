import { once } from 'node:events';
import { setTimeout as delay } from 'node:timers/promises';
import type { Caller } from '../../src/gateway/front/caller.ts';
import { HERE } from '../../src/gateway/exchange/owners.ts';
import type { ClientSession, Front, MessageSink, Owner, Ownership } from '../../src/gateway/front/front.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { RawObject } from '../../src/json/json.ts';
import {
  type Answer,
  notificationText,
  type Notification,
  type Request,
  requestText,
  type Response,
} from '../../src/protocol/jsonrpc.ts';
import { negotiate } from '../../src/protocol/revisions.ts';
import type { SessionRef } from '../../src/store/session-store.ts';

let lastSerial = 0;

/** A session that implements the contract and nothing more. */
export class HonestSession implements ClientSession {
  readonly id: string;
  readonly ref: SessionRef;
  readonly caller: Caller;
  readonly ending = new AbortController();
  readonly waiting: string[] = [];
  /** Functions that end a request, by its id, without an answer. */
  readonly cancels = new Map<string, () => void>();
  sink: MessageSink | undefined;

  constructor(id: string, caller: Caller) {
    this.id = id;
    this.ref = { principal: caller.principal.key, serial: ++lastSerial, expiresMs: Date.now() + 3_600_000 };
    this.caller = caller;
  }

  get closed(): AbortSignal {
    return this.ending.signal;
  }

  setSink(sink: MessageSink): void {
    this.sink = sink;
    for (const text of this.waiting.splice(0)) this.send(text);
  }

  removeSink(sink: MessageSink): void {
    if (this.sink === sink) this.sink = undefined;
  }

  send(text: string, sink?: MessageSink): void {
    if (sink?.send(text) || this.sink?.send(text)) return;
    this.waiting.push(text);
  }

  notify(n: number, sink?: MessageSink, pad = 0): void {
    const params = RawObject.of({
      progressToken: 'p',
      progress: n,
      ...(pad === 0 ? {} : { message: '.'.repeat(pad) }),
    });
    this.send(notificationText('notifications/progress', params), sink);
  }
}

function result(value: object): Answer {
  return { kind: 'result', result: JSON.stringify(value) };
}

/**
 * An in-memory core. The method of a request decides its effect: `echo` returns its params, `count` sends progress up
 * to `to` before its answer, `ask` asks the client, `wait` waits for {@link HonestFront.release}, `big` answers with
 * that many characters.
 */
export class HonestFront implements Front {
  readonly sessions = new Map<string, HonestSession>();
  /** Sessions of other processes, by id. */
  readonly elsewhere = new Map<string, Owner>();
  readonly notifications: Notification[] = [];
  readonly responses: Response[] = [];
  /** Methods in order of arrival. */
  readonly began: string[] = [];
  readonly finished: string[] = [];
  /** Sessions that were opened, whether or not they have ended. */
  initialized = 0;
  readonly #gates = new Map<string, PromiseWithResolvers<void>>();
  /** Ids of the sessions that the edge has asked for. */
  readonly #asks: string[] = [];
  readonly #asked = new Map<string, (response: Response) => void>();
  #last = 0;

  hasView(view: string): boolean {
    return view === '' || view === 'files';
  }

  async initialize(
    request: Request,
    principal: Principal,
    view: string,
  ): Promise<{ session: HonestSession | undefined; answer: Answer }> {
    await delay(0);
    const asked = request.params?.string('protocolVersion');
    if (asked === undefined) {
      return { session: undefined, answer: { kind: 'error', error: { code: -32602, message: 'protocolVersion?' } } };
    }
    const revision = negotiate(asked);
    const caller = { principal, view, revision, capabilities: RawObject.EMPTY, clientInfo: RawObject.EMPTY };
    const session = new HonestSession(`session-${++this.#last}`, caller);
    this.sessions.set(session.id, session);
    this.initialized++;
    const serverInfo = { name: 'honest', version: '1' };
    return { session, answer: result({ protocolVersion: revision, capabilities: { tools: {} }, serverInfo }) };
  }

  hasSession(id: string): boolean {
    this.#asks.push(id);
    return this.sessions.has(id);
  }

  /** Resolves when the edge has asked whether a session is here. */
  async askedFor(id: string): Promise<void> {
    while (!this.#asks.includes(id)) await delay(1);
  }

  reportHiddenView(): boolean {
    return false;
  }

  /** Streams of other processes, by the name of the process. */
  readonly streamsElsewhere = new Map<string, Owner>();
  processName: string | undefined = undefined;
  /** The process that gets new requests while this one leaves. */
  next: Owner | undefined;

  successor(): Owner | undefined {
    return this.next;
  }

  async ownerOfStream(process: string): Promise<Ownership> {
    const owner = this.streamsElsewhere.get(process);
    return owner === undefined ? HERE : { kind: 'elsewhere', owner };
  }

  /** The failure of each question who has a session; undefined if it can be answered. */
  ownersFailure: Error | undefined;

  async ownerOfSession(id: string): Promise<Ownership> {
    if (this.ownersFailure !== undefined) throw this.ownersFailure;
    const owner = this.elsewhere.get(id);
    return owner === undefined ? HERE : { kind: 'elsewhere', owner };
  }

  async findSession(id: string, principal: Principal, view: string): Promise<HonestSession | undefined> {
    const session = this.sessions.get(id);
    return session?.caller.principal.key === principal.key && session.caller.view === view ? session : undefined;
  }

  async handleRequest(clientSession: ClientSession, request: Request, sink: MessageSink): Promise<Answer | undefined> {
    const session = this.own(clientSession.id);
    this.began.push(request.method);
    const cancelled = Promise.withResolvers<undefined>();
    session.cancels.set(request.id, () => cancelled.resolve(undefined));
    const answer = await Promise.race([this.#answer(session, request, sink), cancelled.promise]);
    session.cancels.delete(request.id);
    this.finished.push(request.method);
    return answer;
  }

  async #answer(session: HonestSession, { method, params }: Request, sink: MessageSink): Promise<Answer> {
    switch (method) {
      case 'ping':
        return result({});
      case 'tools/list':
        return result({ tools: [] });
      case 'echo':
        return { kind: 'result', result: params?.toString() ?? '{}' };
      case 'count': {
        const to = Number(params?.raw('to'));
        const gate = params?.string('gate');
        for (let n = 1; n <= to; n++) {
          session.notify(n, sink, Number(params?.raw('pad') ?? 0));
          if (n % 10 === 0) await delay(0);
        }
        if (gate !== undefined) await this.gate(gate).promise;
        return result({ counted: to });
      }
      case 'wait':
        await this.gate(params?.string('gate') ?? 'gate').promise;
        return result({ waited: true });
      case 'ask': {
        const { promise, resolve } = Promise.withResolvers<Response>();
        const id = `${++this.#last}`;
        this.#asked.set(id, resolve);
        session.send(requestText(Number(id), 'roots/list', undefined), sink);
        const response = await promise;
        return result({ answered: response.kind === 'result' ? JSON.parse(response.result) : response.error });
      }
      case 'big':
        return result({ text: 'x'.repeat(Number(params?.raw('chars'))) });
      case 'throw':
        throw new Error('a secret about /etc/passwd');
      default:
        return { kind: 'error', error: { code: -32601, message: `no ${method}` } };
    }
  }

  /** Opened by {@link release}. */
  gate(name: string): PromiseWithResolvers<void> {
    let gate = this.#gates.get(name);
    if (gate === undefined) {
      gate = Promise.withResolvers<void>();
      this.#gates.set(name, gate);
    }
    return gate;
  }

  release(name: string): void {
    this.gate(name).resolve();
  }

  own(id: string): HonestSession {
    const session = this.sessions.get(id);
    if (session === undefined) throw new Error(`no session ${id}`);
    return session;
  }

  get onlySession(): HonestSession {
    const [session] = this.sessions.values();
    if (session === undefined) throw new Error('no session');
    return session;
  }

  handleModernRequest: Front['handleModernRequest'] = () => {
    throw new Error('this front serves sessions alone');
  };

  handleNotification(session: ClientSession, notification: Notification): void {
    if (notification.method === 'notifications/cancelled') {
      this.own(session.id).cancels.get(notification.params?.raw('requestId') ?? '')?.();
    }
    this.notifications.push(notification);
  }

  noteNotification(_: object, notification: Notification): void {
    this.notifications.push(notification);
  }

  handleResponse(_: ClientSession, response: Response): void {
    this.responses.push(response);
    this.#asked.get(response.id)?.(response);
  }

  handleLateMessage(): never {
    throw new Error('this front gives no sessions away');
  }

  async endSession(session: ClientSession): Promise<void> {
    const own = this.own(session.id);
    this.sessions.delete(session.id);
    own.ending.abort();
  }

  /**
   * Releases a session as the gateway does with an idle one: its state in memory is removed, and its id stays valid.
   */
  async releaseSession(id: string): Promise<void> {
    const { caller, ending } = this.own(id);
    const ended = once(ending.signal, 'abort');
    ending.abort();
    await ended;
    this.sessions.set(id, new HonestSession(id, caller));
  }
}
