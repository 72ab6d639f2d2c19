/** One driver per feature: uses it, compares the received content with the upstream's, and returns the outcome. */
import { randomBytes } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { PATIENCE_MS } from '../support/patience.ts';
import type { Asked, Call, CallOptions, Client, Reply } from './client.ts';
import { array, isMembers, object, string, tryParse, without, type Members } from './json.ts';
import type { Ledger } from './ledger.ts';
import {
  completed,
  failedResult,
  LOGGED,
  logged,
  noteContents,
  progress,
  PROGRESS_STEPS,
  refusalError,
  staticContents,
  textResult,
} from './offering.ts';
import { HOW, LOSSLESS, NOT_DEFINED, degraded, mustEqual, type Outcome } from './outcome.ts';
import { META, MODERN, type Feature, type Revision } from './words.ts';

/** The surroundings of one feature. */
export interface Scene {
  readonly client: Client;
  /** The revision of the upstream. */
  readonly upstream: Revision;
  readonly ledger: Ledger;
  /** Connects another client of the same kind. */
  connect(): Promise<Client>;
}

export type Driver = (scene: Scene) => Promise<Outcome>;

const POLL_MS = 5;
const TASK_POLL_MS = 20;

export function newNonce(): string {
  return randomBytes(6).toString('hex');
}

/** Returns the result without the members of the revision's envelope. @throws {Error} if it is an error. */
function resultOf({ result, error }: Reply, what: string): Members {
  if (result === undefined) throw new Error(`${what}: ${JSON.stringify(error)}`);
  const bare = without(result, 'resultType', 'ttlMs', 'cacheScope');
  const meta = without(object(bare['_meta']), META.serverInfo);
  return Object.keys(meta).length === 0 ? without(bare, '_meta') : { ...bare, _meta: meta };
}

function callTool({ client }: Scene, name: string, args: Members, options?: CallOptions): Call {
  return client.call('tools/call', { name, arguments: args }, options);
}

export async function toolResult(scene: Scene, name: string, args: Members, options?: CallOptions): Promise<Members> {
  return resultOf(await callTool(scene, name, args, options).reply, name);
}

/** Returns all pages of a list. */
export async function listAll({ client }: Scene, method: string, member: string): Promise<readonly Members[]> {
  const items: Members[] = [];
  let more: Members = {};
  do {
    const result = resultOf(await client.call(method, more).reply, method);
    items.push(...array(result[member]).map(object));
    more = result['nextCursor'] === undefined ? {} : { cursor: result['nextCursor'] };
  } while (more['cursor'] !== undefined);
  return items;
}

export async function isOffered(scene: Scene, tool: string): Promise<boolean> {
  return (await listAll(scene, 'tools/list', 'tools')).some(({ name }) => name === tool);
}

/** Returns the parsed only text of a tool result. */
export function toolAnswer(result: Members): Members {
  const value = tryParse(string(object(array(result['content'])[0])['text']));
  if (!isMembers(value)) throw new Error(`the tool said ${JSON.stringify(result)}`);
  return value;
}

async function toolError(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  mustEqual(failedResult(nonce), await toolResult(scene, 'fails', { nonce }), 'result');
  return LOSSLESS;
}

async function protocolError(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const { error } = await callTool(scene, 'refuses', { nonce }).reply;
  mustEqual(refusalError(nonce), error, 'error');
  const uri = `test://note/missing-${nonce}`;
  const missing = await scene.client.call('resources/read', { uri }).reply;
  const expected = { code: scene.client.revision === MODERN ? -32602 : -32002, uri };
  const { code, data } = object(missing.error);
  mustEqual(expected, { code, uri: object(data)['uri'] }, 'error for a resource that is not there');
  return LOSSLESS;
}

async function progresses(scene: Scene): Promise<Outcome> {
  for (const progressToken of [7, `token-${newNonce()}`]) {
    const nonce = newNonce();
    const reply = await callTool(scene, 'progresses', { nonce }, { progressToken }).reply;
    mustEqual(textResult(`progressed: ${nonce}`), resultOf(reply, 'progresses'), 'result');
    const steps = Array.from({ length: PROGRESS_STEPS }, (_, i) => i + 1);
    const expected = steps.map((step) => ({ progressToken, ...progress(scene.upstream, nonce, step) }));
    const received = reply.received.filter(({ method }) => method === 'notifications/progress');
    mustEqual(
      expected,
      received.map(({ params }) => params),
      'progress',
    );
  }
  return LOSSLESS;
}

async function cancel(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const call = callTool(scene, 'waits', { nonce });
  await scene.ledger.wait(['started'], nonce);
  call.cancel();
  await scene.ledger.wait(['cancelled'], nonce);
  return LOSSLESS;
}

