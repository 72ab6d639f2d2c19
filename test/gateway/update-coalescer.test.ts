import assert from 'node:assert/strict';
import { test, type TestContext } from 'node:test';
import { UpdateCoalescer } from '../../src/gateway/update-coalescer.ts';
import { RawObject } from '../../src/json/json.ts';

const PARAMS = RawObject.EMPTY;
const LONGER_THAN_WINDOW_MS = 100; // subject

interface Announced {
  readonly sources: readonly string[];
  readonly uri: string;
  readonly params: string;
}

function setUp({ mock }: TestContext) {
  mock.timers.enable({ apis: ['setTimeout'] });
  const announced: Announced[] = [];
  const merged = { count: 0 };
  const updates = new UpdateCoalescer<string>(
    (sources, uri, params) => announced.push({ sources: [...sources], uri, params: params.toString() }),
    () => merged.count++,
  );
  return { announced, merged, updates, endWindow: () => mock.timers.tick(LONGER_THAN_WINDOW_MS) };
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
