import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import { hash, randomBytes } from 'node:crypto';
import { mkdir, mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { promisify } from 'node:util';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { recordsIn } from '../support/audit.ts';
import { runCli } from '../support/cli.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { openGateway } from '../support/open-gateway.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { smallDisk } from '../support/small-disk.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 180_000 };
const COUNT = { command: process.execPath, args: [join(import.meta.dirname, '../fixtures/servers/count-stdio.ts')] };
const ADD = { name: 'count__add', arguments: {} };
const KEY = 'a-key-of-ann-0123456789abcdef';
const apiKeys = [{ name: 'ann', sha256: hash('sha256', KEY) }];
const CLI_MS = 60_000;
/** Requests whose records fill a file of 64 KiB. */
const ROUND = 160;
const CANARY = 'canary-8d20b1';
/** The first start compiles the sources. */
const START = { timeoutMs: 60_000 };

async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const path = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  return { path, [Symbol.asyncDispose]: () => rm(path, { recursive: true, force: true }) };
}

function verify(gateway: { readonly configFile: string; readonly dir: string }, ...more: readonly string[]) {
  return runCli(['audit', 'verify', '--config', gateway.configFile, ...more], gateway.dir, process.env, CLI_MS);
}

/** Calls a tool in a new session. */
async function callOnce(gateway: RunningGateway, headers: Record<string, string> = {}): Promise<string> {
  const session = await initialize(gateway.endpoint(), '2025-11-25', headers);
  return (await post(gateway.endpoint(), rpc(1, 'tools/call', ADD), session, headers)).text;
}

async function kill(gateway: RunningGateway): Promise<void> {
  gateway.kill('SIGKILL');
  await gateway.ended;
}

// SEC-44
test('the log is verified over a kill and a restart, and tampering is found', TIMEOUT, async () => {
  await using dir = await folder();
  const file = { mcpServers: { count: COUNT }, gateway: { audit: { file: 'audit.log', required: true } } };
  const audit = join(dir.path, 'audit.log');
  {
    await using gateway = await startGateway(file, { dir: dir.path, ...START });
    await gateway.waitForLog((line) => line.includes('audit log begins here') || undefined);
    assert.match(await callOnce(gateway), /1 of/);
    await waitUntil(async () =>
      (await recordsIn(audit)).some(({ method, kind }) => kind === 'request' && method === 'tools/call'),
    );
    await kill(gateway);
  }
  await using gateway = await startGateway(file, { dir: dir.path });
  await gateway.waitForLog((line) => line.includes('audit log continues here') || undefined);
  await callOnce(gateway);
  await gateway.stop();
  const good = await verify(gateway);
  assert.deepEqual([good.code, good.stderr], [0, '']);
  assert.match(good.stdout, /^\d+ records \(1 to \d+\) in 1 file, 2 starts\nno problem found\n$/);

  const text = await readFile(audit, 'utf8');
  const lines = text.split('\n');
  const at = lines.findIndex((line) => line.includes('"tools/call"'));
  await writeFile(audit, lines.with(at, (lines[at] ?? '').replace('count__add', 'count__get')).join('\n'));
  const changed = await verify(gateway);
  assert.equal(changed.code, 1);
  assert.match(changed.stderr, new RegExp(`^${audit}:${at + 1}: record ${at + 1} was changed`));
  await writeFile(audit, `${lines.slice(0, -3).join('\n')}\n`);
  const cut = await verify(gateway, '--json');
  assert.equal(cut.code, 1);
  assert.match(JSON.parse(cut.stdout).problems[0].message, /missing at the end/);
  const blind = await verify(gateway, '--without-head');
  assert.equal(blind.code, 0);
  await rm(`${audit}.head`);
  const headless = await verify(gateway);
  assert.equal(headless.code, 1);
  assert.match(headless.stderr, /no signed head/);
});

