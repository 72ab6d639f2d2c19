import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { hash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { once } from 'node:events';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { initialize, post, rpc, send } from '../downstream/client.ts';
import { LIMITS } from '../../src/limits.ts';
import { hasUnseen } from '../../src/peer-text.ts';
import { freePort } from '../support/free-port.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { modernHeaders, modernText } from '../support/modern-wire.ts';

const TIMEOUT = { timeout: 60_000 };
const COUNT = {
  command: process.execPath,
  args: [fileURLToPath(new URL('../fixtures/servers/count-stdio.ts', import.meta.url))],
};

/** 3.9 MB in a body, of characters that take much room in a log line. */
const LONG = '名"\u009b\u202e'.repeat(330_000);
/** Nearly as much as Node accepts in all headers. */
const LONG_HEADER = 'h'.repeat(12_000);

type Params = Readonly<Record<string, unknown>>;
type Headers = Readonly<Record<string, string>>;

/** One request that the gateway refuses, or that names its client. */
interface Case {
  readonly what: string;
  readonly send: (url: string, session: string, key: Headers) => Promise<unknown>;
}

function inSession(what: string, body: () => string): Case {
  return { what, send: (url, session, key) => post(url, body(), session, key) };
}

/** Long texts in each member of the parameters of a method, one at a time. */
function members(method: string, params: Params): Case[] {
  return Object.entries(params).map(([name, value]) =>
    inSession(`${name} of ${method}`, () =>
      rpc(1, method, { ...params, [name]: typeof value === 'object' ? { ...value, name: LONG } : LONG }),
    ),
  );
}

const META = { io: 'x', progressToken: 'x', traceparent: 'x' };

const CASES: readonly Case[] = [
  inSession('the method', () => rpc(1, LONG)),
  inSession('the id', () => JSON.stringify({ jsonrpc: '2.0', id: LONG, method: 'none' })),
  inSession('the largest id', () => JSON.stringify({ jsonrpc: '2.0', id: '名'.repeat(1_000), method: 'none' })),
  inSession('a notification', () => JSON.stringify({ jsonrpc: '2.0', method: LONG })),
  inSession('no message', () => LONG),
  ...Object.keys(META).map((name) =>
    inSession(`_meta.${name}`, () => rpc(1, 'tools/call', { name: 'none', _meta: { ...META, [name]: LONG } })),
  ),
  inSession('a name in _meta', () => rpc(1, 'tools/call', { name: 'none', _meta: { [LONG]: 1 } })),
  ...members('tools/call', { name: 'none', arguments: {} }),
  ...members('prompts/get', { name: 'none', arguments: {} }),
  ...['read', 'subscribe', 'unsubscribe'].flatMap((verb) => members(`resources/${verb}`, { uri: 'x' })),
  ...members('completion/complete', { ref: { type: 'ref/prompt' }, argument: { value: 'x' } }),
  ...members('logging/setLevel', { level: 'x' }),
  ...['tools/list', 'prompts/list', 'resources/list', 'resources/templates/list', 'tasks/list'].flatMap((method) =>
    members(method, { cursor: 'x' }),
  ),
  ...['tasks/get', 'tasks/result', 'tasks/cancel'].flatMap((method) => members(method, { taskId: 'x' })),
  ...['protocolVersion', 'clientInfo', 'capabilities'].map((name): Case => ({
    what: `${name} of initialize`,
    send: (url, _session, key) => {
      const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'x', version: 'x' } };
      const value = { protocolVersion: LONG, clientInfo: { name: LONG, version: 'x' }, capabilities: { [LONG]: {} } };
      return post(url, rpc(1, 'initialize', { ...params, [name]: Object(value)[name] }), undefined, key);
    },
  })),
  ...['protocolVersion', 'clientInfo', 'clientCapabilities', 'logLevel'].map((name): Case => ({
    what: `${name} of 2026-07-28`,
    send: (url, _session, key) => {
      const value = { clientInfo: { name: LONG, version: 'x' }, clientCapabilities: { [LONG]: {} } };
      const meta = { [`io.modelcontextprotocol/${name}`]: Object(value)[name] ?? LONG };
      const text = modernText('tools/call', { name: 'none' }, { meta });
      return post(url, text, undefined, modernHeaders('tools/call', { name: 'none' }, { headers: key }));
    },
  })),
  ...['mcp-session-id', 'mcp-protocol-version', 'mcp-method', 'mcp-name', 'last-event-id', 'user-agent'].map(
    (name): Case => ({
      what: `the header ${name}`,
      send: (url, session, key) =>
        post(url, rpc(1, 'tools/call', { name: 'none' }), session, { ...key, [name]: LONG_HEADER }),
    }),
  ),
  {
    what: 'a name of 2026-07-28 in header and body',
    send: (url, _session, key) => {
      const params = { name: LONG_HEADER };
      return post(
        url,
        modernText('tools/call', params),
        undefined,
        modernHeaders('tools/call', params, { headers: key }),
      );
    },
  },
  ...['host', 'origin', 'authorization', 'content-type', 'accept', 'x-forwarded-for'].map((name): Case => ({
    what: `the header ${name}`,
    send: (url, session, key) => post(url, rpc(1, 'ping'), session, { ...key, [name]: `\u00e9\u009b${LONG_HEADER}` }),
  })),
  { what: 'the path', send: (url, _session, key) => send(`${url}/${LONG_HEADER}`, { headers: key }) },
];

