import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, test } from 'node:test';
import { DecisionPoint } from '../../src/auth/decision-point.ts';
import { Egress } from '../../src/egress/egress.ts';
import { LIMITS } from '../../src/limits.ts';
import type { ExternalConfig } from '../../src/policy/access-config.ts';
import type { ExternalAnswer } from '../../src/policy/external-question.ts';
import { listenLocally } from '../support/local-port.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { ALLOW, startDecisionPoint } from '../support/test-decision-point.ts';

const TIMEOUT = { timeout: 120_000 };
const QUESTION = '{"subject":{"type":"user","id":"ada"}}';
const egress = new Egress();
after(() => egress[Symbol.asyncDispose]());

function asking(config: ExternalConfig) {
  const limits: string[] = [];
  const reported: string[] = [];
  const point = new DecisionPoint({
    egress,
    onAnswer: ({ outcome }) => void reported.push(outcome),
    onLimit: (limit) => void limits.push(limit),
  });
  const ask = (owner = 'ada', text = QUESTION, signal = new AbortController().signal): Promise<ExternalAnswer> =>
    point.ask(config, owner, text, signal);
  return { ask, limits, reported };
}

// P-012
test('limit externalQuestions: further questions wait, and too many are refused', TIMEOUT, async () => {
  await using server = await startDecisionPoint();
  const held = Promise.withResolvers<void>();
  server.reply = (response, question) => void held.promise.then(() => ALLOW(response, question));
  const { ask, limits } = asking(server.config);
  const first = Array.from({ length: LIMITS.externalQuestions }, () => ask('bob'));
  await server.until(() => (server.asked.length === LIMITS.externalQuestions ? true : undefined));
  const waiting = Array.from({ length: 1_024 }, () => ask('bob'));
  assert.deepEqual(await ask('bob'), { outcome: 'overloaded', why: 'too many questions wait' });
  assert.deepEqual(limits, ['externalQuestions']);
  assert.equal(server.asked.length, LIMITS.externalQuestions);
  const another = ask('ada');
  held.resolve();
  const answers = await Promise.all([...first, ...waiting, another]);
  assert.ok(answers.every(({ outcome }) => outcome === 'allowed'));
});

// P-012
test('limit externalQuestionBytes: a larger question is not sent', TIMEOUT, async () => {
  await using server = await startDecisionPoint();
  const { ask, limits, reported } = asking(server.config);
  const room = LIMITS.externalQuestionBytes - '{"a":""}'.length;
  const questionOf = (length: number) => JSON.stringify({ a: 'a'.repeat(length) });
  assert.equal((await ask('ada', questionOf(room))).outcome, 'allowed');
  assert.equal((await ask('ada', questionOf(room + 1))).outcome, 'too-large');
  assert.deepEqual(limits, ['externalQuestionBytes']);
  assert.deepEqual(reported, ['allowed', 'too-large']);
  assert.equal(server.asked.length, 1);
});

// P-012
test('the wait for a turn counts for the timeout', TIMEOUT, async () => {
  // subject
  await using server = await startDecisionPoint({ timeoutMs: 100 });
  server.reply = () => undefined;
  const { ask } = asking(server.config);
  const all = await Promise.all(Array.from({ length: LIMITS.externalQuestions + 1 }, () => ask()));
  assert.ok(all.every(({ outcome, why }) => outcome === 'late' && why === 'no answer within 100 ms'));
});

// P-012
test('a question that is given up is not reported, and its connection ends', TIMEOUT, async () => {
  await using server = await startDecisionPoint();
  server.reply = () => undefined;
  const { ask, reported } = asking(server.config);
  const giveUp = new AbortController();
  const asked = ask('ada', QUESTION, giveUp.signal);
  await server.until(() => server.asked[0]);
  giveUp.abort();
  await asked;
  await server.until(() => (server.givenUp === 1 ? true : undefined));
  assert.deepEqual(reported, []);
});

// P-012
test('questions share connections, and are asked again after the loss of one', TIMEOUT, async () => {
  const sockets = new Set<unknown>();
  let requests = 0;
  const server = createServer((request, response) => {
    sockets.add(request.socket);
    requests++;
    if (requests === 5) return void request.socket.destroy();
    request.resume().on('end', () => response.end('{"decision":true}'));
  });
  const port = await listenLocally(server);
  try {
    const { ask } = asking({
      url: `http://127.0.0.1:${port}/`,
      headers: {},
      timeoutMs: PATIENCE_MS,
      upstreams: undefined,
      arguments: false,
    });
    for (let i = 0; i < 8; i++) assert.equal((await ask()).outcome, 'allowed');
    assert.equal(requests, 9);
    assert.ok(sockets.size < requests, `${sockets.size} connections`);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

// P-012
test('a decision point that cannot be reached is a failure at once', TIMEOUT, async () => {
  const closed = createServer();
  const port = await listenLocally(closed);
  await new Promise((resolve) => {
    closed.close(resolve);
  });
  const { ask, reported } = asking({
    url: `http://127.0.0.1:${port}/`,
    headers: {},
    timeoutMs: PATIENCE_MS,
    upstreams: undefined,
    arguments: false,
  });
  assert.equal((await ask()).outcome, 'failed');
  assert.deepEqual(reported, ['failed']);
});
