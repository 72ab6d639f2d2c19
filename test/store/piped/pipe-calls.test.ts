import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { z } from 'zod';
import { GatewayError } from '../../../src/errors.ts';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { method } from '../../../src/store/piped/pipe-calls.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { pipePair } from './pipe-pair.ts';

const OPTIONS = { timeout: 120_000 };
const ECHO = method('echo', z.string(), z.string());
const SILENT = method('silent', z.number(), z.number());

test('calls go both ways at once, and each gets its own answer', OPTIONS, async () => {
  const { one, other } = pipePair();
  one.serve(ECHO, async (text) => `one ${text}`);
  other.serve(ECHO, async (text) => {
    if (text === '0') await new Promise((resolve) => setImmediate(resolve));
    return `other ${text}`;
  });
  const texts = Array.from({ length: 100 }, (_, n) => String(n));
  assert.deepEqual(
    await Promise.all(texts.map((text) => one.call(ECHO, text))),
    texts.map((text) => `other ${text}`),
  );
  assert.equal(await other.call(ECHO, '\ud800ü'), 'one \ud800ü');
});

test('a failure of the other side is thrown with its code and message', OPTIONS, async () => {
  const { one, other } = pipePair();
  other.serve(ECHO, async (text) => {
    throw text === 'known' ? new GatewayError('overloaded', { message: 'too many' }) : new Error(text);
  });
  await assert.rejects(one.call(ECHO, 'known'), { code: 'overloaded', detail: { message: 'too many' } });
  await assert.rejects(one.call(ECHO, 'unknown'), /^Error: unknown$/);
  await assert.rejects(one.call(SILENT, 1), /^Error: no method silent$/);
});

test('a call with arguments of another shape is refused, and so is such an answer', OPTIONS, async () => {
  const { one, other } = pipePair();
  other.serve(ECHO, async (text) => text);
  await assert.rejects(one.call(method('echo', z.number(), z.string()), 1), /expected string/);
  await assert.rejects(one.call(method('echo', z.string(), z.number()), 'x'), /expected number/);
});

test('a call without an answer fails as store-unavailable after its time', OPTIONS, async () => {
  const { one, other } = pipePair(undefined, 20);
  other.serve(SILENT, () => new Promise(() => undefined));
  await assert.rejects(one.call(SILENT, 1), { code: 'store-unavailable' });
});

test('an answer that came while this process stood still is read', OPTIONS, async (t) => {
  const time = stopTime(t);
  const { one, other } = pipePair();
  const [asked, held] = [Promise.withResolvers<void>(), Promise.withResolvers<string>()];
  other.serve(ECHO, () => {
    asked.resolve();
    return held.promise;
  });
  const answered = one.call(ECHO, 'x');
  await asked.promise;
  await nextTurn();
  held.resolve('x');
  // The answer is sent, in this turn.
  for (let n = 0; n < 20; n++) await Promise.resolve();
  time.pass(3_600_000);
  assert.equal(await answered, 'x');
});

test('calls that wait fail when the other side goes, and so do later ones', OPTIONS, async () => {
  const { one, other, close } = pipePair();
  const reached = Promise.withResolvers<void>();
  other.serve(SILENT, () => {
    reached.resolve();
    return new Promise(() => undefined);
  });
  const waiting = assert.rejects(one.call(SILENT, 1), { code: 'store-unavailable' });
  await reached.promise;
  close();
  await waiting;
  await assert.rejects(one.call(SILENT, 2), { code: 'store-unavailable' });
});

test('limit pipeCalls: the next call fails, and those that wait do not', OPTIONS, async () => {
  const limits: LimitName[] = [];
  const { one, other } = pipePair((limit) => limits.push(limit));
  const release = Promise.withResolvers<void>();
  other.serve(SILENT, async (n) => {
    await release.promise;
    return n;
  });
  const waiting = Array.from({ length: LIMITS.pipeCalls }, (_, n) => one.call(SILENT, n));
  await assert.rejects(one.call(SILENT, -1), { code: 'store-unavailable' });
  assert.deepEqual(limits, ['pipeCalls']);
  release.resolve();
  assert.equal((await Promise.all(waiting)).length, LIMITS.pipeCalls);
});
