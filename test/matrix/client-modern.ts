/** A client of 2026-07-28: its requests are independent, and are sent again with answers if the server needs input. */
import {
  type Call,
  type CallOptions,
  type Client,
  type Disconnect,
  Notifications,
  type Received,
  type Reply,
} from './client.ts';
import { type Address, inTime } from './client-legacy.ts';
import { HttpWire, StdioWire, type Wire } from './client-wire.ts';
import { array, idOf, isMembers, object, same, string, type Id, type Members, type Message } from './json.ts';
import { clientCapabilities } from './offering.ts';
import { errorProblems, messageProblems, resultProblems } from './strict.ts';
import { NAME_PARAMS, META, MODERN } from './words.ts';

interface Pending {
  readonly method: string;
  readonly options: CallOptions;
  readonly received: Received[];
  readonly answered: PromiseWithResolvers<Message>;
  /** The filter of a `subscriptions/listen`. */
  readonly filter: Members | undefined;
  isCancelled: boolean;
}

const MAX_ROUNDS = 6;
const ASKING = new Set(['tools/call', 'prompts/get', 'resources/read']);
const LIST_FILTER: Readonly<Record<string, string>> = {
  'notifications/tools/list_changed': 'toolsListChanged',
  'notifications/prompts/list_changed': 'promptsListChanged',
  'notifications/resources/list_changed': 'resourcesListChanged',
};

function headerText(value: string): string {
  const isPlain = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/.test(value) && !value.startsWith('=?base64?');
  return isPlain ? value : `=?base64?${Buffer.from(value).toString('base64')}?=`;
}

export class ModernClient implements Client {
  readonly revision = MODERN;
  readonly notifications = new Notifications();
  readonly violations: string[] = [];
  capabilities: Members = {};
  instructions: string | undefined;
  disconnectMeans: Disconnect = 'the call is cancelled';
  readonly #pending = new Map<Id, Pending>();
  /** The header of each argument, by tool. */
  readonly #mirrored = new Map<string, ReadonlyMap<string, string>>();
  #wire: Wire | undefined;
  #isStdio = false;
  #lastId = 0;

