import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Ajv2020 } from 'ajv/dist/2020.js';
import { z } from 'zod';
import { LIMITS } from '../../../src/limits.ts';
import { ADMIN_PATH, ADMIN_ROUTES } from '../../../src/operator/admin/routes.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';

const SERVER = fileURLToPath(new URL('../../fixtures/servers/pid-stdio.ts', import.meta.url));
const BOUNDED = { timeout: 120_000 };
const CLIENT_KEY = 'client-key-0123456789-0123456789-0123456789';
const OPERATOR_KEY = 'operator-key-0123456789-0123456789-012345';
const SECRET = 'hunter2-hunter2';

function keyEntry(name: string, key: string): object {
  return { name, sha256: createHash('sha256').update(key).digest('hex') };
}

let gateway: RunningGateway;

before(async () => {
  const local = { command: process.execPath, args: [SERVER], excludeTools: ['secret'], env: { TOKEN: SECRET } };
  gateway = await startGateway({
    mcpServers: { local, broken: { command: '/does/not/exist' }, web: { url: `http://127.0.0.1:9/mcp?key=${SECRET}` } },
    gateway: {
      auth: { apiKeys: [keyEntry('alice', CLIENT_KEY)] },
      operatorKeys: [keyEntry('ops', OPERATOR_KEY)],
      profiles: { few: { upstreams: ['local'], includeTools: ['local__pid'] } },
      lists: { wait: '2s' },
    },
  });
});

after(async () => {
  await gateway.stop();
});

interface Asked {
  readonly method?: string;
  readonly body?: unknown;
  readonly headers?: Readonly<Record<string, string>>;
  readonly key?: string | undefined;
}

async function ask(path: string, { method = 'GET', body, headers, key = OPERATOR_KEY }: Asked = {}) {
  const response = await fetch(`${gateway.operatorUrl}${ADMIN_PATH}${path}`, {
    method,
    headers: { Authorization: `Bearer ${key}`, 'Content-Type': 'application/json', ...headers },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });
  const text = await response.text();
  const answer: unknown = JSON.parse(text);
  return { status: response.status, text, answer };
}

/** Returns an answer that must be 200, in a form that the test reads. */
async function answerOf<S extends z.ZodType>(schema: S, path: string, asked: Asked = {}): Promise<z.output<S>> {
  const { status, text, answer } = await ask(path, asked);
  assert.equal(status, 200, text);
  return schema.parse(answer);
}

async function connect(): Promise<Client> {
  const client = new Client({ name: 'admin-test', version: '7' }, { capabilities: { roots: {} } });
  const requestInit = { headers: { Authorization: `Bearer ${CLIENT_KEY}` } };
  await client.connect(new StreamableHTTPClientTransport(new URL(gateway.endpoint()), { requestInit }));
  return client;
}

const DONE = z.object({ message: z.string() });
const CALLED = z.object({
  as: z.string(),
  outcome: z.string(),
  result: z.looseObject({ content: z.array(z.looseObject({ text: z.string() })) }).optional(),
  error: z.looseObject({ message: z.string() }).optional(),
});

function callTool(tool: string, args: object = {}): Promise<z.output<typeof CALLED>> {
  return answerOf(CALLED, '/call', { method: 'POST', body: { tool, arguments: args } });
}

const DOCUMENT = z.object({
  paths: z.record(
    z.string(),
    z.record(
      z.string(),
      z.looseObject({
        responses: z.record(
          z.string(),
          z.looseObject({ content: z.record(z.string(), z.object({ schema: z.looseObject({}) })) }),
        ),
      }),
    ),
  ),
  components: z.looseObject({ schemas: z.record(z.string(), z.looseObject({})) }),
});

