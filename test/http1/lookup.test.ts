import assert from 'node:assert/strict';
import type { LookupAddress } from 'node:dns';
import { test } from 'node:test';
import { sharing } from '../../src/http1/lookup.ts';

type Answer = PromiseWithResolvers<readonly LookupAddress[]>;

const ADDRESSES = [{ address: '192.0.2.1', family: 4 }];

/** A system whose answers the test gives. */
function system() {
  const asked: { readonly host: string; readonly answer: Answer }[] = [];
  const resolve = sharing((host) => {
    const answer: Answer = Promise.withResolvers();
    asked.push({ host, answer });
    return answer.promise;
  });
  return { resolve, asked, hosts: () => asked.map(({ host }) => host) };
}

test('a name without an answer is looked up once, however often it is needed', async () => {
  const { resolve, asked, hosts } = system();
  const waiting = [resolve('hangs.test'), resolve('hangs.test'), resolve('other.test'), resolve('hangs.test')];
  assert.deepEqual(hosts(), ['hangs.test', 'other.test']);
  for (const { answer } of asked) answer.resolve(ADDRESSES);
  assert.deepEqual(
    await Promise.all(waiting),
    Array.from(waiting, () => ADDRESSES),
  );
});

test('a name is looked up again after its answer', async () => {
  const { resolve, asked, hosts } = system();
  const failing = [resolve('moves.test'), resolve('moves.test')];
  asked[0]?.answer.reject(new Error('EAI_AGAIN'));
  for (const one of failing) await assert.rejects(one, /EAI_AGAIN/);
  const again = resolve('moves.test');
  asked[1]?.answer.resolve(ADDRESSES);
  assert.deepEqual(await again, ADDRESSES);
  void resolve('moves.test');
  assert.deepEqual(hosts(), ['moves.test', 'moves.test', 'moves.test']);
});
