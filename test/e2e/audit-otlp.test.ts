import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { send } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { runCli } from '../support/cli.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { auditLinesOf, type LogReceiver, startLogReceiver } from '../support/log-receiver.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { MAIN } from '../support/program.ts';
import { waitUntil } from '../support/wait-until.ts';
import { workersOf } from '../support/workers.ts';

const TIMEOUT = { timeout: 180_000 };
const CLI_MS = 60_000;
const COUNT = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/count-stdio.ts')] };
const STOP_MS = 60_000;
/** With so many calls, both workers get some. */
const MANY = 24;
const TOKEN = 'canary-31c07e';

async function folder(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  await writeFile(join(dir, 'token'), `${TOKEN}\n`);
  return dir;
}

function start(dir: string, receiver: LogReceiver, required: boolean, own: object = {}): Promise<RunningGateway> {
  const headers = { Authorization: `Bearer \${file:${join(dir, 'token')}}` };
  const audit = { otlp: { endpoint: receiver.url, headers }, required };
  return startGateway({ mcpServers: { count: COUNT }, gateway: { audit, ...own } }, { dir, timeoutMs: 60_000 });
}

async function call(gateway: RunningGateway) {
  return answerOf(await modernPost(gateway.endpoint(), 'tools/call', { name: 'count__add', arguments: {} }));
}

async function verify(gateway: RunningGateway, dir: string, lines: readonly string[]) {
  const file = join(dir, 'received.log');
  await writeFile(file, lines.map((line) => `${line}\n`).join(''));
  const head = join(dir, 'state', 'audit-otlp.head');
  const args = ['audit', 'verify', file, '--config', gateway.configFile, '--head', head];
  return runCli(args, dir, process.env, CLI_MS);
}

// SEC-44
test('records go to a receiver of OTLP logs, and are verified from there', TIMEOUT, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  {
    await using gateway = await start(dir, receiver, true);
    assert.match(JSON.stringify((await call(gateway)).result), /1 of/);
    assert.ok(receiver.logs.some(({ eventName }) => eventName === 'linkspan.audit.begun'));
    await waitUntil(() =>
      receiver.logs.some(({ body }) => body.includes('"tools/call"') && body.includes('"outcome"')),
    );
    gateway.kill('SIGKILL');
    await gateway.ended;
  }
  await using gateway = await start(dir, receiver, true);
  assert.match(JSON.stringify((await call(gateway)).result), /1 of/);
  await gateway.stop();
  assert.ok(receiver.requests.every(({ headers }) => headers.authorization === `Bearer ${TOKEN}`));
  assert.ok(!gateway.logs().includes(TOKEN));
  assert.equal(receiver.logs[0]?.resource['service.name'], 'linkspan');
  const lines = auditLinesOf(receiver.logs);
  assert.ok(
    lines.some((line) => line.includes('"kind":"stopped"')),
    'the end is sent before the process ends',
  );
  const good = await verify(gateway, dir, lines);
  assert.deepEqual([good.code, good.stderr], [0, '']);
  assert.match(good.stdout, /2 starts/);
  const at = lines.findIndex((line) => line.includes('count__add'));
  for (const wrong of [
    lines.toSpliced(at, 1),
    lines.slice(0, -1),
    lines.with(at, lines[at]?.replace('count__add', 'count__get') ?? ''),
  ]) {
    assert.equal((await verify(gateway, dir, wrong)).code, 1);
  }
});

// SEC-44
test('two workers have one log at a receiver of OTLP logs', TIMEOUT, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  await using gateway = await start(dir, receiver, true, { workers: 2 });
  const many = async () => {
    const answers = await Promise.all(Array.from({ length: MANY }, () => call(gateway)));
    for (const { result } of answers) assert.match(JSON.stringify(result), /\d+ of/);
  };
  await many();
  const ofCalls = () =>
    receiver.logs.filter(({ body }) => body.includes('"kind":"request"') && body.includes('count__add')).length;
  // A worker that is killed loses its records of the last 50 ms.
  await waitUntil(() => ofCalls() === MANY);
  const before = await workersOf(gateway);
  process.kill(before[0] ?? 0, 'SIGKILL');
  await waitUntil(async () => (await workersOf(gateway)).some((pid) => !before.includes(pid)));
  await waitUntil(async () => (await send(`${gateway.operatorUrl}/readyz`, {})).text.includes('"reasons":[]'));
  await many();
  await gateway.stop(STOP_MS);
  const lines = auditLinesOf(receiver.logs);
  const verified = await verify(gateway, dir, lines);
  assert.deepEqual([verified.code, verified.stderr], [0, '']);
  assert.equal(new Set(receiver.logs.map(({ resource }) => resource['service.instance.id'])).size, 1);
  assert.equal(ofCalls(), 2 * MANY);
  assert.equal(lines.filter((line) => line.includes('"kind":"worker"')).length, 1);
});

