import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, readFile, rename, rm, symlink, truncate, writeFile } from 'node:fs/promises';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { type Events, getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { freePort } from '../support/free-port.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { legacyUpstream, modernUpstream, type Served } from '../support/http-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const PID = fileURLToPath(new URL('../fixtures/servers/label-stdio.ts', import.meta.url));
const TOOLS = [{ name: 'look', inputSchema: { type: 'object' } }];

type Members = Readonly<Record<string, unknown>>;

function pidServer(own: Members = {}): Members {
  return { command: process.execPath, args: [PID], isolation: 'shared', start: 'eager', ...own };
}

function member(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? Reflect.get(value, name) : undefined;
}

/** Calls a tool in a session. Returns its text, or the message of the error. */
async function call(url: string, session: string, name: string, headers: Readonly<Record<string, string>> = {}) {
  const got = await post(url, rpc(1, 'tools/call', { name, arguments: {} }), session, headers);
  const answer = messagesOf(got).find(({ id }) => id === 1);
  const [first]: unknown[] = [member(answer?.result, 'content')].flat();
  const text = member(first, 'text') ?? member(answer?.error, 'message');
  return typeof text === 'string' ? text : got.text;
}

async function tools(url: string, session: string): Promise<readonly unknown[]> {
  const [answer] = messagesOf(await post(url, rpc(1, 'tools/list'), session));
  return [member(answer?.result, 'tools')].flat().map((tool) => member(tool, 'name'));
}

function isApplied(line: string): true | undefined {
  return line.includes('"config applied"') ? true : undefined;
}

function isRejected(line: string): string | undefined {
  return line.includes('"config rejected; the running one stays"') ? line : undefined;
}

/** Resolves with the number of log lines of this kind so far. */
function count(gateway: RunningGateway, text: string): number {
  return gateway.logs().split(text).length - 1;
}

/** Replaces the config, and waits until the gateway has applied it. */
async function applied(gateway: RunningGateway, file: GatewayFile): Promise<void> {
  const before = count(gateway, '"config applied"');
  await gateway.configure(file);
  await waitUntil(() => count(gateway, '"config applied"') > before);
}

async function metric(gateway: RunningGateway, name: string): Promise<string | undefined> {
  const text = await (await fetch(`${gateway.operatorUrl}/metrics`)).text();
  return text.split('\n').find((line) => line.startsWith(name));
}

/** Returns the number of established connections of a process to a port of this machine. */
async function socketsTo(pid: number, url: string): Promise<number> {
  const port = Number(new URL(url).port).toString(16).toUpperCase().padStart(4, '0');
  const table = await readFile(`/proc/${pid}/net/tcp`, 'utf8');
  // Columns: number, local address, remote address, state; 01 is ESTABLISHED.
  return table.split('\n').filter((line) => new RegExp(`^ *\\d+: \\S+ \\S+:${port} 01 `).test(line)).length;
}

function hasListChanged({ messages }: Events): boolean {
  return messages.some(({ method }) => method === 'notifications/tools/list_changed');
}

test('a reload that moves an upstream to the top gives it the names without a prefix', TIMEOUT, async () => {
  const server = (label: string) => pidServer({ prefix: '', env: { LABEL: label } });
  const [untrusted, trusted] = [server('untrusted'), server('trusted')];
  await using gateway = await startGateway({ mcpServers: { untrusted, trusted } });
  const session = await initialize(gateway.endpoint());
  await waitUntil(async () => (await call(gateway.endpoint(), session, 'pid')).endsWith(' untrusted'));
  await applied(gateway, { mcpServers: { trusted, untrusted } });
  await waitUntil(async () => (await call(gateway.endpoint(), session, 'pid')).endsWith(' trusted'));
});

test('a reload keeps the processes, sessions and streams of untouched upstreams', TIMEOUT, async () => {
  await using http = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': () => ({ content: [] }) } });
  const remote = { url: http.url };
  await using gateway = await startGateway({ mcpServers: { a: pidServer(), b: pidServer(), remote } });
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  const stream = await getEvents(url, session);
  await waitUntil(async () => (await tools(url, session)).length === 3);
  const [a, b] = [await call(url, session, 'a__pid'), await call(url, session, 'b__pid')];
  const requestsBefore = http.requests('initialize').length;

  const env = { LABEL: 'new' };
  await applied(gateway, { mcpServers: { a: pidServer(), b: pidServer({ env }), c: pidServer(), remote } });
  await stream.until(hasListChanged);
  await waitUntil(async () => (await tools(url, session)).includes('c__pid'));
  assert.equal(await call(url, session, 'a__pid'), a, 'the same process');
  const changed = await call(url, session, 'b__pid');
  assert.notEqual(changed, b);
  assert.match(changed, / new$/);
  assert.equal(http.requests('initialize').length, requestsBefore, 'the same connection');

  await applied(gateway, { mcpServers: { a: pidServer(), remote } });
  await waitUntil(async () => (await tools(url, session)).length === 2);
  assert.equal(await call(url, session, 'a__pid'), a);
  assert.match(await call(url, session, 'b__pid'), /b__pid/);
  const gone = await post(gateway.endpoint('b'), rpc(1, 'ping'), session);
  assert.equal(gone.status, 404);
  assert.match(gone.text, /no such endpoint/);
  assert.equal(stream.isEnded, false, 'the stream stays open');
  stream.close();
});

test('a changed timeouts.call holds for subscriptions over a connection that stays', TIMEOUT, async () => {
  let isSilent = false;
  const listen = (served: Served) => {
    if (!isSilent) served.notifySubscriber('notifications/subscriptions/acknowledged', served.params);
    return undefined;
  };
  await using server = await modernUpstream({
    capabilities: { resources: { subscribe: true } },
    resources: ['notes://a', 'notes://b'].map((uri) => ({ uri, name: uri })),
    answers: { 'subscriptions/listen': listen },
  });
  const remote = (call: string) => ({ url: server.url, prefix: '', timeouts: { call } });
  await using gateway = await startGateway({ mcpServers: { remote: remote('1h') } });
  const session = await initialize(gateway.endpoint());
  const subscribe = async (uri: string) => {
    const [answer] = messagesOf(await post(gateway.endpoint(), rpc(1, 'resources/subscribe', { uri }), session));
    return answer;
  };
  await post(gateway.endpoint(), rpc(0, 'resources/list'), session);
  assert.deepEqual((await subscribe('notes://a'))?.result, {});
  const opened = server.requests('server/discover').length;
  await applied(gateway, { mcpServers: { remote: remote('100ms') } }); // subject
  isSilent = true;
  assert.match(JSON.stringify((await subscribe('notes://b'))?.error), /did not acknowledge subscriptions\/listen/);
  assert.equal(server.requests('server/discover').length, opened, 'the connection stays');
});

const invalid: readonly { readonly name: string; readonly text: string; readonly reason: RegExp }[] = [
  { name: 'no JSON', text: '{"mcpServers": ', reason: /config\.json:1/ },
  { name: 'an unknown setting', text: '{"mcpServers": {}, "gateway": {"lissten": 1}}', reason: /listen/ },
  { name: 'one bad entry', text: `{"mcpServers": {"a": {"command": "x", "isolaton": 1}}}`, reason: /isolation/ },
  {
    name: 'an entry whose variable is not set',
    text: '{"mcpServers": {"a": {"command": "x", "args": ["${LINKSPAN_UNSET}"]}}}',
    reason: /LINKSPAN_UNSET/,
  },
];

for (const { name, text, reason } of invalid) {
  test(`a config with ${name} changes nothing and is reported`, TIMEOUT, async () => {
    const file = { mcpServers: { a: pidServer() } };
    await using gateway = await startGateway(file);
    const url = gateway.endpoint();
    const session = await initialize(url);
    const pid = await call(url, session, 'a__pid');
    await writeFile(gateway.configFile, text);
    assert.match(await gateway.waitForLog(isRejected), reason);
    assert.equal(await call(url, session, 'a__pid'), pid);
    assert.equal(
      await metric(gateway, 'linkspan_config_last_reload_successful'),
      'linkspan_config_last_reload_successful 0',
    );
    await gateway.configure(file);
    await waitUntil(
      async () => (await metric(gateway, 'linkspan_config_last_reload_successful'))?.endsWith(' 1') === true,
    );
    assert.equal(await call(url, session, 'a__pid'), pid);
  });
}

async function makeHuge(file: string): Promise<void> {
  await writeFile(file, '');
  await truncate(file, 1_500_000_000);
}

// N-74
test('a pipe or a huge file in the place of the config is rejected at once', TIMEOUT, async () => {
  const file = { mcpServers: { a: pidServer() } };
  await using gateway = await startGateway(file);
  const session = await initialize(gateway.endpoint());
  const next = join(gateway.dir, 'next');
  const odd = [
    { make: async () => void execFileSync('mkfifo', [next]), reason: /is no ordinary file/ },
    { make: () => makeHuge(next), reason: /is larger than 32 MiB/ },
  ];
  for (const [index, { make, reason }] of odd.entries()) {
    await make();
    await rename(next, gateway.configFile);
    await waitUntil(() => count(gateway, '"config rejected; the running one stays"') === index + 1);
    assert.match(gateway.logs(), reason);
    assert.match(await call(gateway.endpoint(), session, 'a__pid'), /^\d+/);
  }
  await writeFile(next, '');
  await rename(next, gateway.configFile);
  await applied(gateway, { mcpServers: {} });
});

test('SIGHUP reloads the config even if the file is not watched', TIMEOUT, async () => {
  const reload = { watch: false };
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload } });
  await gateway.configure({ mcpServers: { a: pidServer() }, gateway: { reload } });
  gateway.kill('SIGHUP');
  await gateway.waitForLog(isApplied);
  const session = await initialize(gateway.endpoint());
  await waitUntil(async () => (await tools(gateway.endpoint(), session)).length === 1);
});

