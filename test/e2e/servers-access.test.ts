import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { getEvents, initialize, post, rpc, send } from '../downstream/client.ts';
import { Child } from '../support/child.ts';
import { connect, connectOver, SDKS, textOf } from '../support/either-sdk.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { MAIN } from '../support/program.ts';

const TIMEOUT = { timeout: 120_000 };
const KEYS = { ada: 'a-key-of-ada-0123456789abcdef', bob: 'a-key-of-bob-0123456789abcdef' } as const;
const apiKeys = Object.entries(KEYS).map(([name, key]) => ({
  name,
  sha256: createHash('sha256').update(key).digest('hex'),
}));
const as = (name: keyof typeof KEYS) => ({ authorization: `Bearer ${KEYS[name]}` });

let gateway: RunningGateway;
let dir = '';

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-access-'));
  const { everything } = referenceServers(dir);
  gateway = await startGateway({ mcpServers: { everything }, gateway: { auth: { apiKeys } } });
});

after(async () => {
  await gateway.stop();
  await rm(dir, { recursive: true, force: true });
});

for (const sdk of SDKS) {
  test(`${sdk} with a key is served, over either transport`, TIMEOUT, async () => {
    const headers = as('ada');
    await using client = await connect(sdk, gateway.endpoint(), { headers });
    assert.equal(textOf(await client.call('everything__echo', { message: 'x' })), 'Echo: x');
    await using older = await connectOver(sdk, { kind: 'sse', url: `${gateway.url}/sse`, headers });
    assert.equal(textOf(await older.call('everything__echo', { message: 'x' })), 'Echo: x');
  });

  //
  test(`${sdk} without a key, or with a wrong one, is refused`, TIMEOUT, async () => {
    await assert.rejects(connect(sdk, gateway.endpoint()), /401|unauthorized/i);
    const headers = { authorization: 'Bearer nobody' };
    await assert.rejects(connect(sdk, gateway.endpoint(), { headers }), /401|unauthorized/i);
  });
}

//
test('every route refuses a request without a key, and names the scheme', TIMEOUT, async () => {
  const id = await initialize(gateway.endpoint(), '2025-11-25', as('ada'));
  const session = { 'mcp-session-id': id };
  const answers = [
    await post(gateway.endpoint(), rpc(1, 'ping'), id),
    await post(gateway.endpoint('everything'), rpc(1, 'ping')),
    await send(gateway.endpoint(), { headers: { ...session, accept: 'text/event-stream' } }),
    await send(gateway.endpoint(), { method: 'DELETE', headers: session }),
    await send(`${gateway.url}/sse`, { headers: { accept: 'text/event-stream' } }),
    await post(`${gateway.endpoint()}?access_token=${KEYS.ada}`, rpc(1, 'ping'), id),
  ];
  for (const { status, headers, text } of answers) {
    assert.equal(status, 401, text);
    assert.match(headers['www-authenticate'] ?? '', /^Bearer/);
    assert.match(text, /-31001/);
  }
  assert.equal((await post(gateway.endpoint(), rpc(2, 'ping'), id, as('ada'))).status, 200);
});

// S-001
test('a session of another principal is unknown, and continues for its owner', TIMEOUT, async () => {
  const id = await initialize(gateway.endpoint(), '2025-11-25', as('ada'));
  const called = await post(gateway.endpoint(), rpc(1, 'ping'), id, as('bob'));
  assert.equal(called.status, 404);
  assert.match(called.text, /-32001/);
  const stream = await getEvents(gateway.endpoint(), id, as('bob'));
  assert.equal(stream.status, 404);
  stream.close();
  const headers = { 'mcp-session-id': id };
  const ended = await send(gateway.endpoint(), { method: 'DELETE', headers: { ...headers, ...as('bob') } });
  assert.equal(ended.status, 404);

  assert.equal((await post(gateway.endpoint(), rpc(2, 'ping'), id, as('ada'))).status, 200);
  const own = await send(gateway.endpoint(), { method: 'DELETE', headers: { ...headers, ...as('ada') } });
  assert.equal(own.status, 204);
  assert.equal((await post(gateway.endpoint(), rpc(3, 'ping'), id, as('ada'))).status, 404);
});

// SEC-13
test('no API key reaches an upstream', TIMEOUT, async () => {
  await using client = await connect('SDK v1', gateway.endpoint(), { headers: as('ada') });
  const environment = textOf(await client.call('everything__get-env'));
  assert.ok(!environment.includes(KEYS.ada), environment);
  assert.ok(!gateway.logs().includes(KEYS.ada));
});

/** Runs a command to its end. */
async function run(verb: string, config: object, ...args: readonly string[]) {
  const file = join(dir, 'config.json');
  await writeFile(file, JSON.stringify(config));
  await using child = await Child.start(process.execPath, [MAIN, verb, '--config', file, ...args]);
  const { code } = await child.ended;
  return { code, output: child.logs() };
}

// SEC-14
test('the gateway does not listen on a network without authentication', TIMEOUT, async () => {
  const servers = { mcpServers: { a: { url: 'http://127.0.0.1:9/mcp' } } };
  const listen = '0.0.0.0:0';
  const open = await run('run', { ...servers, gateway: { listen, operator: false, stateDir: dir } });
  assert.equal(open.code, 1);
  assert.match(open.output, /auth/);
  assert.ok(!open.output.includes('"listening"'), open.output);
  const asked = await run('run', { ...servers, gateway: { operator: false, stateDir: dir } }, '--listen', listen);
  assert.equal(asked.code, 1);
  const guarded = await run('validate', { ...servers, gateway: { listen, auth: { apiKeys } } });
  assert.equal(guarded.code, 0, guarded.output);
});