test('the death of a process loses at most the last moment, and the next one continues', TIMEOUT, async () => {
  await using dir = await folder();
  const file = {
    mcpServers: { count: COUNT },
    gateway: { audit: { file: 'audit.log', required: true, sync: 'write' } },
  };
  const audit = join(dir.path, 'audit.log');
  let answered = 0;
  {
    await using gateway = await startGateway(file, { dir: dir.path, ...START });
    const session = await initialize(gateway.endpoint());
    const workers = Array.from({ length: 8 }, async (_, worker) => {
      for (let n = 0; ; n++) {
        const { text } = await post(gateway.endpoint(), rpc(worker * 1_000_000 + n, 'tools/call', ADD), session);
        if (text.includes(' of ')) answered++;
      }
    });
    // They end when the gateway does.
    const ended = Promise.allSettled(workers);
    await waitUntil(() => answered > 50);
    await kill(gateway);
    await ended;
  }
  await using gateway = await startGateway(file, { dir: dir.path });
  await gateway.stop();
  const found = await verify(gateway, '--json');
  const report = JSON.parse(found.stdout);
  assert.deepEqual([found.code, report.problems, report.starts], [0, [], 2]);
  const begun = (await recordsIn(audit)).filter(({ kind }) => kind === 'begun');
  assert.ok(begun.length >= answered, `${begun.length} of ${answered} answered calls`);
});

test('a refusal is recorded with the address that a trusted proxy names', TIMEOUT, async () => {
  const [upstreams, gatewayOf] = [
    { count: COUNT },
    (trustedProxies: readonly string[]) => ({
      auth: { apiKeys: [{ name: 'ann', sha256: hash('sha256', 'a key of ann 0123456789') }] },
      audit: { file: 'audit.log' },
      trustedProxies,
    }),
  ];
  await using gateway = await startGateway({ mcpServers: upstreams, gateway: gatewayOf(['127.0.0.0/8']) });
  const path = join(gateway.dir, 'audit.log');
  const refused = async () => (await recordsIn(path)).filter(({ kind }) => kind === 'refused');
  const ask = async (forwarded: string): Promise<unknown> => {
    const before = (await refused()).length;
    await post(gateway.endpoint(), rpc(1, 'ping'), undefined, { 'x-forwarded-for': forwarded });
    await waitUntil(async () => (await refused()).length > before);
    return (await refused()).at(-1)?.['address'];
  };
  assert.equal(await ask('198.51.100.1, 203.0.113.9'), '203.0.113.9');
  await gateway.configure({ mcpServers: upstreams, gateway: gatewayOf([]) });
  await waitUntil(async () => String(await ask('203.0.113.9')).endsWith('127.0.0.1'));
});

// SEC-44
test('a refusal on the port of operators is recorded as answered, with its address', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { audit: { file: 'audit.log' } } });
  const refused = [
    { headers: { host: 'evil.example' }, error: 'forbidden', status: 403 },
    { headers: { origin: 'https://evil.example' }, error: 'forbidden', status: 403 },
    { headers: { authorization: 'Bearer a, Bearer b' }, error: 'invalid-request', status: 400 },
    { headers: { authorization: 'Bearer no-such-key' }, error: 'unauthorized', status: 401 },
  ];
  for (const { headers, status } of refused)
    assert.equal((await send(`${gateway.operatorUrl}/admin/v1/status`, { headers })).status, status);
  const path = join(gateway.dir, 'audit.log');
  const records = async () => (await recordsIn(path)).filter(({ kind }) => kind === 'refused');
  await waitUntil(async () => (await records()).length === refused.length);
  assert.deepEqual(
    (await records()).map(({ error, status, reason, address }) => ({ error, status, reason, address })),
    refused.map(({ error, status }) => ({ error, status, reason: `operator ${error}`, address: '127.0.0.1' })),
  );
});