/** @throws {Error} if no message about the call arrives in time. */
async function waitForProgress(call: Call): Promise<void> {
  const deadline = performance.now() + PATIENCE_MS;
  while (call.received.length === 0) {
    if (performance.now() > deadline) throw new Error('no progress was received before the connection was to break');
    await delay(POLL_MS);
  }
}

/** The client's revision defines the effect of a broken connection. */
async function disconnect(scene: Scene): Promise<Outcome> {
  const client = await scene.connect();
  try {
    const own = { ...scene, client };
    const nonce = newNonce();
    const call = callTool(own, 'waits', { nonce }, { progressToken: nonce });
    await scene.ledger.wait(['started'], nonce);
    if (client.disconnectMeans !== 'the call goes on') {
      call.disconnect();
      await scene.ledger.wait(['cancelled'], nonce);
      return LOSSLESS;
    }
    // A stream cannot be resumed before its first event.
    await waitForProgress(call);
    call.disconnect();
    mustEqual(textResult('released'), await toolResult(own, 'release', { nonce }), 'result of release');
    await scene.ledger.wait(['released'], nonce);
    client.resume(call);
    mustEqual(textResult(`released: ${nonce}`), resultOf(await call.reply, 'waits'), 'result');
    return LOSSLESS;
  } finally {
    scene.client.violations.push(...client.violations);
    await client.close();
  }
}

async function log(scene: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const reply = await callTool(scene, 'logs', { nonce }, { logLevel: 'warning' }).reply;
  mustEqual(textResult(`logged: ${nonce}`), resultOf(reply, 'logs'), 'result');
  const received = reply.received.filter(({ method }) => method === 'notifications/message');
  const wanted = LOGGED.filter((level) => level === 'warning' || level === 'error');
  mustEqual(
    wanted.map((level) => logged(level, nonce)),
    received.map(({ params }) => params),
    'log',
  );
  if (scene.client.revision === MODERN) {
    // The client did not ask for log messages, so that it records each of them as a violation.
    await toolResult(scene, 'logs', { nonce });
  }
  return LOSSLESS;
}

async function completion({ client, upstream }: Scene): Promise<Outcome> {
  const hows: string[] = [];
  for (const ref of [
    { type: 'ref/prompt', name: 'greet' },
    { type: 'ref/resource', uri: 'test://note/{id}' },
  ]) {
    const argument = { name: 'who', value: newNonce() };
    const context = client.revision >= '2025-06-18' ? { arguments: { tone: 'warm' } } : undefined;
    const params = { ref, argument, ...(context === undefined ? {} : { context }) };
    const result = resultOf(await client.call('completion/complete', params).reply, 'completion/complete');
    const isCarried = upstream >= '2025-06-18';
    mustEqual({ completion: completed(argument, ref, isCarried ? context : undefined) }, result, 'result');
    if (context !== undefined && !isCarried) hows.push(HOW.noContext);
  }
  return degraded(...hows);
}

async function resourceRead({ client, upstream }: Scene): Promise<Outcome> {
  const reply = await client.call('resources/read', { uri: 'test://static/text' }).reply;
  mustEqual({ contents: staticContents(upstream) }, resultOf(reply, 'resources/read'), 'result');
  return LOSSLESS;
}

async function template({ client }: Scene): Promise<Outcome> {
  const nonce = newNonce();
  const uri = `test://note/${nonce}`;
  const read = resultOf(await client.call('resources/read', { uri }).reply, uri);
  mustEqual({ contents: noteContents(uri) }, read, 'result');
  const params = { name: 'greet', arguments: { who: nonce, tone: 'dry' } };
  const prompt = resultOf(await client.call('prompts/get', params).reply, 'prompts/get');
  const content = { type: 'text', text: `Greet ${nonce} dry` };
  mustEqual({ description: 'A greeting', messages: [{ role: 'user', content }] }, prompt, 'prompt');
  return LOSSLESS;
}

async function subscribe(scene: Scene): Promise<Outcome> {
  const { client, ledger } = scene;
  const nonce = newNonce();
  const uri = `test://note/${nonce}`;
  const watching = await client.watch([uri]);
  await ledger.wait(['subscribed'], uri);
  await toolResult(scene, 'touch', { nonce });
  await client.notifications.wait('notifications/resources/updated', (params) => params['uri'] === uri);
  await watching.end();
  await ledger.wait(['unsubscribed'], uri);
  return LOSSLESS;
}

const LISTS = ['tools', 'prompts', 'resources'] as const;

/** Lists after each announced change, because the first lists of an upstream may be announced in between. */
async function listUntil(
  scene: Scene,
  list: (typeof LISTS)[number],
  nonce: string,
  isThere: boolean,
  before: number,
): Promise<void> {
  const { notifications } = scene.client;
  const grown = list === 'resources' ? `test://grown/${nonce}` : `grown_${nonce}`;
  for (let since = before; ;) {
    await notifications.wait(`notifications/${list}/list_changed`, () => true, since);
    since = notifications.received.length;
    const items = await listAll(scene, `${list}/list`, list);
    if (items.some((item) => item[list === 'resources' ? 'uri' : 'name'] === grown) === isThere) return;
  }
}

