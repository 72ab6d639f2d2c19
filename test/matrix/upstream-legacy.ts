/** An upstream that begins with `initialize`: one session, over any transport. */
import { randomUUID } from 'node:crypto';
import { idOf, isMembers, object, string, type Id, type Members, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { instructions, serverCapabilities, taskResult, type Question } from './offering.ts';
import { messageProblems } from './strict.ts';
import { mustBeAskable, NotAsked, perform, Refusal } from './upstream-acts.ts';
import { reading } from './upstream-reads.ts';
import { META, TASKS_EXTENSION, type Revision } from './words.ts';
import type { World } from './world.ts';

/** @param about id of the request on whose stream it is sent, if the transport has such streams. */
type Send = (message: Message, about: Id | undefined) => void;

const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];
const TASK_MS = 30; // subject

interface Task {
  readonly taskId: string;
  status: 'working' | 'completed' | 'cancelled';
  readonly createdAt: string;
  readonly ended: PromiseWithResolvers<Members>;
  readonly timer: NodeJS.Timeout;
}

export class LegacyUpstream {
  readonly #revision: Revision;
  readonly #ledger: LedgerWriter;
  readonly #world: World;
  readonly #send: Send;
  readonly #running = new Map<Id, AbortController>();
  readonly #asked = new Map<number, PromiseWithResolvers<Members>>();
  readonly #subscribed = new Set<string>();
  readonly #tasks = new Map<string, Task>();
  readonly #unlisten: () => void;
  #capabilities: Members = {};
  #state: 'new' | 'greeted' | 'ready' = 'new';
  #level = 'debug';
  #lastAsk = 0;

  constructor(revision: Revision, ledger: LedgerWriter, world: World, send: Send) {
    this.#revision = revision;
    this.#ledger = ledger;
    this.#world = world;
    this.#send = send;
    this.#unlisten = world.listen((change) => {
      if (this.#state !== 'ready' || change.kind === 'visited') return;
      if (change.kind === 'touched') {
        if (this.#subscribed.has(change.uri)) this.#notify('notifications/resources/updated', { uri: change.uri });
        return;
      }
      for (const list of ['tools', 'prompts', 'resources']) this.#notify(`notifications/${list}/list_changed`);
    });
  }

  receive(message: Message): void {
    const { method, params } = message;
    const id = idOf(message);
    if (typeof method !== 'string') {
      this.#answered(message, id);
      return;
    }
    if (method === 'server/discover') {
      // A client of a later revision may send this first.
      if (id !== undefined) this.#fail(id, { code: -32601, message: 'Method not found' });
      return;
    }
    for (const problem of method === 'initialize' ? [] : messageProblems(this.#revision, method, params)) {
      this.#ledger.violation(problem);
    }
    if (id === undefined) {
      this.#noted(method, object(params));
      return;
    }
    if (this.#state !== 'ready' && method !== 'initialize' && method !== 'ping') {
      this.#ledger.violation(`${method} before notifications/initialized`);
    }
    void this.#serve(id, method, object(params));
  }

  /** Ends the session after the client has disconnected. */
  close(): void {
    this.#unlisten();
    for (const running of this.#running.values()) running.abort();
  }

  #noted(method: string, params: Members): void {
    if (method === 'notifications/initialized') {
      this.#state = 'ready';
    } else if (method === 'notifications/cancelled') {
      const requestId = params['requestId'];
      if (typeof requestId === 'string' || typeof requestId === 'number') this.#running.get(requestId)?.abort();
    } else if (method === 'notifications/roots/list_changed') this.#ledger.note('roots changed', '');
  }

  #answered(message: Message, id: Id | undefined): void {
    const asked = typeof id === 'number' ? this.#asked.get(id) : undefined;
    if (asked === undefined || typeof id !== 'number') {
      this.#ledger.violation(`an answer to nothing that was asked: ${JSON.stringify(message).slice(0, 200)}`);
      return;
    }
    this.#asked.delete(id);
    if (isMembers(message['result'])) asked.resolve(message['result']);
    else asked.reject(new Refusal({ code: -32603, message: 'Not answered', data: message['error'] }));
  }

