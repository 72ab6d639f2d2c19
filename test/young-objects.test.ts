import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setFlagsFromString } from 'node:v8';
import { runInThisContext } from 'node:vm';
import { keepObjectsYoung } from '../src/young-objects.ts';

setFlagsFromString('--allow-natives-syntax');

const OBJECTS = 1_000_000;
const KEPT = 400_000;
const ATTEMPTS = 40;

/**
 * Makes objects that live long, by new code. V8 decides once for each place in the code, and by chance against it.
 *
 * @returns whether one of them was allocated old.
 */
function allocatesOld(attempt: number): boolean {
  const isYoung: unknown = runInThisContext('(object) => %InYoungGeneration(object)');
  const make: unknown = runInThisContext(`(number) => ({ number, pair: [number, ${attempt}] })`);
  assert.ok(typeof isYoung === 'function' && typeof make === 'function');
  const kept: unknown[] = [];
  for (let number = 0; number < OBJECTS; number++) {
    const object: unknown = make(number);
    kept.push(object);
    if (kept.length > KEPT) kept.splice(0, KEPT / 2);
    if (number % 1_000 === 0 && isYoung(object) !== true) return true;
  }
  return false;
}

test('V8 allocates objects old whose predecessors lived long, unless told otherwise', { timeout: 120_000 }, () => {
  let attempts = 1;
  while (!allocatesOld(attempts)) assert.ok(++attempts <= ATTEMPTS, 'V8 allocates no objects old any more');
  keepObjectsYoung();
  for (let more = 1; more <= 2 * attempts; more++) assert.equal(allocatesOld(attempts + more), false);
});