  static async connect(address: Address): Promise<ModernClient> {
    const client = new ModernClient();
    const received = (message: Message, on: Id | null | undefined) => client.#received(message, on);
    if (address.kind === 'stdio') {
      client.#isStdio = true;
      client.disconnectMeans = 'the session ends';
      client.#wire = new StdioWire(address.args, received);
    } else {
      client.#wire = new HttpWire({
        url: address.url,
        received,
        headers: (message) => client.#headers(message ?? {}),
        answered: (headers) => {
          if (headers['mcp-session-id'] !== undefined) client.violations.push('Mcp-Session-Id in 2026-07-28');
        },
        primed: () => client.violations.push('an event without data'),
      });
    }
    const { result, error } = await client.call('server/discover', {}).reply;
    if (result === undefined) throw new Error(`server/discover: ${JSON.stringify(error)}`);
    if (!array(result['supportedVersions']).includes(MODERN)) {
      throw new Error(`server/discover: supports ${JSON.stringify(result['supportedVersions'])}`);
    }
    client.capabilities = object(result['capabilities']);
    if (client.capabilities['tasks'] !== undefined) client.violations.push('the capability "tasks" in 2026-07-28');
    const { instructions } = result;
    client.instructions = typeof instructions === 'string' ? instructions : undefined;
    const listed = await client.call('tools/list', {}).reply;
    for (const tool of array(listed.result?.['tools'])) client.#mirror(object(tool));
    return client;
  }

  #mirror({ name, inputSchema }: Members): void {
    const headers = Object.entries(object(object(inputSchema)['properties'])).flatMap(
      ([argument, property]): [string, string][] => {
        const header = object(property)['x-mcp-header'];
        return typeof header === 'string' ? [[argument, header]] : [];
      },
    );
    this.#mirrored.set(string(name), new Map(headers));
  }

  #headers(message: Message): Readonly<Record<string, string>> {
    const method = string(message['method']);
    const params = object(message['params']);
    const headers: Record<string, string> = { 'mcp-protocol-version': MODERN, 'mcp-method': method };
    const name = NAME_PARAMS[method];
    if (name !== undefined) headers['mcp-name'] = headerText(string(params[name]));
    const mirrored = method === 'tools/call' ? this.#mirrored.get(string(params['name'])) : undefined;
    for (const [argument, header] of mirrored ?? []) {
      const value = object(params['arguments'])[argument];
      if (typeof value === 'string') headers[`mcp-param-${header}`] = headerText(value);
    }
    return headers;
  }

  call(method: string, params: Members, options: CallOptions = {}): Call {
    let current: Id | undefined;
    const received: Received[] = [];
    const call: Call = {
      reply: inTime(
        this.#rounds(method, params, options, received, (id) => {
          current = id;
        }),
        method,
      ),
      received,
      cancel: () => current !== undefined && this.#cancel(current),
      disconnect: () => current !== undefined && this.#wire?.drop(current),
    };
    call.reply.catch(() => undefined);
    return call;
  }

  async #rounds(
    method: string,
    params: Members,
    options: CallOptions,
    received: Received[],
    began: (id: Id) => void,
  ): Promise<Reply> {
    let more: Members = {};
    for (let round = 1; round <= MAX_ROUNDS; round++) {
      const { id, answered } = this.#send(method, { ...params, ...more }, options, received);
      began(id);
      const { result, error } = await answered;
      if (!isMembers(result)) {
        this.violations.push(...errorProblems(MODERN, object(error)['code']));
        return { result: undefined, error: object(error), received };
      }
      if (result['resultType'] === 'task') return { result, error: undefined, received };
      if (result['resultType'] !== 'input_required') {
        const shape = method.startsWith('tasks/') ? '' : method;
        this.violations.push(...resultProblems(MODERN, shape, result));
        return { result, error: undefined, received };
      }
      if (!ASKING.has(method)) this.violations.push(`input_required for ${method}`);
      more = this.#answers(result, options);
    }
    throw new Error(`still input_required after ${MAX_ROUNDS} rounds`);
  }

  #answers({ inputRequests, requestState }: Members, { asked }: CallOptions): Members {
    const inputResponses = Object.entries(object(inputRequests)).map(([key, request]): [string, Members] => {
      const { method, params } = object(request);
      this.violations.push(...messageProblems(MODERN, string(method), params));
      if (asked === undefined) this.violations.push(`asked ${string(method)} when nobody can be`);
      return [key, asked?.(string(method), object(params)) ?? {}];
    });
    if (requestState === undefined && inputResponses.length === 0) this.violations.push('input_required for nothing');
    return {
      ...(inputResponses.length === 0 ? {} : { inputResponses: Object.fromEntries(inputResponses) }),
      ...(requestState === undefined ? {} : { requestState }),
    };
  }

  #send(
    method: string,
    params: Members,
    options: CallOptions,
    received: Received[],
  ): { readonly id: Id; readonly answered: Promise<Message> } {
    const number = ++this.#lastId;
    const id: Id = number % 2 === 0 ? `id-${number}` : number;
    const pending: Pending = {
      method,
      options,
      received,
      answered: Promise.withResolvers<Message>(),
      filter: method === 'subscriptions/listen' ? object(params['notifications']) : undefined,
      isCancelled: false,
    };
    this.#pending.set(id, pending);
    pending.answered.promise.catch(() => undefined);
    const { progressToken, logLevel } = options;
    const _meta = {
      [META.revision]: MODERN,
      [META.capabilities]: clientCapabilities(MODERN),
      [META.clientInfo]: { name: 'matrix', version: MODERN },
      ...(progressToken === undefined ? {} : { progressToken }),
      ...(logLevel === undefined ? {} : { [META.logLevel]: logLevel }),
    };
    const message = { jsonrpc: '2.0', id, method, params: { ...params, _meta } };
    this.#wire?.send(message).catch((thrown: unknown) => {
      if (!pending.isCancelled) pending.answered.reject(thrown);
    });
    return { id, answered: pending.answered.promise };
  }

  #cancel(id: Id): void {
    const pending = this.#pending.get(id);
    if (pending !== undefined) {
      pending.isCancelled = true;
      pending.answered.reject(new Error('cancelled'));
    }
    if (this.#isStdio) {
      const cancelled = { jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: id } };
      void this.#wire?.send(cancelled);
    } else this.#wire?.drop(id);
  }

  resume(): void {
    throw new Error('nothing to come back for: 2026-07-28 has no resumption');
  }

  async watch(uris: readonly string[]): Promise<{ end(): Promise<void> }> {
    const filter = {
      toolsListChanged: true,
      promptsListChanged: true,
      resourcesListChanged: true,
      ...(uris.length === 0 ? {} : { resourceSubscriptions: uris }),
    };
    const since = this.notifications.received.length;
    const { id, answered } = this.#send('subscriptions/listen', { notifications: filter }, {}, []);
    answered.catch(() => undefined);
    const acknowledged = this.notifications.wait(
      'notifications/subscriptions/acknowledged',
      (params) => same(object(params['_meta'])[META.subscription], id),
      since,
    );
    const refused = answered.then((message) => {
      throw new Error(`subscriptions/listen: ${JSON.stringify(message['error'] ?? message['result'])}`);
    });
    const { notifications } = await Promise.race([acknowledged, refused]);
    if (!same(object(notifications)['resourceSubscriptions'] ?? [], [...uris])) {
      throw new Error(`subscriptions/listen: acknowledged ${JSON.stringify(notifications)}`);
    }
    return {
      end: () => {
        this.#cancel(id);
        return Promise.resolve();
      },
    };
  }

  rootsChanged(): Promise<boolean> {
    return Promise.resolve(false);
  }

  async close(): Promise<void> {
    await this.#wire?.close();
  }

  #received(message: Message, on: Id | null | undefined): void {
    const { method } = message;
    const id = idOf(message);
    if (message['jsonrpc'] !== '2.0') this.violations.push(`not JSON-RPC: ${JSON.stringify(message).slice(0, 200)}`);
    if (typeof method === 'string') {
      if (id === undefined) this.#noted(method, message, on);
      else this.violations.push(`a request of the server: ${method}`);
      return;
    }
    const pending = id === undefined ? undefined : this.#pending.get(id);
    if (id === undefined || pending === undefined) {
      this.violations.push(`an answer to a request that is not there: ${String(id)}`);
      return;
    }
    this.#pending.delete(id);
    if (on !== undefined && on !== id) this.violations.push(`the answer to ${id} came on the stream of ${on ?? 'GET'}`);
    if (pending.isCancelled && pending.filter === undefined && message['error'] === undefined) {
      this.violations.push(`a result of ${pending.method}, which was cancelled`);
    }
    pending.answered.resolve(message);
  }

  #noted(method: string, message: Message, on: Id | null | undefined): void {
    const params = object(message['params']);
    this.violations.push(...messageProblems(MODERN, method, params));
    const subscription = object(params['_meta'])[META.subscription];
    const received = { method, params };
    if (method === 'notifications/progress') {
      const whose = [...this.#pending].find(([, { options }]) => same(options.progressToken, params['progressToken']));
      if (whose === undefined || (on !== undefined && on !== whose[0])) {
        this.violations.push(`progress for ${JSON.stringify(params['progressToken'])} where it does not belong`);
      } else whose[1].received.push(received);
      return;
    }
    if (method === 'notifications/message') {
      const whose =
        on === undefined || on === null
          ? [...this.#pending.values()].find(({ options }) => options.logLevel !== undefined)
          : this.#pending.get(on);
      if (whose?.options.logLevel === undefined) this.violations.push('a log message for a request that wants none');
      whose?.received.push(received);
      return;
    }
    this.#listened(received, subscription, on);
    this.notifications.received.push(received);
  }

  #listened({ method }: Received, subscription: unknown, on: Id | null | undefined): void {
    const [id, pending] = [...this.#pending].find(([id]) => same(id, subscription)) ?? [];
    if (pending?.filter === undefined || (on !== undefined && on !== id)) {
      if (pending?.isCancelled !== true) this.violations.push(`${method} of no subscription of ours`);
      return;
    }
    const wanted = LIST_FILTER[method];
    if (wanted !== undefined && pending.filter[wanted] !== true) this.violations.push(`${method}, not asked for`);
  }
}