test('the OpenAPI document describes every operation, and every live answer matches it', BOUNDED, async () => {
  const client = await connect();
  await client.listTools();
  const response = await fetch(`${gateway.operatorUrl}${ADMIN_PATH}/openapi.json`);
  const raw: unknown = await response.json();
  const document = DOCUMENT.parse(raw);
  assert.deepEqual(
    Object.entries(document.paths)
      .flatMap(([path, operations]) => Object.keys(operations).map((one) => `${one} ${path}`))
      .toSorted(),
    ['get /log', ...ADMIN_ROUTES.map(({ method, path }) => `${method} ${path}`)].toSorted(),
  );
  const statusesOf = (path: string, method: string) => Object.keys(document.paths[path]?.[method]?.responses ?? {});
  const common = ['400', '401', '403', '404', '500'];
  assert.deepEqual(statusesOf('/status', 'get'), ['200', ...common]);
  assert.deepEqual(statusesOf('/call', 'post'), ['200', ...common.slice(0, 4), '413', '415', ...common.slice(4)]);
  assert.deepEqual(statusesOf('/log', 'get'), ['200', '401', '403', '500', '503']);
  const ajv = new Ajv2020({ strict: false, validateFormats: false });
  ajv.addSchema({ $id: 'https://linkspan.test/openapi', components: document.components });
  const bodies: Readonly<Record<string, object>> = {
    '/call': { tool: 'local__pid' },
    '/explain': { as: { key: 'alice' }, kind: 'tool', name: 'local__pid' },
    '/log-level': { level: 'info' },
    '/drain': { isDraining: false },
  };
  // A session is ended last, since others list it.
  const routes = ADMIN_ROUTES.toSorted((a, b) => Number(a.method === 'delete') - Number(b.method === 'delete'));
  for (const { method, path } of routes) {
    const sessions = await answerOf(
      z.object({ sessions: z.array(z.object({ id: z.string(), kind: z.string() })) }),
      '/sessions',
    );
    const session = sessions.sessions.find(({ kind }) => kind === 'session')?.id ?? '';
    const id = path.startsWith('/sessions') ? session : 'local';
    const body = method === 'post' || method === 'put' ? (bodies[path] ?? { drainSeconds: 1 }) : undefined;
    const { status, text, answer } = await ask(path.replace('{id}', id), { method: method.toUpperCase(), body });
    assert.ok(status === 200, `${method} ${path}: ${status} ${text}`);
    const schema =
      document.paths[path]?.[method]?.responses[String(status)]?.content['application/json']?.schema['$ref'];
    assert.ok(typeof schema === 'string', `${method} ${path}: ${status} is not in the document`);
    const validate = ajv.compile({ $ref: `https://linkspan.test/openapi${schema}` });
    assert.ok(validate(answer), `${method} ${path}: ${ajv.errorsText(validate.errors)}\n${text}`);
    assert.doesNotMatch(
      text,
      new RegExp(`${SECRET}|${OPERATOR_KEY}|${CLIENT_KEY}`),
      `${method} ${path} shows a secret`,
    );
  }
  await answerOf(DONE, '/upstreams/local/restart', { method: 'POST', body: {} });
  await client.close().catch(() => undefined);
});

// SEC-01
test('every operation needs the key of an operator; that of a client is none', BOUNDED, async () => {
  const operations = [...ADMIN_ROUTES.map(({ method, path }) => ({ method, path })), { method: 'get', path: '/log' }];
  for (const { method, path } of operations) {
    for (const [headers, key] of [
      [{}, CLIENT_KEY],
      [{ Authorization: '' }, ''],
    ] as const) {
      const { status } = await ask(path.replace('{id}', 'local'), { method: method.toUpperCase(), headers, key });
      assert.equal(status, 401, `${method} ${path} with ${key === '' ? 'no key' : 'the key of a client'}`);
    }
  }
  const metrics = await (await fetch(`${gateway.operatorUrl}/metrics`)).text();
  assert.match(metrics, /^linkspan_auth_failures_total\{reason="operator unauthorized"\} \d+$/m);
});

// SEC-17
test('requests of foreign pages and other media types are refused, also with a key', BOUNDED, async () => {
  assert.equal((await ask('/status', { headers: { Origin: 'https://evil.example' } })).status, 403);
  const form = { 'Content-Type': 'application/x-www-form-urlencoded' };
  assert.equal((await ask('/drain', { method: 'POST', body: {}, headers: form })).status, 415);
});

