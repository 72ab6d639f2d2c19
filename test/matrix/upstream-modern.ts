/** An upstream of 2026-07-28: every request is independent, and questions are answered by retries. */
import { createHash, createHmac, randomUUID } from 'node:crypto';
import { array, idOf, isMembers, object, same, string, type Id, type Members, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { instructions, serverCapabilities, taskResult, type Question } from './offering.ts';
import { messageProblems } from './strict.ts';
import { mustBeAskable, NotAsked, perform, Refusal } from './upstream-acts.ts';
import { reading } from './upstream-reads.ts';
import { META, MODERN, TASKS_EXTENSION } from './words.ts';
import type { Change, World } from './world.ts';

const LEVELS = ['debug', 'info', 'notice', 'warning', 'error', 'critical', 'alert', 'emergency'];
const TASK_MS = 30; // subject
/** All processes of the matrix share this key, so that each can open the others' handles. */
const KEY = 'matrix';
const CACHEABLE = new Set([
  'tools/list',
  'prompts/list',
  'resources/list',
  'resources/templates/list',
  'resources/read',
]);

type Answers = Readonly<Record<string, Members>>;

/** Ends a call that needs answers first. */
class InputRequired extends Error {
  readonly questions: Readonly<Record<string, Question>>;

  constructor(questions: Readonly<Record<string, Question>>) {
    super('input required');
    this.questions = questions;
  }
}

/** The surroundings of one request in flight. */
export interface Served {
  readonly notify: (message: Message) => void;
  readonly signal: AbortSignal;
}

interface Task {
  readonly taskId: string;
  readonly nonce: string;
  status: 'working' | 'completed' | 'cancelled';
  readonly createdAt: string;
  readonly timer: NodeJS.Timeout;
}

/** The tasks of one process, shared by all its connections. */
const tasks = new Map<string, Task>();

function seal(value: Members): string {
  const text = Buffer.from(JSON.stringify(value)).toString('base64url');
  return `${text}.${createHmac('sha256', KEY).update(text).digest('base64url')}`;
}

function unseal(state: string): Members {
  const [text = '', mac] = state.split('.');
  if (createHmac('sha256', KEY).update(text).digest('base64url') !== mac) {
    throw new Refusal({ code: -32602, message: 'Invalid requestState' });
  }
  return object(JSON.parse(Buffer.from(text, 'base64url').toString('utf8')));
}

function digestOf(params: Members): string {
  const { name, arguments: args } = params;
  return createHash('sha256')
    .update(JSON.stringify([name, args]))
    .digest('base64url');
}

export class ModernUpstream {
  readonly #ledger: LedgerWriter;
  readonly #world: World;
  /** The number of listen requests for each URI. */
  readonly #listened = new Map<string, number>();
  readonly #canAsk: boolean;

  /** @param canAsk false for a server of both eras that asks only in sessions. */
  constructor(ledger: LedgerWriter, world: World, canAsk = true) {
    this.#ledger = ledger;
    this.#world = world;
    this.#canAsk = canAsk;
  }

  /** Returns the response; undefined if no client waits for one. */
  async serve(request: Message, served: Served): Promise<Message | undefined> {
    const id = idOf(request);
    const method = string(request['method']);
    if (id === undefined) return undefined;
    try {
      const result = await this.#result(id, method, object(request['params']), served);
      if (served.signal.aborted) return undefined;
      const meta = { ...object(result['_meta']), [META.serverInfo]: { name: 'matrix', version: MODERN } };
      return { jsonrpc: '2.0', id, result: { resultType: 'complete', ...result, _meta: meta } };
    } catch (thrown) {
      if (thrown instanceof Refusal) return { jsonrpc: '2.0', id, error: thrown.error };
      return { jsonrpc: '2.0', id, error: { code: -32603, message: String(thrown) } };
    }
  }

  async #result(id: Id, method: string, params: Members, served: Served): Promise<Members> {
    const meta = object(params['_meta']);
    const capabilities = meta[META.capabilities];
    if (meta[META.revision] === undefined) {
      const data = { supported: [MODERN], requested: string(params['protocolVersion']) };
      throw new Refusal({ code: method === 'initialize' ? -32022 : -32602, message: 'Which revision?', data });
    }
    if (meta[META.revision] !== MODERN) {
      const data = { supported: [MODERN], requested: meta[META.revision] };
      throw new Refusal({ code: -32022, message: 'Unsupported protocol version', data });
    }
    if (!isMembers(capabilities)) throw new Refusal({ code: -32602, message: `_meta needs ${META.capabilities}` });
    for (const problem of messageProblems(MODERN, method, params)) this.#ledger.violation(problem);
    if (params['task'] !== undefined) this.#ledger.violation('params.task in 2026-07-28');
    switch (method) {
      case 'server/discover':
        return {
          supportedVersions: [MODERN],
          capabilities: serverCapabilities(MODERN),
          instructions: instructions(MODERN),
          ttlMs: 60_000,
          cacheScope: 'public',
        };
      case 'subscriptions/listen':
        return await this.#listen(id, object(params['notifications']), served);
      case 'tools/call':
        return await this.#call(params, capabilities, served);
      case 'tasks/get':
      case 'tasks/update':
      case 'tasks/cancel':
        return this.#task(method, params, capabilities);
      default: {
        const result = reading(MODERN, this.#world.grown, method, params);
        if (result === undefined) throw new Refusal({ code: -32601, message: `Method not found: ${method}` });
        return CACHEABLE.has(method) ? { ...result, ttlMs: 1_000, cacheScope: 'public' } : result;
      }
    }
  }

  async #call(params: Members, capabilities: Members, { notify, signal }: Served): Promise<Members> {
    const name = string(params['name']);
    const args = object(params['arguments']);
    const nonce = string(args['nonce']);
    const { progressToken, [META.logLevel]: level } = object(params['_meta']);
    const answers = this.#answersOf(params);
    if (name === 'task') {
      if (object(capabilities['extensions'])[TASKS_EXTENSION] === undefined) return taskResult(nonce);
      return { resultType: 'task', ...this.#begin(nonce, args['patient'] === true) };
    }
    try {
      return await perform({
        revision: MODERN,
        name,
        args,
        nonce,
        capabilities,
        ledger: this.#ledger,
        world: this.#world,
        signal,
        progress: (progress) => {
          if (progressToken === undefined) return;
          notify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, ...progress } });
        },
        log: (logged) => {
          const isWanted = LEVELS.indexOf(string(logged['level'])) >= LEVELS.indexOf(string(level));
          if (level !== undefined && isWanted)
            notify({ jsonrpc: '2.0', method: 'notifications/message', params: logged });
        },
        ask: async (questions) => {
          if (!this.#canAsk) throw new Refusal({ code: -32603, message: 'This server asks in sessions alone' });
          for (const question of Object.values(questions)) mustBeAskable(capabilities, question);
          const missing = Object.entries(questions).filter(([key]) => answers[key] === undefined);
          if (missing.length > 0) throw new InputRequired(Object.fromEntries(missing));
          return Object.fromEntries(Object.keys(questions).map((key) => [key, answers[key] ?? {}]));
        },
        elicited: () => undefined,
      });
    } catch (thrown) {
      if (thrown instanceof NotAsked) {
        const data = { requiredCapabilities: thrown.required };
        throw new Refusal({ code: -32021, message: 'Missing required client capability', data });
      }
      if (!(thrown instanceof InputRequired)) throw thrown;
      const asked = Object.keys(thrown.questions);
      const requestState = seal({ answers, asked, digest: digestOf(params) });
      return { resultType: 'input_required', inputRequests: thrown.questions, requestState };
    }
  }

  /** Returns all answers so far: the sealed ones, and those of this round. */
  #answersOf(params: Members): Answers {
    const { requestState, inputResponses } = params;
    if (requestState === undefined) {
      if (inputResponses !== undefined) this.#ledger.violation('inputResponses without the requestState');
      return {};
    }
    const state = unseal(string(requestState));
    if (state['digest'] !== digestOf(params)) throw new Refusal({ code: -32602, message: 'Another requestState' });
    const now = Object.entries(object(inputResponses));
    const keys = now.map(([key]) => key).toSorted();
    if (!same(keys, array(state['asked']).map(string).toSorted())) {
      this.#ledger.violation(
        `inputResponses for ${keys.join()} where ${array(state['asked']).map(string).join()} was asked`,
      );
    }
    const before = Object.entries(object(state['answers']));
    return Object.fromEntries([...before, ...now].map(([key, answer]) => [key, object(answer)]));
  }

  async #listen(id: Id, filter: Members, { notify, signal }: Served): Promise<Members> {
    const uris = array(filter['resourceSubscriptions']).map(string);
    const _meta = { [META.subscription]: id };
    const send = (method: string, params: Members) => notify({ jsonrpc: '2.0', method, params: { ...params, _meta } });
    for (const key of Object.keys(filter)) {
      const known = [
        'toolsListChanged',
        'promptsListChanged',
        'resourcesListChanged',
        'resourceSubscriptions',
        'taskIds',
      ];
      if (!known.includes(key)) this.#ledger.violation(`subscriptions/listen for ${key}`);
    }
    send('notifications/subscriptions/acknowledged', { notifications: filter });
    for (const uri of uris) {
      this.#listened.set(uri, (this.#listened.get(uri) ?? 0) + 1);
      this.#ledger.note('subscribed', uri);
    }
    const unlisten = this.#world.listen((change: Change) => {
      if (change.kind === 'touched') {
        if (uris.includes(change.uri)) send('notifications/resources/updated', { uri: change.uri });
        return;
      }
      if (change.kind === 'visited') return;
      for (const list of ['tools', 'prompts', 'resources']) {
        if (filter[`${list}ListChanged`] === true) send(`notifications/${list}/list_changed`, {});
      }
    });
    await new Promise((resolve) => {
      signal.addEventListener('abort', resolve, { once: true });
      if (signal.aborted) resolve(undefined);
    });
    unlisten();
    for (const uri of uris) {
      const left = (this.#listened.get(uri) ?? 1) - 1;
      this.#listened.set(uri, left);
      if (left === 0) this.#ledger.note('unsubscribed', uri);
    }
    return { _meta };
  }

  #begin(nonce: string, isPatient: boolean): Members {
    const timer = setTimeout(() => (task.status = 'completed'), isPatient ? 60_000 : TASK_MS);
    timer.unref();
    const createdAt = new Date().toISOString();
    const task: Task = { taskId: randomUUID(), nonce, status: 'working', createdAt, timer };
    tasks.set(task.taskId, task);
    this.#ledger.note('task', nonce);
    return this.#show(task);
  }

  #show({ taskId, status, createdAt }: Task): Members {
    return { taskId, status, createdAt, lastUpdatedAt: new Date().toISOString(), ttlMs: 60_000, pollIntervalMs: 20 };
  }

  #task(method: string, params: Members, capabilities: Members): Members {
    if (object(capabilities['extensions'])[TASKS_EXTENSION] === undefined) {
      const data = { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } };
      throw new Refusal({ code: -32021, message: 'Missing required client capability', data });
    }
    const task = tasks.get(string(params['taskId']));
    if (task === undefined) throw new Refusal({ code: -32602, message: 'Unknown task' });
    if (method === 'tasks/cancel' && task.status === 'working') {
      clearTimeout(task.timer);
      task.status = 'cancelled';
    }
    if (method !== 'tasks/get') return {};
    const done = { resultType: 'complete', ...taskResult(task.nonce) };
    return { ...this.#show(task), ...(task.status === 'completed' ? { result: done } : {}) };
  }
}