// SEC-44
test('no secret of clients, operators, upstreams and config is in a record', TIMEOUT, async () => {
  const secrets: string[] = [];
  const canary = (): string => {
    secrets.push(`${CANARY}-${secrets.length}`);
    return secrets.at(-1) ?? '';
  };
  const [key, other] = [canary(), canary()];
  const keyOf = (name: string, value: string) => ({ name, sha256: hash('sha256', value) });
  const talks = `throw new Error(process.env.API_KEY + process.argv.join(' '))`;
  await using gateway = await startGateway({
    mcpServers: {
      count: { ...COUNT, env: { TOKEN: canary() } },
      broken: { command: process.execPath, args: ['-e', talks, '--', canary()], env: { API_KEY: canary() } },
      remote: {
        url: `http://me:${canary()}@127.0.0.1:9/${canary()}?key=${canary()}`,
        headers: { Authorization: `Bearer ${canary()}` },
      },
    },
    gateway: {
      auth: { apiKeys: [keyOf('ann', key)] },
      operatorKeys: [keyOf('op', other)],
      audit: { file: 'audit.log', arguments: 'full' },
    },
  });
  const headers = { authorization: `Bearer ${key}` };
  const session = await initialize(gateway.endpoint(), '2025-11-25', headers);
  const call = (id: number, method: string, params?: object) =>
    post(gateway.endpoint(), rpc(id, method, params), session, headers);
  const hidden = {
    password: canary(),
    token: canary(),
    secret: canary(),
    apiKey: canary(),
    nested: [{ cookie: canary() }],
  };
  await call(1, 'tools/call', {
    name: 'count__add',
    arguments: { ...hidden, url: `https://h/${canary()}`, env: { A: canary() } },
  });
  await call(2, 'tools/call', { name: 'broken__any', arguments: hidden });
  await call(3, 'tools/call', {
    name: 'remote__any',
    arguments: { authorization: canary(), headers: { x: canary() } },
  });
  await call(4, 'resources/read', { uri: `count+https://me:${canary()}@host/path?${canary()}#${canary()}` });
  await call(5, 'tools/list', { cursor: canary() });
  await call(6, 'tasks/get', { taskId: canary() });
  for (const authorization of [`Bearer ${canary()}`, `Basic ${canary()}`, canary()]) {
    await post(gateway.endpoint(), rpc(7, 'ping'), session, { authorization });
    await post(gateway.endpoint(), rpc(8, 'ping'), undefined, { authorization });
  }
  await post(gateway.endpoint(), rpc(9, 'ping'), canary(), headers);
  await post(gateway.endpoint(), `{"broken":"${canary()}`, session, headers);
  await post(gateway.endpoint(), rpc(10, 'ping'), session, { ...headers, host: `${canary()}.example` });
  const admin = `${gateway.operatorUrl}/admin/v1`;
  await send(`${admin}/status`, { headers: { authorization: `Bearer ${canary()}` } });
  const asOperator = { authorization: `Bearer ${other}`, 'content-type': 'application/json' };
  const body = JSON.stringify({ tool: 'count__add', arguments: { token: canary() } });
  assert.equal((await send(`${admin}/call`, { method: 'POST', headers: asOperator, body })).status, 200);
  await gateway.configure({
    mcpServers: { count: { ...COUNT, env: { TOKEN: canary() } } },
    gateway: { audit: { file: 'audit.log' } },
  });
  await send(`${admin}/config/reload`, { method: 'POST', headers: asOperator });
  const path = join(gateway.dir, 'audit.log');
  await waitUntil(async () => (await recordsIn(path)).some(({ kind }) => kind === 'reload'));
  const text = await readFile(path, 'utf8');
  assert.ok(secrets.length >= 20);
  assert.deepEqual(
    secrets.filter((secret) => text.includes(secret)),
    [],
  );
  assert.ok(!text.includes(session.slice(0, 40)), 'the id of a session');

  const records = await recordsIn(path);
  const refused = records.filter(({ kind }) => kind === 'refused');
  const reasons = new Set(refused.map(({ error }) => error));
  for (const error of ['unauthorized', 'forbidden', 'session-unknown', 'parse-error'])
    assert.ok(reasons.has(error), error);
  const unauthorized = refused.find(({ error }) => error === 'unauthorized');
  assert.deepEqual(
    [unauthorized?.['status'], unauthorized?.['endpoint'], unauthorized?.['decision']],
    [401, '/mcp', 'refused'],
  );
  assert.match(String(unauthorized?.['address']), /127\.0\.0\.1$/);
  const byOperator = records.find(
    ({ principal, kind, method }) => principal === 'operator:op' && kind === 'request' && method === 'tools/call',
  );
  assert.deepEqual(
    [byOperator?.['name'], byOperator?.['outcome'], byOperator?.['label']],
    ['count__add', 'ok', 'operator op'],
  );
  assert.ok(records.some(({ kind, method }) => kind === 'operator' && method === 'reloadConfig'));
});

