import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, realpath, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { rpc } from '../downstream/client.ts';
import { PATIENT } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { MODERN, modernText, type WireOptions } from '../support/modern-wire.ts';
import { connectSdk2Over } from '../support/sdk-client.ts';
import { until } from '../support/stdio.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const KEY = 'io.modelcontextprotocol/';
const PROBE = fileURLToPath(new URL('../fixtures/servers/probe-stdio.ts', import.meta.url));

let dir = '';
let config = '';

before(async () => {
  dir = await realpath(await mkdtemp(join(tmpdir(), 'linkspan-stdio-modern-')));
  config = join(dir, 'config.json');
  const program = (mode: string) => ({ command: process.execPath, args: [PROBE, mode], env: marker() });
  const mcpServers = { new: program('modern'), old: program('refuses:-32601') };
  const gateway = { stateDir: join(dir, 'state'), logLevel: 'warn', lists: PATIENT.lists };
  await writeFile(config, JSON.stringify({ mcpServers, gateway }));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

interface Line {
  readonly id?: unknown;
  readonly method?: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly result?: Readonly<Record<string, unknown>>;
  readonly error?: { readonly code: number; readonly data?: unknown };
}

/** The program as a client starts it, with every line that it wrote. */
class Program implements AsyncDisposable {
  readonly #child = spawn(process.execPath, [MAIN, 'stdio', '--config', config], {
    stdio: ['pipe', 'pipe', 'ignore'],
    env: { ...process.env, ...marker() },
  });
  #output = '';

  constructor() {
    this.#child.stdout.setEncoding('utf8').on('data', (chunk: string) => (this.#output += chunk));
  }

  get lines(): readonly Line[] {
    const whole = this.#output.slice(0, this.#output.lastIndexOf('\n') + 1);
    return whole
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line));
  }

  send(text: string): void {
    this.#child.stdin.write(`${text}\n`);
  }

  async answer(id: unknown): Promise<Line> {
    const found = () => this.lines.find((line) => line.id === id && line.method === undefined);
    await until(() => found() !== undefined, `${String(id)} is answered`);
    return found() ?? assert.fail();
  }

  ask(method: string, params?: Readonly<Record<string, unknown>>, options: WireOptions = {}): Promise<Line> {
    this.send(modernText(method, params, options));
    return this.answer(options.id ?? 1);
  }

  async end(): Promise<void> {
    if (this.#child.exitCode !== null) return;
    this.#child.stdin.end();
    await once(this.#child, 'exit');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.end();
  }
}

const call = (tool: string) => ({ name: `new__${tool}`, arguments: {} });

// T-002 T-008 L-001
test('a modern client is served from its first line without initialize', TIMEOUT, async () => {
  await using program = new Program();
  const { result } = await program.ask('server/discover', {}, { id: 'd', meta: { [`${KEY}clientInfo`]: undefined } });
  assert.deepEqual(result?.['supportedVersions'], [MODERN]);
  assert.equal(result['resultType'], 'complete');
  assert.ok('capabilities' in result && 'ttlMs' in result && 'cacheScope' in result);
  const listed = await program.ask('tools/list', {}, { id: 'l' });
  assert.match(JSON.stringify(listed.result), /new__received/);
  const called = await program.ask('tools/call', call('received'), { id: 'c' });
  assert.equal(called.result?.['resultType'], 'complete');
});

// T-002
test('clients of both eras on one connection each get their own answers', TIMEOUT, async () => {
  await using program = new Program();
  const clientInfo = { name: 'old', version: '1' };
  program.send(rpc(0, 'initialize', { protocolVersion: '2025-06-18', capabilities: {}, clientInfo }));
  program.send('{"jsonrpc":"2.0","method":"notifications/initialized"}');
  program.send(rpc('old', 'tools/list'));
  program.send(modernText('tools/list', {}, { id: 'modern' }));
  assert.equal((await program.answer(0)).result?.['protocolVersion'], '2025-06-18');
  assert.equal('resultType' in ((await program.answer('old')).result ?? {}), false);
  assert.equal((await program.answer('modern')).result?.['resultType'], 'complete');
  program.send(rpc('p', 'ping'));
  assert.deepEqual((await program.answer('p')).result, {});
});

// T-005 T-007 T-013
test('an invalid modern message gets the same error as over HTTP', TIMEOUT, async () => {
  await using program = new Program();
  const cases: readonly (readonly [string, WireOptions, number])[] = [
    ['tools/list', { meta: { [`${KEY}protocolVersion`]: '2099-01-01' } }, -32_022],
    ['tools/list', { meta: { [`${KEY}clientCapabilities`]: undefined } }, -32_602],
    ['tools/list', { meta: { [`${KEY}logLevel`]: 'loud' } }, -32_602],
    ['initialize', {}, -32_601],
    ['ping', {}, -32_601],
    ['logging/setLevel', {}, -32_601],
    ['no/such/method', {}, -32_601],
    ['tools/call', {}, -32_602],
  ];
  for (const [i, [method, options, code]] of cases.entries()) {
    const { error } = await program.ask(method, {}, { ...options, id: i + 1 });
    assert.equal(error?.code, code, `${method} ${JSON.stringify(error)}`);
    if (code === -32_022)
      assert.match(JSON.stringify(error.data), /"supported":\["2026-07-28"\],"requested":"2099-01-01"/);
  }
});

// L-014
test('an id that is in flight, or a missing one, is refused', TIMEOUT, async () => {
  await using program = new Program();
  await program.ask('tools/list', {}, { id: 'l' });
  program.send(modernText('tools/call', call('waits'), { id: 7 }));
  assert.equal((await program.ask('tools/list', {}, { id: 7 })).error?.code, -32_600);
  program.send(modernText('tools/list').replace('"id":1', '"id":null'));
  await until(() => program.lines.some(({ id, error }) => id === null && error?.code === -32_600), 'null is refused');
});

// T-020 T-021
test('a cancelled request is cancelled at the upstream and gets no message', TIMEOUT, async () => {
  await using program = new Program();
  await program.ask('tools/list', {}, { id: 'l' });
  program.send(modernText('tools/call', call('waits'), { id: 'w' }));
  const received = async (id: string) =>
    JSON.stringify((await program.ask('tools/call', call('received'), { id })).result);
  assert.doesNotMatch(await received('h1'), /cancelled/);
  program.send('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"w"}}');
  // Messages of the connection itself may come between.
  assert.match(await received('h2'), /notifications\/cancelled/);
  await program.end();
  assert.ok(!program.lines.some(({ id }) => id === 'w'));
});

// X-032 X-036
test('listen requests share the connection by their ids, and are answered', TIMEOUT, async () => {
  await using program = new Program();
  for (const id of [5, '5']) {
    program.send(modernText('subscriptions/listen', { notifications: { toolsListChanged: true } }, { id }));
  }
  const acknowledged = () =>
    program.lines.filter(({ method }) => method === 'notifications/subscriptions/acknowledged');
  await until(() => acknowledged().length === 2, 'both are acknowledged');
  const ids = acknowledged().map(({ params }) => JSON.stringify(params?.['_meta']));
  assert.deepEqual(ids.toSorted(), [`{"${KEY}subscriptionId":"5"}`, `{"${KEY}subscriptionId":5}`]);
  await program.end();
  for (const id of [5, '5']) {
    const answered = program.lines.findIndex((line) => line.id === id);
    assert.match(JSON.stringify(program.lines[answered]?.result), new RegExp(`subscriptionId":${JSON.stringify(id)}`));
    const { method, params } = program.lines[answered + 1] ?? {};
    assert.deepEqual([method, params], ['notifications/cancelled', { requestId: id }]);
  }
});

//
test('an SDK client is told that its subscription has ended on purpose', TIMEOUT, async () => {
  const args = [MAIN, 'stdio', '--config', config];
  const transport = new StdioClientTransport({ command: process.execPath, args, env: marker(), stderr: 'ignore' });
  await using connected = await connectSdk2Over(transport, {}, { pin: MODERN });
  const subscription = await connected.client.listen({ toolsListChanged: true });
  process.kill(transport.pid ?? assert.fail(), 'SIGTERM');
  assert.equal(await subscription.closed, 'graceful');
});

// T-019 T-042
test('a modern client gets no requests, and its stray responses no answer', TIMEOUT, async () => {
  await using program = new Program();
  await program.ask('tools/list', {}, { id: 'l' });
  const capabilities = { sampling: {}, elicitation: {}, roots: {} };
  await program.ask('tools/call', call('asks'), { id: 'a', capabilities });
  program.send('{"jsonrpc":"2.0","id":"x","result":{}}');
  program.send('{"jsonrpc":"2.0","method":"notifications/whatever"}');
  await program.ask('tools/list', {}, { id: 'end' });
  assert.deepEqual(
    program.lines.filter(({ id, method }) => id !== undefined && method !== undefined),
    [],
  );
  assert.deepEqual(
    program.lines.map(({ id }) => id),
    ['l', 'a', 'end'],
  );
});