  async #serve(id: Id, method: string, params: Members): Promise<void> {
    const running = new AbortController();
    this.#running.set(id, running);
    try {
      const result = await this.#result(id, method, params, running.signal);
      if (!running.signal.aborted) this.#send({ jsonrpc: '2.0', id, result }, id);
      else this.#send({}, id);
    } catch (thrown) {
      if (thrown instanceof Refusal) this.#fail(id, thrown.error);
      else this.#fail(id, { code: -32603, message: String(thrown) });
    } finally {
      this.#running.delete(id);
    }
  }

  #fail(id: Id, error: Members): void {
    this.#send({ jsonrpc: '2.0', id, error }, id);
  }

  async #result(id: Id, method: string, params: Members, signal: AbortSignal): Promise<Members> {
    switch (method) {
      case 'initialize':
        return this.#initialize(params);
      case 'ping':
        return {};
      case 'tools/call':
        return await this.#call(id, params, signal);
      case 'logging/setLevel':
        if (!LEVELS.includes(string(params['level']))) throw new Refusal({ code: -32602, message: 'No such level' });
        this.#level = string(params['level']);
        return {};
      case 'resources/subscribe':
        this.#subscribed.add(string(params['uri']));
        this.#ledger.note('subscribed', string(params['uri']));
        return {};
      case 'resources/unsubscribe':
        this.#subscribed.delete(string(params['uri']));
        this.#ledger.note('unsubscribed', string(params['uri']));
        return {};
      default: {
        const result = reading(this.#revision, this.#world.grown, method, params) ?? (await this.#task(method, params));
        if (result === undefined) throw new Refusal({ code: -32601, message: `Method not found: ${method}` });
        return result;
      }
    }
  }

  #initialize(params: Members): Members {
    if (this.#state !== 'new') this.#ledger.violation('initialize twice');
    this.#state = 'greeted';
    this.#capabilities = object(params['capabilities']);
    if (object(this.#capabilities['extensions'])[TASKS_EXTENSION] !== undefined) {
      this.#ledger.violation('the tasks extension declared to a server that cannot know it');
    }
    return {
      protocolVersion: this.#revision,
      capabilities: serverCapabilities(this.#revision),
      serverInfo: { name: 'matrix', version: this.#revision },
      instructions: instructions(this.#revision),
    };
  }

  async #call(id: Id, params: Members, signal: AbortSignal): Promise<Members> {
    const name = string(params['name']);
    const args = object(params['arguments']);
    const nonce = string(args['nonce']);
    const token = object(params['_meta'])['progressToken'];
    if (name === 'task' && this.#revision === '2025-11-25') {
      if (params['task'] === undefined) throw new Refusal({ code: -32601, message: 'This tool runs as a task only' });
      return { task: this.#begin(nonce, args['patient'] === true) };
    }
    try {
      return await perform({
        revision: this.#revision,
        name,
        args,
        nonce,
        capabilities: this.#capabilities,
        ledger: this.#ledger,
        world: this.#world,
        signal,
        progress: (progress) => {
          if (token !== undefined) this.#notify('notifications/progress', { progressToken: token, ...progress }, id);
        },
        log: (logged) => {
          if (LEVELS.indexOf(string(logged['level'])) < LEVELS.indexOf(this.#level)) return;
          this.#notify('notifications/message', logged, id);
        },
        ask: (questions) => this.#ask(questions, id),
        elicited: (elicitationId, isLate) => {
          if (this.#revision === '2025-11-25')
            this.#notify('notifications/elicitation/complete', { elicitationId }, isLate ? undefined : id);
        },
      });
    } catch (thrown) {
      if (!(thrown instanceof NotAsked)) throw thrown;
      return { content: [{ type: 'text', text: thrown.message }], isError: true };
    }
  }

  async #ask(questions: Readonly<Record<string, Question>>, about: Id): Promise<Readonly<Record<string, Members>>> {
    for (const question of Object.values(questions)) mustBeAskable(this.#capabilities, question);
    const answers = Object.entries(questions).map(async ([key, { method, params }]): Promise<[string, Members]> => {
      const id = ++this.#lastAsk;
      const asked = Promise.withResolvers<Members>();
      this.#asked.set(id, asked);
      this.#send({ jsonrpc: '2.0', id, method, params }, about);
      return [key, await asked.promise];
    });
    return Object.fromEntries(await Promise.all(answers));
  }

  #notify(method: string, params?: Members, about?: Id): void {
    this.#send({ jsonrpc: '2.0', method, ...(params === undefined ? {} : { params }) }, about);
  }

  #begin(nonce: string, isPatient: boolean): Members {
    const timer = setTimeout(
      () => {
        task.status = 'completed';
        task.ended.resolve({ ...taskResult(nonce), _meta: { [META.task]: { taskId: task.taskId } } });
      },
      isPatient ? 60_000 : TASK_MS,
    );
    timer.unref();
    const task: Task = {
      taskId: randomUUID(),
      status: 'working',
      createdAt: new Date().toISOString(),
      ended: Promise.withResolvers<Members>(),
      timer,
    };
    task.ended.promise.catch(() => undefined);
    this.#tasks.set(task.taskId, task);
    this.#ledger.note('task', nonce);
    return this.#show(task);
  }

  #show({ taskId, status, createdAt }: Task): Members {
    return { taskId, status, createdAt, lastUpdatedAt: new Date().toISOString(), ttl: 60_000, pollInterval: 20 };
  }

  async #task(method: string, params: Members): Promise<Members | undefined> {
    if (this.#revision !== '2025-11-25') return undefined;
    if (method === 'tasks/list') return { tasks: [...this.#tasks.values()].map((task) => this.#show(task)) };
    if (!method.startsWith('tasks/')) return undefined;
    const task = this.#tasks.get(string(params['taskId']));
    if (task === undefined) throw new Refusal({ code: -32602, message: 'Unknown task' });
    switch (method) {
      case 'tasks/get':
        return this.#show(task);
      case 'tasks/result':
        return await task.ended.promise;
      case 'tasks/cancel':
        if (task.status !== 'working') throw new Refusal({ code: -32602, message: 'The task has ended' });
        clearTimeout(task.timer);
        task.status = 'cancelled';
        task.ended.reject(new Refusal({ code: -32603, message: 'Cancelled' }));
        return this.#show(task);
      default:
        return undefined;
    }
  }
}
