import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { DecisionPoint } from '../../src/auth/decision-point.ts';
import { Egress } from '../../src/egress/egress.ts';
import { LIMITS } from '../../src/limits.ts';
import type { ExternalConfig } from '../../src/policy/access-config.ts';
import type { ExternalAnswer } from '../../src/policy/external-question.ts';
import { listenLocally } from '../support/local-port.ts';
import { waitUntil } from '../support/wait-until.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { ALLOW, startDecisionPoint } from '../support/test-decision-point.ts';

const TIMEOUT = { timeout: 120_000 };
const QUESTION = '{"subject":{"type":"user","id":"ada"}}';
/** Longer than connections are kept by default. */
const IDLE_MS = 5_000; // subject
const egress = new Egress();
after(() => egress[Symbol.asyncDispose]());

function configOf(port: number): ExternalConfig {
  const url = `http://127.0.0.1:${port}/`;
  return { url, headers: {}, timeoutMs: PATIENCE_MS, upstreams: undefined, arguments: false };
}

function asking(config: ExternalConfig, sender = egress) {
  const limits: string[] = [];
  const reported: string[] = [];
  const point = new DecisionPoint({
    egress: sender,
    onAnswer: ({ outcome }) => void reported.push(outcome),
    onLimit: (limit) => void limits.push(limit),
  });
  const ask = (
    owner = 'ada',
    text = QUESTION,
    signal = new AbortController().signal,
    at = config,
  ): Promise<ExternalAnswer> => point.ask(at, owner, text, signal);
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
    const { ask } = asking(configOf(port));
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
  const { ask, reported } = asking(configOf(port));
  assert.equal((await ask()).outcome, 'failed');
  assert.deepEqual(reported, ['failed']);
});

// P-012
test('a connection that hangs keeps no turn, and few sockets', TIMEOUT, async () => {
  // subject
  await using server = await startDecisionPoint({ timeoutMs: 50 });
  let names = 0;
  let isHanging = true;
  await using sender = new Egress(undefined, () => {
    names++;
    return isHanging ? new Promise(() => undefined) : Promise.resolve([{ address: '127.0.0.1', family: 4 }]);
  });
  const { ask } = asking(server.config, sender);
  const named = { ...server.config, url: server.config.url.replace('127.0.0.1', 'pdp.test') };
  const askNamed = async () => {
    const giveUp = new AbortController();
    const answer = await ask('ada', QUESTION, giveUp.signal, named);
    giveUp.abort();
    return answer.outcome;
  };
  const askAll = () => Promise.all(Array.from({ length: LIMITS.externalQuestions }, askNamed));
  const outcomes = [await askAll(), await askAll(), await askAll()].map((round) => [...new Set(round)].join(' '));
  assert.deepEqual(outcomes, ['late', 'late', 'failed'], 'those that hang are few');
  assert.ok(names <= LIMITS.externalQuestions, `${names} connections`);
  isHanging = false;
  await waitUntil(async () => (await askNamed()) === 'allowed');
});

// P-012
test('a connection is kept for longer than some seconds without a question', TIMEOUT, async () => {
  const sockets = new Set<unknown>();
  const server = createServer((request, response) => {
    sockets.add(request.socket);
    // Without a header that says how long it is kept.
    response.setHeader('connection', 'keep-alive');
    request.resume().on('end', () => response.end('{"decision":true}'));
  });
  server.keepAliveTimeout = PATIENCE_MS * 2;
  const port = await listenLocally(server);
  try {
    const { ask } = asking(configOf(port));
    assert.equal((await ask()).outcome, 'allowed');
    await sleep(IDLE_MS);
    assert.equal((await ask()).outcome, 'allowed');
    assert.equal(sockets.size, 1);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});

// P-012
test('questions that are given up leave the queue', TIMEOUT, async () => {
  await using server = await startDecisionPoint();
  server.reply = () => undefined;
  const { ask, limits } = asking(server.config);
  const giveUp = new AbortController();
  const first = new AbortController();
  const asked = Array.from({ length: LIMITS.externalQuestions }, () => ask('bob', QUESTION, first.signal));
  const waiting = Array.from({ length: 1_024 }, () => ask('bob', QUESTION, giveUp.signal));
  giveUp.abort();
  await Promise.all(waiting);
  const next = ask('bob');
  assert.deepEqual(limits, []);
  server.reply = ALLOW;
  first.abort();
  assert.equal((await next).outcome, 'allowed');
  await Promise.all(asked);
});
