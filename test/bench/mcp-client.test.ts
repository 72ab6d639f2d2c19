import assert from 'node:assert/strict';
import { test } from 'node:test';
import { messagesOf } from '../../bench/mcp-client.ts';

const JSON_TYPE = 'application/json';
const EVENTS = 'text/event-stream; charset=utf-8';

const CASES = [
  { what: 'a JSON body', text: '{"id":1}', type: JSON_TYPE, messages: [{ id: 1 }] },
  { what: 'a body that is no JSON', text: '{"id":1,"result":"\n"}', type: JSON_TYPE, messages: [] },
  { what: 'an empty body', text: '', type: JSON_TYPE, messages: [] },
  {
    what: 'a stream of two events',
    text: ': hello\n\nevent: message\ndata: {"id":1}\n\ndata:{"id":2}\n\n',
    type: EVENTS,
    messages: [{ id: 1 }, { id: 2 }],
  },
  {
    what: 'a stream with one unreadable event',
    text: 'data: {\n\ndata: {"id":2}\n\n',
    type: EVENTS,
    messages: [{ id: 2 }],
  },
];

for (const { what, text, type, messages } of CASES) {
  test(`${what} holds ${messages.length} messages`, () => assert.deepEqual(messagesOf(text, type), messages));
}
