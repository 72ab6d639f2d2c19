import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import { answerQuestion, type OperatorHandler, type ReplicaAnswer } from '../../src/replicas/operator-question.ts';
import { type ForwardedHandler, NOT_SERVING, STARTING } from '../../src/replicas/internal-server.ts';
import { method, ServedMethods } from '../../src/store/piped/pipe-calls.ts';
import { z } from 'zod';
import { openPair } from './replica-pair.ts';

const OPTIONS = { timeout: 120_000 };

const ECHO = method('echo', z.object({ text: z.string() }), z.object({ text: z.string() }));

function served(): OperatorHandler {
  const methods = new ServedMethods();
  methods.serve(ECHO, async (args) => args);
  return (operation, args) => methods.answer(operation, args);
}

/** Answers questions as a replica does, and requests of clients with 204. */
function replica(handle: OperatorHandler = served(), onFailed: (thrown: unknown) => void = () => undefined) {
  const kinds: string[] = [];
  const handler: ForwardedHandler = (exchange, head) => {
    kinds.push(head.kind);
    if (head.kind === 'admin') {
      answerQuestion(exchange, head, handle, onFailed);
      return;
    }
    exchange.outgoing.writeHead(204);
    exchange.outgoing.end();
  };
  return { kinds, handler };
}

function whyOf(answer: ReplicaAnswer): string | undefined {
  return 'why' in answer ? answer.why : undefined;
}

test('another replica answers a question for an operator', OPTIONS, async () => {
  await using pair = await openPair(replica().handler);
  assert.deepEqual(await pair.owner.ask('ops', 'echo', { text: 'hello' }, 60_000), { value: { text: 'hello' } });
});

test('a question of another version is refused with its reason', OPTIONS, async () => {
  await using pair = await openPair(replica().handler);
  for (const [operation, args] of [
    ['unknown', {}],
    ['echo', { text: 7 }],
  ] as const) {
    assert.equal(whyOf(await pair.owner.ask('ops', operation, args, 60_000)), 'it has another version');
  }
});

test('a replica that does not answer in time is given up', OPTIONS, async () => {
  await using pair = await openPair(replica(() => new Promise(() => undefined)).handler);
  // It includes the connection.
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 2_000)), 'it does not answer');
});

test('a replica that starts is told apart from one that is busy', OPTIONS, async () => {
  const statuses = [STARTING, NOT_SERVING];
  await using pair = await openPair((exchange) => exchange.refuse(statuses.shift() ?? 0));
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), 'it is starting');
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), 'it refuses questions at the moment');
});

test('a replica that cannot be reached is given up', OPTIONS, async () => {
  await using pair = await openPair(replica().handler);
  await pair.server.close();
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), 'it cannot be reached');
});

test('a replica that fails to answer logs the reason', OPTIONS, async () => {
  const failures: unknown[] = [];
  const failing = replica(
    () => Promise.reject(new Error('broken')),
    (thrown) => failures.push(thrown),
  );
  await using pair = await openPair(failing.handler);
  assert.match(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)) ?? '', /failed to answer/);
  assert.equal(failures.length, 1);
});

// limit replicaAnswerBytes
test('an answer for an operator beyond the limit is given up', OPTIONS, async () => {
  let bytes = 0;
  const large = replica(async () => ({ text: 'x'.repeat(bytes) }));
  await using pair = await openPair(large.handler);
  bytes = LIMITS.replicaAnswerBytes - 100;
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), undefined);
  bytes = LIMITS.replicaAnswerBytes;
  assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), 'its answer is too large');
});

test('a request of a client never becomes a question of an operator', OPTIONS, async () => {
  const { kinds, handler } = replica();
  await using pair = await openPair(handler);
  const headers = { 'content-type': 'application/json', kind: 'admin', 'x-kind': 'admin' };
  const body = JSON.stringify({ kind: 'admin', method: 'echo', target: '{}' });
  for (const path of ['', '?kind=admin', '/admin/v1/status']) {
    assert.equal((await fetch(`${pair.url}${path}`, { method: 'POST', headers, body })).status, 204);
  }
  assert.deepEqual(kinds, ['http', 'http', 'http']);
});

// SEC-45
test('a question of anybody but an operator is not answered', OPTIONS, async () => {
  let answered = 0;
  const handle: OperatorHandler = async () => ++answered;
  for (const principal of [LOCAL, { key: 'key:operator:ops', label: 'operator ops', scopes: [] }]) {
    await using pair = await openPair((exchange, head) => {
      answerQuestion(exchange, { ...head, principal }, handle, () => undefined);
    });
    assert.equal(whyOf(await pair.owner.ask('ops', 'echo', {}, 60_000)), 'it has another version', principal.key);
  }
  assert.equal(answered, 0);
});