test('a config behind a directory link is reloaded when the link is replaced', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-map-'));
  try {
    const gatewaySettings = { listen: '127.0.0.1:0', operator: '127.0.0.1:0', stateDir: join(dir, 'state') };
    const text = (mcpServers: Members) => JSON.stringify({ mcpServers, gateway: gatewaySettings });
    for (const [version, servers] of [
      ['..1', {}],
      ['..2', { a: pidServer() }],
    ] as const) {
      await mkdir(join(dir, version));
      await writeFile(join(dir, version, 'linkspan.json'), text(servers));
    }
    await symlink('..1', join(dir, '..data'));
    await symlink('..data/linkspan.json', join(dir, 'linkspan.json'));
    await using gateway = await startGateway({}, { args: ['--config', join(dir, 'linkspan.json')] });
    await symlink('..2', join(dir, '..next'));
    await rename(join(dir, '..next'), join(dir, '..data'));
    await gateway.waitForLog(isApplied);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a rotated token from a file reaches an open session of a remote upstream', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-token-'));
  try {
    await using legacy = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': () => ({ content: [] }) } });
    await using modern = await modernUpstream({ tools: TOOLS, request: (served) => served.result({ content: [] }) });
    const token = join(dir, 'token');
    await writeFile(token, 'first\n');
    const headers = { Authorization: `Bearer \${file:${token}}` };
    await using gateway = await startGateway({
      mcpServers: { legacy: { url: legacy.url, headers }, modern: { url: modern.url, headers, era: 'modern' } },
    });
    const session = await initialize(gateway.endpoint());
    const seen = async () => {
      for (const name of ['legacy__look', 'modern__look']) await call(gateway.endpoint(), session, name);
      return [legacy, modern].map((upstream) => upstream.requests('tools/call').at(-1)?.headers.authorization);
    };
    assert.deepEqual(await seen(), ['Bearer first', 'Bearer first']);
    const before = legacy.requests('initialize').length;
    await writeFile(`${token}.next`, 'second\n');
    await rename(`${token}.next`, token);
    await gateway.waitForLog(isApplied);
    assert.deepEqual(await seen(), ['Bearer second', 'Bearer second']);
    assert.equal(legacy.requests('initialize').length, before, 'the session stays');
    assert.doesNotMatch(gateway.logs(), /first|second/);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a remote upstream that is added first and removed later leaves no socket open', TIMEOUT, async () => {
  await using remote = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': () => ({ content: [] }) } });
  await using gateway = await startGateway({ mcpServers: {} });
  const session = await initialize(gateway.endpoint());
  await applied(gateway, { mcpServers: { remote: { url: remote.url } } });
  await waitUntil(async () => (await tools(gateway.endpoint(), session)).includes('remote__look'));
  await call(gateway.endpoint(), session, 'remote__look');
  assert.ok((await socketsTo(gateway.pid, remote.url)) > 0);
  await applied(gateway, { mcpServers: {} });
  await waitUntil(async () => (await socketsTo(gateway.pid, remote.url)) === 0);
});

