import assert from 'node:assert/strict';
import { readdir, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { limitFiles } from '../support/limit-files.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';

const OPTIONS = { timeout: 120_000 };
const SERVER = join(import.meta.dirname, '../fixtures/servers/pid-stdio.ts');
/** In every part of a request that a client chooses. */
const CANARY = 'canary; touch /tmp/canary $(id) `id` --inspect=0.0.0.0:9229 LD_PRELOAD=/canary.so';

/** Variables that say where files, certificates, registries and proxies are. */
const PLACES = /^(?:LC_|XDG_|SSL_CERT_|NODE_EXTRA_CA_CERTS$|REQUESTS_CA_BUNDLE$|UV_|npm_config_|\w+_proxy$)/i;

/** Secrets and dangerous variables in the environment of the gateway. */
const GATEWAY_ENV = {
  AWS_SECRET_ACCESS_KEY: 'gateway-secret',
  LINKSPAN_OPERATOR_KEY: 'gateway-secret',
  NODE_OPTIONS: '--title=gateway-secret',
  GITHUB_TOKEN: 'gateway-secret',
  HTTPS_PROXY: 'http://user:gateway-secret@proxy.example.com',
  LANG: 'C.UTF-8',
};

/** Returns what the kernel has of a process: its arguments and its environment, as texts. */
async function launchOf(pid: number): Promise<{ args: readonly string[]; env: ReadonlyMap<string, string> }> {
  const texts = async (file: string) => (await readFile(`/proc/${pid}/${file}`, 'utf8')).split('\0').slice(0, -1);
  const pairs = (await texts('environ')).map((text): [string, string] => {
    const at = text.indexOf('=');
    return [text.slice(0, at), text.slice(at + 1)];
  });
  return { args: await texts('cmdline'), env: new Map(pairs) };
}

function pidIn(text: string): number {
  return Number(/"text":"(\d+) /.exec(text)?.[1]);
}

// SEC-41
test('no request reaches the command line or environment of a child', OPTIONS, async () => {
  const env = { OWN: 'a "quoted" $VALUE' };
  const pid = { command: process.execPath, args: [SERVER, 'a b', '$HOME', '*'], env };
  await using gateway = await startGateway({ mcpServers: { pid } }, { env: GATEWAY_ENV });
  const url = gateway.endpoint();
  const hostile = { 'user-agent': CANARY, 'x-canary': CANARY, baggage: `a=${encodeURIComponent(CANARY)}` };

  const capabilities = { experimental: { [CANARY]: { env: { CANARY }, args: [CANARY] } } };
  const clientInfo = { name: CANARY, version: CANARY, title: CANARY };
  const params = { protocolVersion: '2025-11-25', capabilities, clientInfo, _meta: { [CANARY]: CANARY } };
  const opened = await post(url, rpc(0, 'initialize', params), undefined, hostile);
  const session = String(opened.headers['mcp-session-id']);
  const call = { name: 'pid__pid', arguments: { args: [CANARY], env: { CANARY }, command: CANARY } };
  const legacy = pidIn((await post(url, rpc(1, 'tools/call', call), session, hostile)).text);

  const meta = { 'io.modelcontextprotocol/clientInfo': clientInfo, [CANARY]: CANARY };
  const answered = await modernPost(url, 'tools/call', call, { capabilities, meta, headers: hostile });
  const modern = pidIn(JSON.stringify(answerOf(answered).result));

  const passedOn = ['PATH', 'HOME', 'USER', 'LOGNAME', 'SHELL', 'TERM', 'TMPDIR', 'TZ', 'LANG', 'LANGUAGE'];
  const allowed = new Set([...passedOn, ...Object.keys(marker()), 'NODE_COMPILE_CACHE', 'OWN']);
  for (const each of [legacy, modern]) {
    const launch = await launchOf(each);
    assert.deepEqual(launch.args, [process.execPath, SERVER, 'a b', '$HOME', '*']);
    assert.equal(launch.env.get('OWN'), env.OWN);
    assert.equal(launch.env.get('LANG'), GATEWAY_ENV.LANG);
    const others = [...launch.env.keys()].filter((name) => !allowed.has(name) && !PLACES.test(name));
    assert.deepEqual(others, ['LINKSPAN_PROCESS'], 'nothing else of the environment of the gateway');
    assert.doesNotMatch(JSON.stringify([...launch.env]), /canary|gateway-secret/);
  }
  assert.notEqual(legacy, modern);
});

// N-84
test('a start without open files to spare names the limit', OPTIONS, async () => {
  const server = { command: process.execPath, args: [SERVER] };
  await using gateway = await startGateway({ mcpServers: { pid: server } });
  const open = new Set(await readdir(`/proc/${gateway.pid}/fd`));
  let lowestFree = 0;
  while (open.has(String(lowestFree))) lowestFree++;
  // One for the connection of the client, and none for the pipes of a process.
  const before = limitFiles(gateway.pid, String(lowestFree + 1));
  const { text } = await modernPost(gateway.endpoint(), 'tools/call', { name: 'pid__pid', arguments: {} });
  limitFiles(gateway.pid, before);
  assert.match(text, /could not be started \(EMFILE\): the gateway has too many open files \(ulimit -n\)/);
});
