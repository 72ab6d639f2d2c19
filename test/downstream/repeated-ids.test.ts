/** Clients such as claude.ai, which send the same id with each request of a session. Over Streamable HTTP an answer belongs to its POST. */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { act, HELD, type NonceRemote, startRemote } from '../support/nonce-remote.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { waitUntil } from '../support/wait-until.ts';
import { type Events, getEvents, initialize, messagesOf, post, postForEvents, rpc } from './client.ts';

const TIMEOUT = { timeout: 120_000 };
const CANCEL = JSON.stringify({ jsonrpc: '2.0', method: 'notifications/cancelled', params: { requestId: 1 } });

let remote: NonceRemote;
let gateway: OpenGateway;

before(async () => {
  remote = await startRemote();
  gateway = await openGateway({ nonce: { url: `${remote.url}/mcp` } });
});

after(async () => {
  await gateway[Symbol.asyncDispose]();
  await remote[Symbol.asyncDispose]();
});

/** Begins calls with the id and the progress token 1, which send their nonce as progress, and wait. */
async function begin(session: string, ...nonces: readonly string[]): Promise<[Events, ...Events[]]> {
  const calls: Events[] = [];
  for (const nonce of nonces) {
    const params = { ...act(nonce, ['progress'], HELD), _meta: { progressToken: 1 } };
    calls.push(await postForEvents(gateway.url, rpc(1, 'tools/call', params), session));
    await waitUntil(async () => (await remote.ran(nonce)) === 1);
  }
  await remote.continue();
  const [first, ...others] = await Promise.all(calls.map((call) => call.until(({ numbers }) => numbers.length === 1)));
  return [first ?? assert.fail(), ...others];
}

/** Returns each message of a call: the progress with its text, the answer with the text of its result. */
const textsOf = ({ messages }: Events) =>
  messages.map((message) => /nonce:\d+:\d+;/.exec(JSON.stringify(message))?.[0]);

// L-014 T-026
test('calls with equal ids and tokens are each answered on their own POST', TIMEOUT, async () => {
  const session = await initialize(gateway.url);
  const nonces = ['nonce:1:1;', 'nonce:1:2;'];
  const [first, ...others] = await begin(session, ...nonces);
  for (const method of ['tools/list', 'ping']) {
    const [answer] = messagesOf(await post(gateway.url, rpc(1, method), session));
    assert.ok(answer?.id === 1 && answer.result !== undefined, JSON.stringify(answer));
  }
  // The answer to a call whose connection broke comes on the stream that the client resumes.
  first.close();
  await remote.continue();
  const resumed = await getEvents(gateway.url, session, { 'last-event-id': first.lastId });
  await Promise.all([resumed, ...others].map((call) => call.ended()));
  assert.deepEqual([textsOf(first), textsOf(resumed)], [[nonces[0]], [nonces[0]]]);
  assert.deepEqual(others.map(textsOf), [[nonces[1], nonces[1]]]);
  for (const nonce of nonces) assert.equal(await remote.ran(nonce), 1);
});

// L-014
test('a cancellation ends no call if several of its id are in flight', TIMEOUT, async () => {
  const session = await initialize(gateway.url);
  const nonces = ['nonce:2:1;', 'nonce:2:2;'];
  const calls = await begin(session, ...nonces);
  assert.equal((await post(gateway.url, CANCEL, session)).status, 202);
  await remote.continue();
  await Promise.all(calls.map((call) => call.ended()));
  assert.deepEqual(
    calls.map(textsOf),
    nonces.map((nonce) => [nonce, nonce]),
  );

  const [last] = await begin(session, 'nonce:2:3;');
  assert.equal((await post(gateway.url, CANCEL, session)).status, 202);
  await last.ended();
  assert.deepEqual(textsOf(last), ['nonce:2:3;'], 'one alone is cancelled');
});

// L-014
test('a batch may not have two requests with the same id', TIMEOUT, async () => {
  const session = await initialize(gateway.url, '2025-03-26');
  const batch = `[${rpc(1, 'tools/list')},${rpc(1, 'tools/list')}]`;
  const answers = messagesOf(await post(gateway.url, batch, session)).flat();
  assert.equal(answers.length, 2);
  assert.equal(answers.filter(({ error }) => error !== undefined).length, 1);
});
