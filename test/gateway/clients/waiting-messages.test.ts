import assert from 'node:assert/strict';
import { test } from 'node:test';
import { WaitingMessages } from '../../../src/gateway/clients/waiting-messages.ts';
import { RawObject } from '../../../src/json/json.ts';
import { notificationText, requestText } from '../../../src/protocol/jsonrpc.ts';

function updated(n: number, pad = 0): string {
  return notificationText('notifications/resources/updated', RawObject.of({ uri: `file:///${n}${'x'.repeat(pad)}` }));
}

// N-29
test('limit sessionQueueMessages: the oldest notification is dropped, never a request', () => {
  const waiting = new WaitingMessages(() => undefined);
  const question = requestText(1, 'roots/list', undefined);
  waiting.add(question);
  for (let n = 0; n < 300; n++) waiting.add(updated(n));
  const texts = waiting.removeAll();
  assert.equal(texts.length, 256);
  assert.equal(texts[0], question);
  assert.equal(texts[1], updated(45));
  assert.deepEqual(waiting.removeAll(), []);
});

// N-29
test('limit sessionQueueBytes: oldest notifications are dropped until the rest fits', () => {
  const waiting = new WaitingMessages(() => undefined);
  for (let n = 0; n < 20; n++) waiting.add(updated(n, 100_000));
  const texts = waiting.removeAll();
  assert.equal(texts.length, 10);
  assert.equal(texts.at(-1), updated(19, 100_000));
});

// N-29
test('limit sessionQueueBytes: a single notification beyond it does not wait', () => {
  let dropped = 0;
  const waiting = new WaitingMessages(() => dropped++);
  assert.deepEqual([waiting.add(updated(1, 1_100_000)), dropped], [false, 1]);
  assert.equal(waiting.add(updated(2)), true);
  assert.deepEqual(waiting.removeAll(), [updated(2)]);
});

test('an equal message waits once', () => {
  const waiting = new WaitingMessages(() => undefined);
  for (let n = 0; n < 10; n++) waiting.add(updated(1));
  assert.equal(waiting.removeAll().length, 1);
});

test('a request for which the others leave no room is dropped, and none of them', () => {
  let dropped = 0;
  const waiting = new WaitingMessages(() => dropped++);
  const question = (id: number) =>
    requestText(id, 'elicitation/create', RawObject.of({ message: 'x'.repeat(700_000) }));
  assert.deepEqual([waiting.add(question(1)), waiting.add(updated(1)), waiting.add(question(2))], [true, true, false]);
  assert.deepEqual([waiting.add(updated(2)), dropped], [true, 2]);
  assert.deepEqual(waiting.removeAll(), [question(1), updated(2)]);
});