// R22
test('on a full disk calls are refused and not run, until there is room again', TIMEOUT, async () => {
  await using disk = await smallDisk('1m');
  const file = join(disk.path, 'audit.log');
  await using gateway = await startGateway({
    mcpServers: { count: COUNT },
    gateway: { audit: { file, required: true } },
  });
  const call = async () => answerOf(await modernPost(gateway.endpoint(), 'tools/call', ADD));
  assert.match(JSON.stringify((await call()).result), /1 of/);
  await disk.fill();
  let ran = 1;
  let refusal: unknown;
  // The rest of the last page of the file has room for some.
  while (refusal === undefined) {
    const { result, error } = await call();
    if (error === undefined) ran = Number(/(\d+) of/.exec(JSON.stringify(result))?.[1]);
    else refusal = error.data;
  }
  assert.deepEqual(refusal, { code: 'audit-unavailable', executed: 'no', retryable: true });
  const metrics = async () => (await send(`${gateway.operatorUrl}/metrics`, {})).text;
  assert.match(await metrics(), /^linkspan_audit_records_total\{outcome="failed"\} [1-9]/m);
  const readiness = await send(`${gateway.operatorUrl}/readyz`, {});
  assert.match(readiness.text, /"the audit log cannot be written; calls are refused"/);
  await disk.free();
  const { result } = await call();
  assert.equal(Number(/(\d+) of/.exec(JSON.stringify(result))?.[1]), ran + 1, 'no refused call has run');
  await gateway.waitForLog((line) => (line.includes('audit log can be written again') ? true : undefined));
  await waitUntil(async () => /^linkspan_audit_failing 0$/m.test(await metrics()));
  await gateway.stop();
  const records = await recordsIn(file);
  const last = records.findLast(({ error }) => error === 'audit-unavailable');
  assert.deepEqual([last?.['decision'], last?.['executed'], last?.['name']], ['refused', 'no', 'count__add']);
});

test('a second gateway does not start with the file of the first', TIMEOUT, async () => {
  await using dir = await folder();
  const gateway = { audit: { file: join(dir.path, 'audit.log') } };
  await using first = await startGateway({ mcpServers: { count: COUNT }, gateway });
  await assert.rejects(
    startGateway({ mcpServers: { count: COUNT }, gateway }),
    /another process writes the audit file/,
  );
  assert.ok(first.isRunning);
});

test('records go to stdout if the config says so, and are verified from there', TIMEOUT, async () => {
  await using dir = await folder();
  const keys = [randomBytes(32).toString('base64')];
  const file = { mcpServers: { count: COUNT }, gateway: { audit: { stdout: true, chainKeys: keys } } };
  const captured = join(dir.path, 'captured.log');
  const via = ['sh', '-c', `exec "$@" >>${captured}`, 'sh'];
  await using gateway = await startGateway(file, { dir: dir.path, via });
  await callOnce(gateway);
  await gateway.stop();
  const head = join(dir.path, 'state', 'audit-stdout.head');
  const found = await verify(gateway, captured, '--head', head);
  assert.deepEqual([found.code, found.stderr], [0, '']);
  assert.ok((await recordsIn(captured)).some(({ method }) => method === 'tools/call'));
});

test('no number on stdout is used twice after the death of a process', TIMEOUT, async () => {
  await using dir = await folder();
  const file = { mcpServers: { count: COUNT }, gateway: { audit: { stdout: true } } };
  const captured = join(dir.path, 'captured.log');
  const via = ['sh', '-c', `exec "$@" >>${captured}`, 'sh'];
  {
    await using gateway = await startGateway(file, { dir: dir.path, via });
    await callOnce(gateway);
    await waitUntil(async () => (await recordsIn(captured)).some(({ method }) => method === 'tools/call'));
    await kill(gateway);
  }
  await using gateway = await startGateway(file, { dir: dir.path, via });
  await gateway.stop();
  const head = join(dir.path, 'state', 'audit-stdout.head');
  const found = await verify(gateway, captured, '--head', head);
  assert.deepEqual([found.code, found.stderr], [0, '']);
  assert.match(found.stdout, /2 starts/);
});

test('linkspan stdio refuses an audit log on stdout', TIMEOUT, async () => {
  await using dir = await folder();
  const config = join(dir.path, 'c.json');
  await writeFile(
    config,
    JSON.stringify({ mcpServers: { count: COUNT }, gateway: { stateDir: 'state', audit: { stdout: true } } }),
  );
  const { code, stdout, stderr } = await runCli(['stdio', '--config', config], dir.path, process.env, CLI_MS);
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /stdout belongs to the client/);
});