test('a changed variable of an envFile replaces the process', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-env-'));
  try {
    const envFile = join(dir, 'a.env');
    await writeFile(envFile, 'LABEL=one\n');
    await using gateway = await startGateway({ mcpServers: { a: pidServer({ envFile }), b: pidServer() } });
    const url = gateway.endpoint();
    const session = await initialize(url);
    assert.match(await call(url, session, 'a__pid'), / one$/);
    const other = await call(url, session, 'b__pid');
    await writeFile(envFile, 'LABEL=two\n');
    await gateway.waitForLog(isApplied);
    assert.match(await call(url, session, 'a__pid'), / two$/);
    assert.equal(await call(url, session, 'b__pid'), other);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('a removed key is refused at once, and its stream ends; another goes on', TIMEOUT, async () => {
  const keyOf = (name: string) => ({ name, sha256: createHash('sha256').update(name).digest('hex') });
  const bearer = (name: string) => ({ authorization: `Bearer ${name}` });
  const withKeys = (...names: string[]) => ({ mcpServers: {}, gateway: { auth: { apiKeys: names.map(keyOf) } } });
  await using gateway = await startGateway(withKeys('ann', 'bob'));
  const url = gateway.endpoint();
  const open = async (name: string) => {
    const session = await initialize(url, undefined, bearer(name));
    return { session, stream: await getEvents(url, session, bearer(name)) };
  };
  const [ann, bob] = [await open('ann'), await open('bob')];
  await applied(gateway, withKeys('bob', 'cy'));
  await ann.stream.ended();
  assert.equal((await post(url, rpc(1, 'ping'), ann.session, bearer('ann'))).status, 401);
  assert.equal((await post(url, rpc(1, 'ping'), bob.session, bearer('bob'))).status, 200);
  assert.equal((await initialize(url, undefined, bearer('cy'))).length > 0, true);
  assert.equal(bob.stream.isEnded, false);
  bob.stream.close();
});

test('the gateway moves to another address, and stays if it is in use', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {}, gateway: { reload: { drain: '1s' } } });
  const session = await initialize(gateway.endpoint());
  const taken = createServer().listen(0, '127.0.0.1');
  await new Promise((resolve) => taken.once('listening', resolve));
  const address = taken.address();
  const port = typeof address === 'object' && address !== null ? address.port : 0;
  await gateway.configure({ mcpServers: {}, gateway: { listen: `127.0.0.1:${port}` } });
  assert.match(await gateway.waitForLog(isRejected), /the port is in use/);
  taken.close();
  assert.equal((await post(gateway.endpoint(), rpc(1, 'ping'), session)).status, 200);

  const next = await freePort();
  await applied(gateway, { mcpServers: {}, gateway: { listen: `127.0.0.1:${next}`, reload: { drain: '1s' } } });
  const moved = `http://127.0.0.1:${next}/mcp`;
  assert.equal((await post(moved, rpc(1, 'ping'), session)).status, 200);
  await waitUntil(() =>
    post(gateway.endpoint(), rpc(1, 'ping'), session).then(
      () => false,
      () => true,
    ),
  );
});

test('a setting that needs a restart is reported and not applied', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: {} });
  await gateway.configure({ mcpServers: {}, gateway: { stateDir: join(gateway.dir, 'other') } });
  const line = await gateway.waitForLog((text) => (text.includes('at the next start') ? text : undefined));
  assert.match(line, /gateway\.stateDir/);
});

test('a key file that is made after the config that names it is used', TIMEOUT, async () => {
  const file = { mcpServers: { a: pidServer() } };
  await using gateway = await startGateway(file);
  const keyFile = join(gateway.dir, 'keys.json');
  await gateway.configure({ ...file, gateway: { auth: { keyFile } } });
  const rejected = await gateway.waitForLog(isRejected);
  assert.match(rejected, /keys\.json does not exist; make it with: linkspan key create <name>/);
  await writeFile(keyFile, '{"version":1,"keys":[]}', { mode: 0o600 });
  await gateway.waitForLog(isApplied);
  assert.equal((await post(gateway.endpoint(), rpc(1, 'initialize'))).status, 401);
});
