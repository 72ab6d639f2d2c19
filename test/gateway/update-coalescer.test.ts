import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { UpdateCoalescer } from '../../src/gateway/update-coalescer.ts';
import { RawObject } from '../../src/json/json.ts';

const PARAMS = RawObject.EMPTY;
const LONGER_THAN_WINDOW_MS = 100; // subject
const WITHIN_WINDOW_MS = 10; // subject

interface Announced {
  readonly sources: readonly string[];
  readonly uri: string;
  readonly params: string;
}

/** @param all the sources that report each change; by default, each source reports changes of its own. */
function setUp({ mock }: TestContext, all: readonly string[] = []) {
  mock.timers.enable({ apis: ['setTimeout'] });
  const announced: Announced[] = [];
  const merged = { count: 0 };
  const updates = new UpdateCoalescer<string>({
    announce: (sources, uri, params) => announced.push({ sources: [...sources], uri, params: params.toString() }),
    areAll: (sources) => all.every((source) => sources.has(source)),
    onMerged: () => merged.count++,
  });
  const pass = (ms: number) => mock.timers.tick(ms);
  return { announced, merged, updates, pass, endWindow: () => pass(LONGER_THAN_WINDOW_MS) };
}

test('the first update is announced at once, and alone if no other follows', (t) => {
  const { announced, updates, endWindow } = setUp(t);
  updates.add('key', 'a', 'x:1', PARAMS);
  assert.deepEqual(announced, [{ sources: ['a'], uri: 'x:1', params: '{}' }]);
  endWindow();
  assert.equal(announced.length, 1);
});

test('updates within a window are announced once at its end, with the latest params', (t) => {
  const { announced, merged, updates, endWindow } = setUp(t);
  const latest = RawObject.of({ uri: 'x:1', version: 3 });
  updates.add('key', 'a', 'x:1', PARAMS);
  updates.add('key', 'b', 'x:1', PARAMS);
  updates.add('key', 'c', 'x:1', latest);
  assert.equal(announced.length, 1);
  endWindow();
  assert.deepEqual(announced.slice(1), [{ sources: ['b', 'c'], uri: 'x:1', params: latest.toString() }]);
  assert.equal(merged.count, 1);
});

test('the announcement at the end of a window opens another one', (t) => {
  const { announced, updates, endWindow } = setUp(t);
  for (const source of ['a', 'b']) updates.add('key', source, 'x:1', PARAMS);
  endWindow();
  updates.add('key', 'c', 'x:1', PARAMS);
  assert.equal(announced.length, 2);
  endWindow();
  assert.equal(announced.length, 3);
});

test('updates of other resources and of other keys are announced at once', (t) => {
  const { announced, updates } = setUp(t);
  updates.add('key', 'a', 'x:1', PARAMS);
  updates.add('key', 'a', 'x:2', PARAMS);
  updates.add('other', 'a', 'x:1', PARAMS);
  assert.deepEqual(
    announced.map(({ uri }) => uri),
    ['x:1', 'x:2', 'x:1'],
  );
});

// N-92
test('a change that several sources report is announced once, when the last one has', (t) => {
  const { announced, updates, endWindow } = setUp(t, ['a', 'b']);
  updates.add('key', 'a', 'x:1', PARAMS);
  assert.equal(announced.length, 0);
  updates.add('key', 'b', 'x:1', PARAMS);
  assert.deepEqual(announced, [{ sources: ['a', 'b'], uri: 'x:1', params: '{}' }]);
  endWindow();
  assert.equal(announced.length, 1);
});

// N-92
test('a change that one of several sources reports is announced after a window', (t) => {
  const { announced, updates, endWindow } = setUp(t, ['a', 'b']);
  for (const source of ['a', 'b']) {
    updates.add('key', source, 'x:1', PARAMS);
    endWindow();
    endWindow();
  }
  assert.deepEqual(
    announced.map(({ sources }) => sources),
    [['a'], ['b']],
  );
});

// N-92
test('a report just before the end of a window waits for the other sources', (t) => {
  const { announced, updates, pass, endWindow } = setUp(t, ['a', 'b']);
  for (const source of ['a', 'b']) updates.add('key', source, 'x:1', PARAMS);
  pass(WITHIN_WINDOW_MS);
  updates.add('key', 'a', 'x:1', PARAMS);
  pass(2 * WITHIN_WINDOW_MS);
  assert.equal(announced.length, 1);
  updates.add('key', 'b', 'x:1', PARAMS);
  assert.equal(announced.length, 2);
  updates.add('key', 'b', 'x:1', PARAMS);
  for (let window = 0; window < 4; window++) endWindow();
  assert.equal(announced.length, 3);
});
