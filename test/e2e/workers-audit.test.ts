import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { recordsIn } from '../support/audit.ts';
import { runCli } from '../support/cli.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { act, startRemote } from '../support/nonce-remote.ts';
import { smallDisk } from '../support/small-disk.ts';
import { isGone } from '../support/stdio.ts';
import { waitUntil } from '../support/wait-until.ts';
import { metricOf, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const CLI_MS = 60_000;
const STOP_MS = 60_000;
const REFUSAL = z.object({ code: z.enum(['audit-unavailable', 'store-unavailable']), executed: z.string() });
const OPERATOR = 'a-key-of-op-0123456789abcdef';

async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

/** Verifies the log of a gateway, and returns the report. */
async function verify({ configFile, dir }: RunningGateway, ...more: readonly string[]) {
  const args = ['audit', 'verify', '--config', configFile, '--json', ...more];
  const { code, stdout, stderr } = await runCli(args, dir, process.env, CLI_MS);
  return { code, stderr, report: JSON.parse(stdout) };
}

/** Calls a tool again and again, until told to stop. */
class Caller {
  readonly #url: string;
  readonly #name: string;
  readonly #done: Promise<void>;
  #isStopped = false;
  /** Nonces of calls that were answered. */
  readonly answered: string[] = [];

  constructor(gateway: RunningGateway, name: string) {
    this.#url = gateway.endpoint();
    this.#name = name;
    this.#done = this.#run();
  }

  async #run(): Promise<void> {
    for (let n = 0; !this.#isStopped; n++) {
      const nonce = `nonce:${this.#name}:${n};`;
      const { _meta, ...params } = act(nonce, []);
      try {
        const { result } = answerOf(await modernPost(this.#url, 'tools/call', params));
        if (result !== undefined) this.answered.push(nonce);
      } catch {
        // The worker was killed, or the gateway.
        await new Promise((resolve) => setImmediate(resolve));
      }
    }
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    await this.#done;
  }
}

// SEC-44
test('one log of two workers is verified over a killed worker and parent', OPTIONS, async () => {
  await using dir = await folder();
  await using remote = await startRemote();
  const file = {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { workers: 2, audit: { file: 'audit.log', required: true, arguments: 'full', recordSize: '4KiB' } },
  };
  const audit = join(dir.path, 'audit.log');
  const answered: string[] = [];
  {
    await using gateway = await startGateway(file, { dir: dir.path });
    const callers = Array.from({ length: 6 }, (_, n) => new Caller(gateway, `a${n}`));
    const count = () => callers.reduce((sum, caller) => sum + caller.answered.length, 0);
    await waitUntil(() => count() > 60);
    const before = await workersOf(gateway);
    assert.equal(before.length, 2);
    process.kill(before[0] ?? 0, 'SIGKILL');
    await waitUntil(async () => (await workersOf(gateway)).some((pid) => !before.includes(pid)));
    const atReplacement = count();
    await waitUntil(() => count() > atReplacement + 60);
    const workers = await workersOf(gateway);
    gateway.kill('SIGKILL');
    await gateway.ended;
    await Promise.all(callers.map((caller) => caller.stop()));
    for (const pid of workers) await waitUntil(() => isGone(pid));
    answered.push(...callers.flatMap((caller) => caller.answered));
  }
  await using gateway = await startGateway(file, { dir: dir.path });
  await new Caller(gateway, 'b').stop();
  await gateway.stop(STOP_MS);
  const { code, stderr, report } = await verify(gateway);
  assert.deepEqual([code, stderr, report.problems, report.starts, report.dropped], [0, '', [], 2, 0]);

  const records = await recordsIn(audit);
  const begun = records.filter(({ kind }) => kind === 'begun').map((record) => JSON.stringify(record['arguments']));
  for (const nonce of answered)
    assert.ok(
      begun.some((text) => text.includes(nonce)),
      nonce,
    );
  const lost = records.filter(({ kind }) => kind === 'worker');
  assert.deepEqual([lost.length, lost[0]?.['event'], lost[0]?.['reason']], [1, 'lost', 'SIGKILL']);
  assert.deepEqual(records.filter(({ kind }) => kind === 'stopped').length, 1, 'by the parent alone');
});

// SEC-44
test('a stop loses no record of two workers, required or not', OPTIONS, async () => {
  await using remote = await startRemote();
  for (const required of [false, true]) {
    await using dir = await folder();
    const gateway = await startGateway(
      {
        mcpServers: { nonce: { url: `${remote.url}/mcp` } },
        gateway: { workers: 2, audit: { file: 'audit.log', required } },
      },
      { dir: dir.path },
    );
    const callers = Array.from({ length: 8 }, (_, n) => new Caller(gateway, `${required}${n}`));
    await waitUntil(() => callers.every(({ answered }) => answered.length > 10));
    await Promise.all(callers.map((caller) => caller.stop()));
    await gateway.stop(STOP_MS);
    const { code, report } = await verify(gateway);
    assert.deepEqual([code, report.problems, report.unended, report.dropped], [0, [], [], 0]);
    const calls = (await recordsIn(join(dir.path, 'audit.log'))).filter(
      ({ kind, method, outcome }) => kind === 'request' && method === 'tools/call' && outcome === 'ok',
    );
    assert.equal(
      calls.length,
      callers.reduce((sum, { answered }) => sum + answered.length, 0),
    );
  }
});

for (const workers of [1, 2]) {
  // SEC-44
  test(`a stop records how many refused requests have no record (${workers})`, OPTIONS, async () => {
    await using dir = await folder();
    const apiKeys = [{ name: 'ann', sha256: hash('sha256', 'a-key-of-ann-0123456789abcdef') }];
    const own = { workers, auth: { apiKeys }, audit: { file: 'audit.log' } };
    await using gateway = await startGateway({ mcpServers: {}, gateway: own }, { dir: dir.path });
    const refused = async (url: string) => assert.equal((await send(url, { method: 'GET' })).status, 401);
    const admin = `${gateway.operatorUrl}/admin/v1/status`;
    for (let round = 0; round < 20; round++)
      await Promise.all(Array.from({ length: 15 }, (_, n) => refused(n % 3 === 0 ? admin : gateway.endpoint())));
    await gateway.stop(STOP_MS);
    const records = (await recordsIn(join(dir.path, 'audit.log'))).filter(({ kind }) => kind === 'refused');
    const count = records.reduce((sum, { suppressed = 1 }) => sum + Number(suppressed), 0);
    assert.equal(count, 300);
  });
}

// R22
test('workers send no call while their parent cannot write the log', OPTIONS, async () => {
  await using disk = await smallDisk('1m');
  await using remote = await startRemote();
  await using gateway = await startGateway({
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { workers: 2, audit: { file: join(disk.path, 'audit.log'), required: true } },
  });
  let n = 0;
  const call = async () => {
    const nonce = `nonce:${n++}:1;`;
    const { _meta, ...params } = act(nonce, []);
    return { nonce, ...answerOf(await modernPost(gateway.endpoint(), 'tools/call', params)) };
  };
  assert.match(JSON.stringify((await call()).result), /nonce:0:1/);
  await disk.fill();
  let refused = 0;
  // The rest of the last page of the file has room for some. Both workers refuse.
  while (refused < 20) {
    const { nonce, error } = await call();
    if (error === undefined) continue;
    refused++;
    assert.deepEqual(error.data, { code: 'audit-unavailable', executed: 'no', retryable: true });
    assert.equal(await remote.ran(nonce), 0);
  }
  assert.equal(await metricOf(gateway, /^linkspan_audit_failing /), 1);
  await disk.free();
  await waitUntil(async () => (await call()).error === undefined);
  await waitUntil(async () => (await metricOf(gateway, /^linkspan_audit_failing /)) === 0);
  await gateway.stop(STOP_MS);
});

// SEC-44
test('one log has sessions, refusals, operators and reloads of all workers', OPTIONS, async () => {
  await using dir = await folder();
  await using remote = await startRemote();
  const own = {
    workers: 2,
    audit: { file: 'audit.log' },
    operatorKeys: [{ name: 'op', sha256: hash('sha256', OPERATOR) }],
  };
  const file = { mcpServers: { nonce: { url: `${remote.url}/mcp` } }, gateway: own };
  await using gateway = await startGateway(file, { dir: dir.path });
  const sessions = await Promise.all(Array.from({ length: 6 }, () => initialize(gateway.endpoint())));
  assert.equal((await post(gateway.endpoint(), rpc(1, 'ping'), 'no-session')).status, 404);
  const admin = `${gateway.operatorUrl}/admin/v1`;
  const headers = { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ tool: 'nonce__ledger', arguments: {} });
  assert.equal((await send(`${admin}/call`, { method: 'POST', headers, body })).status, 200);
  assert.equal((await send(`${admin}/status`, { headers: { authorization: 'Bearer wrong' } })).status, 401);
  await gateway.configure({ ...file, gateway: { ...own, reload: { drain: '1s' } } });
  assert.equal((await send(`${admin}/config/reload`, { method: 'POST', headers })).status, 200);
  await gateway.stop(STOP_MS);
  const { code, report } = await verify(gateway);
  assert.deepEqual([code, report.problems], [0, []]);
  const records = await recordsIn(join(dir.path, 'audit.log'));
  const has = (members: Record<string, unknown>) =>
    records.filter((record) => Object.entries(members).every(([name, value]) => record[name] === value)).length;
  assert.equal(has({ kind: 'session', event: 'opened' }), sessions.length);
  assert.equal(has({ kind: 'refused', error: 'session-unknown' }), 1);
  assert.equal(has({ kind: 'refused', error: 'unauthorized' }), 1);
  assert.equal(has({ kind: 'request', principal: 'operator:op', method: 'tools/call', outcome: 'ok' }), 1);
  assert.equal(has({ kind: 'operator', principal: 'operator:op', method: 'reloadConfig' }), 1);
  assert.equal(has({ kind: 'reload', event: 'applied' }), 1);
});

// R22
test('calls of workers whose parent hangs are refused, and never recorded as begun', OPTIONS, async () => {
  await using dir = await folder();
  await using remote = await startRemote();
  const audit = { file: 'audit.log', required: true, arguments: 'full' };
  const gateway = await startGateway(
    { mcpServers: { nonce: { url: `${remote.url}/mcp` } }, gateway: { workers: 2, audit } },
    { dir: dir.path },
  );
  const call = async (nonce: string) => {
    const { _meta, ...params } = act(nonce, []);
    return answerOf(await modernPost(gateway.endpoint(), 'tools/call', params));
  };
  const early = Array.from({ length: 8 }, (_, n) => `nonce:${n}:1;`);
  for (const { result } of await Promise.all(early.map(call))) assert.ok(result !== undefined);
  gateway.pause();
  const hung = Array.from({ length: 8 }, (_, n) => `nonce:${n}:2;`);
  // A worker that has served nobody yet asks its parent for other things too.
  const codes = (await Promise.all(hung.map(call))).map(({ error }) => {
    const { code, executed } = REFUSAL.parse(error?.data);
    assert.equal(executed, 'no');
    return code;
  });
  gateway.resume();
  await waitUntil(async () => (await call('nonce:9:3;')).error === undefined);
  for (const nonce of hung) assert.equal(await remote.ran(nonce), 0);
  await gateway.stop(STOP_MS);
  const { code, report } = await verify(gateway);
  assert.deepEqual([code, report.problems, report.unended], [0, [], []]);
  const records = await recordsIn(join(dir.path, 'audit.log'));
  const begun = records.filter(({ kind }) => kind === 'begun').map((record) => JSON.stringify(record['arguments']));
  for (const nonce of early) assert.ok(begun.some((text) => text.includes(nonce)));
  for (const nonce of hung) assert.ok(!begun.some((text) => text.includes(nonce)));
  const refused = records.filter(({ kind, error }) => kind === 'request' && error === 'audit-unavailable');
  assert.equal(refused.length, codes.filter((each) => each === 'audit-unavailable').length);
});

// SEC-44
test('records of workers go to the stdout of their parent alone', OPTIONS, async () => {
  await using dir = await folder();
  await using remote = await startRemote();
  const captured = join(dir.path, 'captured.log');
  const via = ['sh', '-c', `exec "$@" >>${captured}`, 'sh'];
  const file = {
    mcpServers: { nonce: { url: `${remote.url}/mcp` } },
    gateway: { workers: 2, audit: { stdout: true, required: true } },
  };
  for (const isKilled of [true, false]) {
    await using gateway = await startGateway(file, { dir: dir.path, via });
    const callers = Array.from({ length: 4 }, (_, n) => new Caller(gateway, `${n}`));
    await waitUntil(() => callers.every(({ answered }) => answered.length > 5));
    await Promise.all(callers.map((caller) => caller.stop()));
    if (isKilled) {
      gateway.kill('SIGKILL');
      await gateway.ended;
      continue;
    }
    await gateway.stop(STOP_MS);
    const head = join(dir.path, 'state', 'audit-stdout.head');
    const { code, report } = await verify(gateway, captured, '--head', head);
    assert.deepEqual([code, report.problems, report.starts], [0, [], 2]);
  }
});