/** A key of each case, so that none has too many refusals for a line. */
const KEYS = CASES.map((_, at) => `key-of-case-${at}-which-is-long-enough`);
const OPERATOR = 'the-key-of-the-operator';
const keyOf = (name: string, key: string) => ({ name, sha256: hash('sha256', key) });

function headersOf(key: string | undefined): Headers {
  return { authorization: `Bearer ${key}` };
}

function isSeen(text: string): boolean {
  return !hasUnseen(text.replaceAll('\n', ''));
}

/** Sends an unknown tool, and resolves with the lines that the log has got before its line. */
async function linesBefore(gateway: RunningGateway, marker: string, session: string, key: Headers): Promise<string[]> {
  await post(gateway.endpoint(), rpc(1, 'tools/call', { name: marker }), session, key);
  await gateway.waitForLog((line) => (line.includes(`Unknown tool: ${marker}"`) ? true : undefined), 60_000);
  const lines = gateway.logs().split('\n');
  return lines.slice(
    0,
    lines.findIndex((line) => line.includes(`Unknown tool: ${marker}"`)),
  );
}

for (const accessLog of ['all', 'none']) {
  // N-70
  test(
    `4 MB in any member of any method are at most 1 KiB of log (accessLog ${accessLog})`,
    { timeout: 300_000 },
    async () => {
      const auth = { apiKeys: KEYS.map((key, at) => keyOf(`case ${at}`, key)) };
      const operatorKeys = [keyOf('op', OPERATOR)];
      await using gateway = await startGateway({
        mcpServers: { count: COUNT },
        gateway: { logLevel: 'info', accessLog, auth, operatorKeys, legacySse: true },
      });
      const url = gateway.endpoint();
      const sessions: string[] = [];
      for (const key of KEYS) sessions.push(await initialize(url, '2025-11-25', headersOf(key)));
      let known = (await linesBefore(gateway, 'first', sessions[0] ?? '', headersOf(KEYS[0]))).length + 1;
      const sizes: Record<string, number> = {};
      for (const [at, { what, send: act }] of CASES.entries()) {
        const [session = '', key] = [sessions[at], headersOf(KEYS[at])];
        // A refused header closes the connection before the body is read.
        await act(url, session, key).catch(() => undefined);
        const before = await linesBefore(gateway, `marker-${at}`, session, key);
        const written = before.slice(known).map((line) => `${line}\n`);
        known = before.length + 1;
        sizes[what] = Buffer.byteLength(written.join(''));
        assert.ok(
          written.every((line) => isSeen(line)),
          what,
        );
      }
      const tooLong = Object.entries(sizes).filter(([, bytes]) => bytes > 1_024);
      assert.deepEqual(tooLong, []);
      assert.ok(Object.values(sizes).filter((bytes) => bytes > 100).length > 20, JSON.stringify(sizes));

      for (const path of ['clients', 'sessions', 'calls', 'log', 'upstreams', 'status']) {
        const admin = await send(`${gateway.operatorUrl}/admin/v1/${path}`, { headers: headersOf(OPERATOR) });
        assert.equal(admin.status, 200, path);
        assert.ok(isSeen(admin.text), path);
        const longest = Math.max(...[...admin.text.matchAll(/"(?:[^"\\]|\\.)*"/g)].map(([text]) => text.length));
        assert.ok(longest < 1_000, `${path}: a text of ${longest} characters`);
      }
    },
  );
}

// N-70
test('refusals of one principal are some lines a second, and the others are counted', TIMEOUT, async () => {
  await using gateway = await startGateway({ mcpServers: { count: COUNT }, gateway: { accessLog: 'errors' } });
  const url = gateway.endpoint();
  const session = await initialize(url);
  const startMs = performance.now();
  for (let i = 0; i < 200; i++) await post(url, rpc(i, 'tools/call', { name: 'none' }), session);
  const seconds = Math.ceil((performance.now() - startMs) / 1_000);
  const count = () => {
    const lines = gateway.logs().split('\n');
    const refused = lines.filter((line) => line.includes('Unknown tool: none')).length;
    const counted = lines.filter((line) => line.includes('further refused requests have no line'));
    const suppressed = counted.reduce((sum, line) => sum + Number(JSON.parse(line).suppressed), 0);
    return { refused, suppressed };
  };
  await gateway.waitForLog(() => (count().refused + count().suppressed === 200 ? true : undefined), 60_000);
  assert.ok(count().refused <= (seconds + 1) * LIMITS.refusalLinesPerSecond, JSON.stringify(count()));
  assert.ok(count().suppressed > 0);
});

/** A notification whose line is long in every format. */
const NOTED = JSON.stringify({ jsonrpc: '2.0', method: `notifications/${'n'.repeat(180)}` });

for (const format of ['json', 'pretty']) {
  // N-70
  test(`a gateway whose log nobody reads answers, counts losses, and ends (${format})`, TIMEOUT, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-unread-'));
    const [port, operatorPort] = [await freePort(), await freePort()];
    const ours = { listen: `127.0.0.1:${port}`, operator: `127.0.0.1:${operatorPort}`, stateDir: join(dir, 'state') };
    const file = join(dir, 'config.json');
    await writeFile(file, JSON.stringify({ mcpServers: { count: COUNT }, gateway: { ...ours, accessLog: 'all' } }));
    const main = fileURLToPath(new URL('../../src/main.ts', import.meta.url));
    const args = [main, 'run', '--config', file, '--log-format', format];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'pipe'] });
    try {
      const exit = once(child, 'exit');
      const url = `http://127.0.0.1:${port}/mcp`;
      const metric = async () => {
        const { text } = await send(`http://127.0.0.1:${operatorPort}/metrics`, {});
        return Number(/^linkspan_log_dropped_lines_total (\d+)$/m.exec(text)?.[1] ?? -1);
      };
      while ((await metric().catch(() => -1)) !== 0) await sleep(50);
      // Of a revision with batches, which make many lines.
      const session = await initialize(url, '2025-03-26');
      const messages = Array.from({ length: LIMITS.batchMessages }, () => NOTED);
      while ((await metric()) === 0) {
        for (let i = 0; i < 50; i++) assert.equal((await post(url, `[${messages.join()}]`, session)).status, 202);
      }
      assert.equal((await post(url, rpc(1, 'ping'), session)).status, 200);
      child.kill('SIGTERM');
      assert.deepEqual(await exit, [0, null]);
    } finally {
      child.kill('SIGKILL');
      await rm(dir, { recursive: true, force: true });
    }
  });
}