test('a principal of an API key is recorded, and files are renamed when they are full', TIMEOUT, async () => {
  await using dir = await folder();
  const audit = { file: 'audit.log', maxSize: '64KiB', maxFiles: 100, recordSize: '4KiB' };
  const file = { mcpServers: { count: COUNT }, gateway: { audit, auth: { apiKeys } } };
  await using gateway = await startGateway(file, { dir: dir.path });
  const headers = { authorization: `Bearer ${KEY}` };
  const session = await initialize(gateway.endpoint(), '2025-11-25', headers);
  const renamed = async () => (await readdir(dir.path)).filter((name) => /^audit\.log\.\d{15}$/.test(name));
  const pings = async () => {
    const files = [...(await renamed()), 'audit.log'].map((name) => recordsIn(join(dir.path, name)));
    return (await Promise.all(files)).flat().filter(({ method }) => method === 'ping');
  };
  // One write is never parted, so each round begins when the records of the last one are in a file.
  for (let round = 1; round <= 3; round++) {
    for (let n = 1; n <= ROUND; n++) await post(gateway.endpoint(), rpc(n, 'ping'), session, headers);
    // A file that is renamed while it is read cannot be read.
    await waitUntil(async () => (await pings().catch(() => [])).length === round * ROUND);
  }
  await gateway.stop();
  assert.ok((await renamed()).length >= 2);
  const found = await verify(gateway);
  assert.deepEqual([found.code, found.stderr], [0, '']);
  const names = [...(await renamed()).toSorted(), 'audit.log'];
  for (const named of [names.toReversed(), names.map((name) => `./${name}`)]) {
    const again = await verify(gateway, ...named);
    assert.deepEqual([again.code, again.stderr], [0, ''], named.join(' '));
    assert.match(again.stdout, new RegExp(` in ${names.length} files, 1 start\nno problem found\n$`));
  }
  assert.ok((await pings()).every(({ principal, label }) => principal === 'key:ann' && label === 'ann'));
});

// SEC-44
test('a request to an endpoint that the policy hides is recorded as denied', TIMEOUT, async () => {
  await using dir = await folder();
  const file = join(dir.path, 'audit.log');
  const access = { roles: { some: { upstreams: ['other'] } }, grants: [{ roles: ['some'], anyone: true }] };
  const servers = { count: COUNT, other: COUNT };
  await using gateway = await openGateway(servers, { audit: { file }, auth: { apiKeys }, access });
  const headers = { authorization: `Bearer ${KEY}` };
  for (const [path, expected] of [
    ['/mcp/count', 404],
    ['/sse/count', 404],
    ['/mcp/absent', 404],
    ['/mcp/other', 200],
  ] as const) {
    const url = gateway.url.replace('/mcp', path);
    const initialize = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'a', version: '1' } };
    assert.equal((await post(url, rpc(1, 'initialize', initialize), undefined, headers)).status, expected, path);
  }
  assert.match(await gateway.metrics(), /linkspan_access_denied_total\{upstream="count"\} 2\n/);
  await gateway.stop();
  const refused = (await recordsIn(file)).filter(({ kind }) => kind === 'refused');
  assert.deepEqual(
    refused.map(({ decision, label, endpoint, error }) => [decision, label, endpoint, error]),
    [
      ['denied', 'ann', '/mcp/count', 'not-found'],
      ['denied', 'ann', '/mcp/count', 'not-found'],
    ],
  );
});

test('audit verify says what is no file of records, and waits for no pipe', TIMEOUT, async () => {
  await using dir = await folder();
  const at = (name: string) => join(dir.path, name);
  await writeFile(at('key'), `${randomBytes(32).toString('base64')}\n`, { mode: 0o600 });
  await mkdir(at('folder'));
  await promisify(execFile)('mkfifo', [at('pipe'), at('audit.log.000000000000007')]);
  await writeFile(at('audit.log'), '');
  const run = (...args: readonly string[]) =>
    runCli(['audit', 'verify', '--key-file', at('key'), '--without-head', ...args], dir.path, process.env, CLI_MS);
  for (const [name, message] of [
    ['pipe', 'pipe: this is a pipe, and no file of records'],
    ['folder', 'folder: this is a directory, and no file of records'],
    ['audit.log', 'audit.log.000000000000007: this is a pipe, and no file of records'],
  ] as const) {
    const { code, stderr } = await run(at(name));
    assert.deepEqual([code, stderr], [1, `${dir.path}/${message}\n`], name);
  }
  const head = ['audit', 'verify', '--key-file', at('key'), '--head', at('pipe'), at('audit.log')];
  const withHead = await runCli(head, dir.path, process.env, CLI_MS);
  assert.deepEqual(
    [withHead.code, withHead.stderr],
    [1, `linkspan: ${at('pipe')} is a pipe, and no file; name the file of the signed head with --head\n`],
  );
});
