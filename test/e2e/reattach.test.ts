import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { z } from 'zod';
import { getEvents, initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { startRealIssuer } from '../support/real-issuer.ts';
import { SessionServer, WATCHED } from '../support/session-server.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const ENDINGS = ['SIGTERM', 'SIGKILL'] as const;

type Members = Readonly<Record<string, unknown>>;

/** A gateway that is started several times, with its state. */
class Place implements AsyncDisposable {
  readonly upstream: SessionServer;
  readonly #dir: string;
  #gateway: RunningGateway | undefined;

  private constructor(upstream: SessionServer, dir: string) {
    this.upstream = upstream;
    this.#dir = dir;
  }

  static async open(): Promise<Place> {
    return new Place(await SessionServer.start(), await mkdtemp(join(tmpdir(), 'linkspan-reattach-')));
  }

  /** Starts the gateway. Resolves with the URL of its endpoint for the upstream. */
  async start(own: Members = {}): Promise<string> {
    const mcpServers = { demo: { url: this.upstream.url, ...own } };
    this.#gateway = await startGateway({ mcpServers }, { dir: this.#dir });
    return this.#gateway.endpoint('demo');
  }

  async end(how: (typeof ENDINGS)[number]): Promise<void> {
    this.#gateway?.kill(how);
    await this.#gateway?.ended;
  }

  async metric(name: string): Promise<string | undefined> {
    const text = await (await fetch(`${this.#gateway?.operatorUrl}/metrics`)).text();
    return text.split('\n').find((line) => line.startsWith(name));
  }

  /** Resolves when the session at the upstream is stored. */
  async stored(): Promise<string> {
    await waitUntil(async () => (await this.records()).includes('"attach"'));
    return await this.records();
  }

  async records(): Promise<string> {
    return await readFile(join(this.#dir, 'state', 'sessions.jsonl'), 'utf8');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gateway?.stop();
    await this.upstream[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }
}

const RESULT = z.object({
  result: z.object({
    content: z.array(z.object({ text: z.string() })),
    _meta: z.record(z.string(), z.unknown()).optional(),
  }),
});

/** Calls a tool. Resolves with its text, and with the report about lost state if there is one. */
async function call(endpoint: string, session: string, name: string) {
  const answer = messagesOf(await post(endpoint, rpc(1, 'tools/call', { name, arguments: {} }), session)).at(-1);
  const parsed = RESULT.safeParse(answer);
  assert.ok(parsed.success, JSON.stringify(answer));
  const { content, _meta: meta = {} } = parsed.data.result;
  return { text: content[0]?.text, lost: meta['io.linkspan/stateLost'] };
}

async function openSession(endpoint: string): Promise<string> {
  const session = await initialize(endpoint);
  await post(endpoint, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  return session;
}

/** Starts a gateway and opens a session, which has a session with a counter of 1 at the upstream. */
async function startCounting(place: Place, own?: Members) {
  const endpoint = await place.start(own);
  const session = await openSession(endpoint);
  assert.equal((await call(endpoint, session, 'count')).text, '1');
  return { endpoint, session };
}

for (const how of ENDINGS) {
  // D7
  test(`after ${how} a session goes on with its session at a remote upstream`, TIMEOUT, async () => {
    await using place = await Place.open();
    const { session } = await startCounting(place);
    const state = await place.stored();
    const [served] = place.upstream.sessions.filter(({ count }) => count > 0);
    assert.ok(served !== undefined);
    assert.ok(!state.includes(served.id), 'the state directory has no session id of an upstream');
    await place.end(how);

    const second = await place.start();
    assert.deepEqual(await call(second, session, 'count'), { text: '2', lost: undefined });
    assert.equal(served.requests.filter((request) => request.startsWith('DELETE')).length, 0);
    assert.match(
      (await place.metric('linkspan_upstream_reattached_total{upstream="demo",outcome="continued"}')) ?? '',
      / 1$/,
    );
    await place.end(how);

    const third = await place.start();
    assert.deepEqual(await call(third, session, 'count'), { text: '3', lost: undefined });
    assert.equal((await send(third, { method: 'DELETE', headers: { 'mcp-session-id': session } })).status, 204);
    await waitUntil(() => Promise.resolve(served.requests.some((request) => request.startsWith('DELETE'))));
  });
}

// D7
test('an answer that begins a state at an upstream comes after its record', TIMEOUT, async () => {
  await using place = await Place.open();
  const endpoint = await place.start();
  for (let count = 1; count <= 30; count += 1) {
    const session = await openSession(endpoint);
    assert.equal((await call(endpoint, session, 'count')).text, '1');
    assert.equal((await place.records()).split('"use"').length - 1, count);
  }
});

// D7
test('a session that its upstream has forgotten begins anew, and that is reported', TIMEOUT, async () => {
  await using place = await Place.open();
  const { session } = await startCounting(place);
  await place.stored();
  await place.end('SIGKILL');
  await place.upstream.forget();

  const second = await place.start();
  const after = await call(second, session, 'count');
  assert.equal(after.text, '1');
  assert.match(JSON.stringify(after.lost), /"reason":"restored"/);
  assert.deepEqual(await call(second, session, 'count'), { text: '2', lost: undefined });
  assert.match(
    (await place.metric('linkspan_upstream_reattached_total{upstream="demo",outcome="refused"}')) ?? '',
    / 1$/,
  );
});

// D7
test('with other credentials for the upstream its session is not continued', TIMEOUT, async () => {
  await using place = await Place.open();
  const { session } = await startCounting(place, { headers: { authorization: 'Bearer one' } });
  await place.stored();
  await place.end('SIGKILL');
  const second = await place.start({ headers: { authorization: 'Bearer two' } });
  const after = await call(second, session, 'count');
  assert.equal(after.text, '1');
  assert.match(JSON.stringify(after.lost), /"reason":"restored"/);
});

// D7
test('a session goes on with the client of its credentials, but not with another one', TIMEOUT, async () => {
  const other = { client_id: 'other', client_secret: 'the-secret-of-the-other-client' };
  await using issuer = await startRealIssuer('jwt', [other]);
  await using place = await Place.open();
  const auth = (clientId: string, clientSecret: string) => ({
    auth: { kind: 'clientCredentials', issuer: issuer.issuer, clientId, clientSecret, scopes: ['mcp'] },
  });
  const own = auth(issuer.client.id, issuer.client.secret);
  const { session } = await startCounting(place, own);
  await place.stored();
  await place.end('SIGKILL');
  assert.deepEqual(await call(await place.start(own), session, 'count'), { text: '2', lost: undefined });
  await place.end('SIGKILL');
  const endpoint = await place.start(auth(other.client_id, other.client_secret));
  const after = await call(endpoint, session, 'count');
  assert.equal(after.text, '1');
  assert.match(JSON.stringify(after.lost), /"reason":"restored"/);
});

// D7
test('while the upstream is away calls fail, and afterwards its session goes on', TIMEOUT, async () => {
  await using place = await Place.open();
  const { session } = await startCounting(place);
  await place.stored();
  await place.end('SIGKILL');
  place.upstream.outage = 503;
  const second = await place.start();
  const refused = await post(second, rpc(1, 'tools/call', { name: 'count', arguments: {} }), session);
  assert.match(refused.text, /"executed":"no"/);
  place.upstream.outage = undefined;
  await waitUntil(async () => {
    const { text } = await post(second, rpc(2, 'tools/call', { name: 'count', arguments: {} }), session);
    if (text.includes('"error"')) return false;
    assert.match(text, /"text":"2"/);
    assert.doesNotMatch(text, /stateLost/);
    return true;
  });
});

// D7
test('after a restart an upstream session has its level, subscriptions and lists', TIMEOUT, async () => {
  await using place = await Place.open();
  const { endpoint: first, session } = await startCounting(place);
  await post(first, rpc(2, 'logging/setLevel', { level: 'warning' }), session);
  await post(first, rpc(3, 'resources/subscribe', { uri: WATCHED }), session);
  await place.stored();
  const [served] = place.upstream.sessions.filter(({ count }) => count > 0);
  assert.ok(served !== undefined);
  await place.end('SIGKILL');
  // Nobody listens to the upstream meanwhile.
  served.server.registerTool('meanwhile', {}, () => ({ content: [] }));

  const second = await place.start();
  const stream = await getEvents(second, session);
  const methods = () => stream.messages.map(({ method }) => method);
  for (const method of ['notifications/resources/updated', 'notifications/tools/list_changed']) {
    await stream.until(() => methods().includes(method));
  }
  await waitUntil(async () => {
    const { text } = await post(second, rpc(4, 'tools/list'), session);
    return text.includes('"meanwhile"');
  });
  await waitUntil(() => Promise.resolve(served.subscribed.length === 2 && served.levels.at(-1) === 'warning'));
  assert.deepEqual(served.subscribed, [WATCHED, WATCHED]);
  await served.server.server.sendResourceUpdated({ uri: WATCHED });
  const updates = () => methods().filter((method) => method === 'notifications/resources/updated').length;
  await stream.until(() => updates() === 2);
  assert.equal((await call(second, session, 'count')).text, '2');
  stream.close();
});

// D7
test('the session at the upstream ends with the session of the client', TIMEOUT, async () => {
  await using place = await Place.open();
  const { endpoint: first, session } = await startCounting(place);
  await place.stored();
  const [served] = place.upstream.sessions.filter(({ count }) => count > 0);
  assert.equal((await send(first, { method: 'DELETE', headers: { 'mcp-session-id': session } })).status, 204);
  await waitUntil(() => Promise.resolve(served?.requests.at(-1)?.startsWith('DELETE') === true));
});

// D7
test('a DELETE as the first request after a restart ends the session at the upstream', TIMEOUT, async () => {
  await using place = await Place.open();
  const { session } = await startCounting(place);
  await place.stored();
  const [served] = place.upstream.sessions.filter(({ count }) => count > 0);
  await place.end('SIGTERM');
  assert.equal(served?.requests.at(-1)?.startsWith('DELETE'), false);
  const second = await place.start();
  assert.equal((await send(second, { method: 'DELETE', headers: { 'mcp-session-id': session } })).status, 204);
  await waitUntil(() => Promise.resolve(served?.requests.at(-1)?.startsWith('DELETE') === true));
});