test('the key in the state directory is for this user alone, and opens the admin API', BOUNDED, async () => {
  const path = join(gateway.dir, 'state', 'operator.json');
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  const file = z
    .object({ token: z.string(), url: z.string(), pid: z.int() })
    .parse(JSON.parse(await readFile(path, 'utf8')));
  assert.equal(file.url, gateway.operatorUrl);
  assert.equal(file.pid, gateway.pid);
  assert.equal((await ask('/status', { key: file.token })).status, 200);
});

test('an upstream that failed has its reason and the next step in words', BOUNDED, async () => {
  const client = await connect();
  await client.listTools();
  await client.close();
  const upstream = z.looseObject({ state: z.string(), reason: z.string(), nextStep: z.string() });
  const broken = await answerOf(upstream, '/upstreams/broken');
  assert.equal(broken.state, 'failed');
  assert.match(broken.nextStep, /linkspan restart broken/);
  const { status, text } = await ask('/upstreams/nope');
  assert.equal(status, 404);
  assert.match(text, /There are: local, broken, web/);
});

test('the catalog shows the origin of each item, and why others are left out', BOUNDED, async () => {
  const client = await connect();
  await client.listTools();
  await client.close();
  const item = z.looseObject({
    kind: z.string(),
    name: z.string(),
    upstream: z.string(),
    status: z.string(),
    why: z.string().optional(),
  });
  const { items } = await answerOf(z.object({ items: z.array(item) }), '/catalog?upstream=local');
  const of = (name: string) => items.find((one) => one.name === name);
  assert.equal(of('local__pid')?.status, 'published');
  assert.equal(of('local__pid')?.['upstreamName'], 'pid');
  assert.match(of('local__secret')?.why ?? '', /excludeTools of upstream "local"/);
  assert.ok(items.some(({ status, why }) => status === 'quarantined' && why !== undefined));
  assert.ok(items.some(({ kind }) => kind === 'resource') && items.some(({ kind }) => kind === 'template'));
  const few = await answerOf(z.object({ items: z.array(item) }), '/catalog?view=few');
  assert.match(few.items.find(({ name }) => name === 'local__fail')?.why ?? '', /profile "few"/);
});

test('clients are listed with name, version and what they declare', BOUNDED, async () => {
  const client = await connect();
  const { clients } = await answerOf(z.object({ clients: z.array(z.looseObject({ name: z.string() })) }), '/clients');
  const own = clients.find(({ name }) => name === 'admin-test');
  assert.deepEqual([own?.['version'], own?.['principal'], own?.['capabilities']], ['7', 'alice', ['roots']]);
  await client.close();
});

test('a restarted upstream answers elsewhere; the session of its client stays', BOUNDED, async () => {
  const client = await connect();
  const textOf = async () => JSON.stringify((await client.callTool({ name: 'local__pid', arguments: {} })).content);
  const first = await textOf();
  assert.equal(await textOf(), first);
  const { message } = await answerOf(DONE, '/upstreams/local/restart', { method: 'POST', body: {} });
  assert.match(message, /"local" runs again/);
  assert.notEqual(await textOf(), first);
  await client.close();
});

test('a disabled upstream refuses calls with a reason until it is restarted', BOUNDED, async () => {
  await answerOf(DONE, '/upstreams/local/disable', { method: 'POST', body: { drainSeconds: 1 } });
  const refused = await callTool('local__pid');
  assert.equal(refused.outcome, 'error');
  assert.match(
    refused.error?.message ?? '',
    /an operator has disabled it at \S+; "linkspan restart local" enables it$/,
  );
  const upstream = await answerOf(z.looseObject({ isDisabled: z.boolean(), nextStep: z.string() }), '/upstreams/local');
  assert.equal(upstream.isDisabled, true);
  await answerOf(DONE, '/upstreams/local/restart', { method: 'POST', body: {} });
  assert.equal((await callTool('local__pid')).outcome, 'result');
});

test('a call names its principal, and tells the failure of a tool from a refusal', BOUNDED, async () => {
  const done = await callTool('local__pid', { a: 1 });
  assert.equal(done.as, 'operator ops');
  assert.match(done.result?.content[0]?.text ?? '', /\{"a":1\}/);
  assert.equal((await callTool('local__fail')).outcome, 'tool-error');
  assert.equal((await callTool('local__nothing')).outcome, 'error');
});