async function listChanged(scene: Scene): Promise<Outcome> {
  const { client } = scene;
  const nonce = newNonce();
  const watching = await client.watch([]);
  for (const [tool, isThere] of [
    ['grow', true],
    ['shrink', false],
  ] as const) {
    const before = client.notifications.received.length;
    await toolResult(scene, tool, { nonce });
    for (const list of LISTS) await listUntil(scene, list, nonce, isThere, before);
  }
  await watching.end();
  return LOSSLESS;
}

async function tasks(scene: Scene): Promise<Outcome> {
  const { client } = scene;
  if (!(await isOffered(scene, 'task')))
    return client.revision >= '2025-11-25' ? degraded(HOW.upstreamCannot) : NOT_DEFINED;
  const nonce = newNonce();
  const done = textResult(`task done: ${nonce}`);
  if (
    client.revision === '2025-11-25' &&
    isMembers(object(object(client.capabilities['tasks'])['requests'])['tools'])
  ) {
    return await coreTasks(scene, nonce, done);
  }
  const { result, error } = await callTool(scene, 'task', { nonce }).reply;
  if (result?.['resultType'] === 'task') return await extensionTasks(scene, result, done);
  mustEqual(done, resultOf({ result, error, received: [] }, 'task'), 'result');
  return degraded(HOW.held);
}

async function pollTask(client: Client, taskId: string): Promise<Members> {
  for (let time = 0; time < 200; time++) {
    const { result, error } = await client.call('tasks/get', { taskId }).reply;
    if (result === undefined) throw new Error(`tasks/get: ${JSON.stringify(error)}`);
    if (result['taskId'] !== taskId) throw new Error(`tasks/get tells of ${string(result['taskId'])}`);
    if (result['status'] !== 'working') return result;
    await delay(TASK_POLL_MS);
  }
  throw new Error('the task never ended');
}

async function coreTasks({ client }: Scene, nonce: string, done: Members): Promise<Outcome> {
  const create = async (args: Members): Promise<string> => {
    const params = { name: 'task', arguments: args, task: { ttl: 60_000 } };
    const { result, error } = await client.call('tools/call', params).reply;
    const taskId = object(result?.['task'])['taskId'];
    if (typeof taskId !== 'string') throw new Error(`no task was made: ${JSON.stringify(result ?? error)}`);
    return taskId;
  };
  const taskId = await create({ nonce });
  mustEqual('completed', (await pollTask(client, taskId))['status'], 'status');
  const result = resultOf(await client.call('tasks/result', { taskId }).reply, 'tasks/result');
  mustEqual({ ...done, _meta: { [META.task]: { taskId } } }, result, 'tasks/result');
  const list = resultOf(await client.call('tasks/list', {}).reply, 'tasks/list');
  const isListed = array(list['tasks']).some((task) => object(task)['taskId'] === taskId);
  mustEqual(true, isListed, 'in tasks/list');
  const other = await create({ nonce, patient: true });
  const cancelled = resultOf(await client.call('tasks/cancel', { taskId: other }).reply, 'tasks/cancel');
  mustEqual('cancelled', cancelled['status'], 'status of tasks/cancel');
  mustEqual('cancelled', (await pollTask(client, other))['status'], 'status');
  return LOSSLESS;
}

async function extensionTasks(scene: Scene, created: Members, done: Members): Promise<Outcome> {
  const { client } = scene;
  const ended = await pollTask(client, string(created['taskId']));
  mustEqual('completed', ended['status'], 'status');
  const result = resultOf({ result: object(ended['result']), error: undefined, received: [] }, 'result');
  mustEqual(done, without(result, '_meta'), 'result of the task');
  const other = await callTool(scene, 'task', { nonce: newNonce(), patient: true }).reply;
  const taskId = string(other.result?.['taskId']);
  resultOf(await client.call('tasks/cancel', { taskId }).reply, 'tasks/cancel');
  mustEqual('cancelled', (await pollTask(client, taskId))['status'], 'status');
  return LOSSLESS;
}

/** Returns a responder that answers questions with these answers, and records the questions. */
export function listening(answers: (method: string) => Members): { readonly asked: Members[]; readonly listen: Asked } {
  const asked: Members[] = [];
  return {
    asked,
    listen: (method, params) => {
      asked.push({ method, params });
      return answers(method);
    },
  };
}

export const PLAIN_DRIVERS: Partial<Record<Feature, Driver>> = {
  'tool error': toolError,
  'protocol error': protocolError,
  progress: progresses,
  cancel,
  disconnect,
  log,
  completion,
  'resource read': resourceRead,
  template,
  'subscribe/update': subscribe,
  list_changed: listChanged,
  tasks,
};