// R22
test('a gateway whose OTLP receiver is restarted with it loses no record', TIMEOUT, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  await using gateway = await start(dir, receiver, false, { workers: 2 });
  receiver.react = 503;
  assert.match(JSON.stringify((await call(gateway)).result), /1 of/);
  const stopped = gateway.stop(STOP_MS);
  await gateway.waitForLog((line) => (line.includes('"stopping"') ? true : undefined));
  // The last attempts are those of the end, when all workers have gone.
  await waitUntil(async () => (await workersOf(gateway)).length === 0);
  const before = receiver.requests.length;
  await waitUntil(() => receiver.requests.length > before + 1);
  receiver.react = 'accept';
  await stopped;
  const lines = auditLinesOf(receiver.logs);
  for (const kind of ['request', 'stopped'])
    assert.ok(
      lines.some((line) => JSON.parse(line).kind === kind),
      kind,
    );
  const good = await verify(gateway, dir, lines);
  assert.deepEqual([good.code, good.stderr], [0, '']);
  assert.doesNotMatch(gateway.logs(), /audit records are lost/);
});

// R22
test('while the OTLP receiver fails, calls are refused and not run', TIMEOUT, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  await using gateway = await start(dir, receiver, true);
  assert.match(JSON.stringify((await call(gateway)).result), /1 of/);
  for (const react of [503, 'reject', 'lose', 401] as const) {
    receiver.react = react;
    const { error } = await call(gateway);
    assert.deepEqual(error?.data, { code: 'audit-unavailable', executed: 'no', retryable: true }, String(react));
  }
  const metrics = async () => (await send(`${gateway.operatorUrl}/metrics`, {})).text;
  assert.match(await metrics(), /^linkspan_audit_failing 1$/m);
  receiver.react = 'accept';
  await waitUntil(async () => /^linkspan_audit_failing 0$/m.test(await metrics()));
  assert.match(JSON.stringify((await call(gateway)).result), /2 of/, 'no refused call has run');
  await gateway.stop();
  const good = await verify(gateway, dir, auditLinesOf(receiver.logs));
  assert.deepEqual([good.code, good.stderr], [0, '']);
});

// R22
test('without `required`, calls are served while the OTLP receiver is away', TIMEOUT, async (t) => {
  const dir = await folder(t);
  const receiver = await startLogReceiver();
  await using gateway = await start(dir, receiver, false);
  await receiver[Symbol.asyncDispose]();
  assert.match(JSON.stringify((await call(gateway)).result), /1 of/);
  await gateway.waitForLog((line) => (line.includes('audit log cannot be written') ? true : undefined));
  assert.match(JSON.stringify((await call(gateway)).result), /2 of/);
  await gateway.stop();
  assert.match(gateway.logs(), /audit records are lost/);
  assert.match(await readFile(join(dir, 'state', 'audit-otlp.head'), 'utf8'), /"seq":\d/);
});

/** Runs a gateway that does not start. Its last records wait for a receiver that is away. */
async function failsToStart(dir: string, gateway: object, env: Readonly<Record<string, string>> = {}): Promise<void> {
  const audit = { otlp: { endpoint: 'http://127.0.0.1:9' } };
  const config = { mcpServers: {}, gateway: { listen: '127.0.0.1:0', audit, ...gateway } };
  await writeFile(join(dir, 'config.json'), JSON.stringify(config));
  await using child = await Child.start(process.execPath, [MAIN, 'run', '--config', join(dir, 'config.json')], { env });
  await child.waitForLine((line) => (line.includes('cannot start') ? true : undefined));
  assert.ok(child.running, 'it still tries to write its records');
  assert.doesNotMatch(child.logs(), /audit records are lost/);
  const isLost = (line: string) => (line.includes('audit records are lost') ? true : undefined);
  await child.waitForLine(isLost);
  assert.equal((await child.ended).code, 1);
  assert.equal(child.logs().match(/cannot start/g)?.length, 1);
}

for (const workers of [1, 2]) {
  // R22
  test(
    `a failed start says so while its last records wait for the receiver (${workers} workers)`,
    TIMEOUT,
    async (t) => {
      const dir = await folder(t);
      const taken = createServer().listen(0, '127.0.0.1');
      await once(taken, 'listening');
      t.after(() => taken.close());
      const address = taken.address();
      const port = typeof address === 'object' && address !== null ? address.port : 0;
      await failsToStart(dir, { operator: `127.0.0.1:${port}`, workers, stateDir: join(dir, 'state') });
    },
  );
}

// R22
test('a start without a folder for the sockets of workers says so at once', TIMEOUT, async (t) => {
  const dir = await folder(t);
  // Too long for sockets, which are in the folder for temporary files then.
  const stateDir = join(dir, 'state'.repeat(14));
  await failsToStart(dir, { workers: 2, stateDir }, { TMPDIR: join(dir, 'absent') });
});
