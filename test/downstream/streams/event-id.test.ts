import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { parseEventId, requestSuffix } from '../../../src/downstream/streams/event-id.ts';
import { eventText } from '../../../src/protocol/framing/event-stream.ts';
import { quote } from '../../support/test-name.ts';

test('an event id holds its stream, its number and its request', () => {
  const id = `Ab-_9-12.34${requestSuffix('"q\\"1"')}`;
  assert.deepEqual(parseEventId(id), { stream: 'Ab-_9-12', seq: 34, request: '"q\\"1"' });
  assert.deepEqual(parseEventId('a.0'), { stream: 'a', seq: 0, request: undefined });
});

test('an event id stays valid with any request id', () => {
  const ids = fc.oneof(
    fc.string({ unit: 'binary', maxLength: 120 }).map((text) => JSON.stringify(text)),
    fc.maxSafeInteger().map(String),
  );
  fc.assert(
    fc.property(ids, (request) => {
      const id = `tag-1.7${requestSuffix(request)}`;
      assert.doesNotThrow(() => eventText({ id, data: '' }));
      const parsed = parseEventId(id);
      assert.equal(parsed?.stream, 'tag-1');
      // Too long, or not an id by our rules: the client then gets no answer for its request.
      if (parsed?.request !== undefined && request !== '-0') assert.equal(parsed.request, request);
    }),
  );
});

const encoded = (text: string): string => Buffer.from(text).toString('base64url');

const strangers = [
  '',
  'x',
  '1',
  '.1',
  'a.',
  'a.b',
  'a.1.',
  'a.1.b.c',
  'a.-1',
  'a.1 ',
  'a.1\n',
  'ä.1',
  'a.1234567890123',
  `${'a'.repeat(41)}.1`,
  'a.1'.padEnd(201, 'A'),
];

for (const text of strangers) {
  // S-003
  test(`${quote(text)} is not an event id of the gateway`, () => {
    assert.equal(parseEventId(text), undefined);
  });
}

for (const request of ['{}', 'null', '1,"x":2', '"a"\n', '1.5', '"', ' 1', '1}', '"a","b":"c"']) {
  // S-018
  test(`an event id for the request ${JSON.stringify(request)} names no request`, () => {
    assert.equal(parseEventId(`a.1.${encoded(request)}`)?.request, undefined);
  });
}