test('a call in flight is listed, and a session is ended by its digest', BOUNDED, async () => {
  const client = await connect();
  const waiting = assert.rejects(client.callTool({ name: 'local__wait', arguments: {} }));
  const CALLS = z.object({ calls: z.array(z.looseObject({ session: z.string(), tool: z.string().optional() })) });
  let session: string | undefined;
  while (session === undefined) {
    const { calls } = await answerOf(CALLS, '/calls');
    session = calls.find(({ tool }) => tool === 'local__wait')?.session;
  }
  const { text } = await ask('/sessions');
  assert.doesNotMatch(text, new RegExp(client.transport?.sessionId ?? 'no id'), 'the session id is a credential');
  await answerOf(DONE, `/sessions/${session}`, { method: 'DELETE' });
  await waiting;
  assert.equal((await ask(`/sessions/${session}`, { method: 'DELETE' })).status, 404);
});

test('the config shows the origin of each value, and no secret', BOUNDED, async () => {
  const setting = z.object({ key: z.string(), value: z.unknown(), origin: z.string(), place: z.string().optional() });
  const { settings } = await answerOf(z.object({ settings: z.array(setting) }), '/config');
  const of = (key: string) => settings.find((one) => one.key === key);
  assert.equal(of('gateway.lists.wait')?.value, '2s');
  assert.match(of('gateway.lists.wait')?.place ?? '', /config\.json:\d+:\d+$/);
  assert.deepEqual(of('gateway.sessions.idle'), { key: 'gateway.sessions.idle', value: '30m', origin: 'default' });
  assert.deepEqual(of('mcpServers.local.args')?.value, '[redacted]');
  assert.equal(of('mcpServers.local.isolation')?.origin, 'default');
});

test('/readyz asks load balancers to go elsewhere while an operator drains the gateway', BOUNDED, async () => {
  const ready = async () => (await fetch(`${gateway.operatorUrl}/readyz`)).status;
  assert.equal(await ready(), 200);
  await answerOf(DONE, '/drain', { method: 'POST', body: {} });
  assert.equal(await ready(), 503);
  await answerOf(DONE, '/drain', { method: 'POST', body: { isDraining: false } });
  assert.equal(await ready(), 200);
});

test('the level of the log changes while the gateway runs, also for its parts', BOUNDED, async () => {
  await answerOf(z.looseObject({ level: z.literal('debug') }), '/log-level', {
    method: 'PUT',
    body: { level: 'debug' },
  });
  const { status, text } = await ask('/log-level', { method: 'PUT', body: { level: 'loud' } });
  assert.equal(status, 400);
  assert.match(text, /body\.level/);
  await answerOf(z.looseObject({ level: z.literal('info') }), '/log-level', { method: 'PUT', body: { level: 'info' } });
});

test('limit adminBodyBytes: a longer body is refused', BOUNDED, async () => {
  const body = { tool: 'x', arguments: { long: 'x'.repeat(LIMITS.adminBodyBytes) } };
  assert.equal((await ask('/call', { method: 'POST', body })).status, 413);
});

test('another method and an unknown path say what there is', BOUNDED, async () => {
  const { status, text } = await ask('/upstreams', { method: 'PUT', body: {} });
  assert.equal(status, 405);
  assert.match(text, /Use GET/);
  assert.equal((await ask('/nothing')).status, 404);
});

test('off loopback, status and reasons need a key; probes and metrics do not', BOUNDED, async () => {
  const args = ['--operator', '0.0.0.0:0'];
  await using open = await startGateway(
    { mcpServers: { must: { command: '/does/not/exist', required: true } } },
    { args },
  );
  const base = `http://127.0.0.1:${new URL(open.operatorUrl).port}`;
  assert.equal((await fetch(`${base}/status`)).status, 403);
  const ready = await fetch(`${base}/readyz`);
  assert.equal(ready.status, 503);
  assert.deepEqual(await ready.json(), { ready: false });
  assert.equal((await fetch(`${base}/metrics`)).status, 200);
  assert.equal((await fetch(`${base}${ADMIN_PATH}/status`)).status, 401);
});
