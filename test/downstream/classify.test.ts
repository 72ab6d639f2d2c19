import assert from 'node:assert/strict';
import { test } from 'node:test';
import { classify, refuseBatch } from '../../src/downstream/classify.ts';
import { parseBatch } from '../../src/protocol/jsonrpc.ts';
import { shortened } from '../support/test-name.ts';

const PING = '{"jsonrpc":"2.0","id":1,"method":"ping"}';
const INITIALIZE = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}';
const SESSION = { sessionId: 'abc', version: undefined };

const cases = [
  { says: 'a request in a session', text: PING, headers: SESSION, is: 'session' },
  { says: 'a request with the version', text: PING, headers: { ...SESSION, version: '2025-06-18' }, is: 'session' },
  { says: 'initialize', text: INITIALIZE, headers: { sessionId: undefined, version: undefined }, is: 'initialize' },
  { says: 'initialize that names an old session', text: INITIALIZE, headers: SESSION, is: 'initialize' },
  {
    says: 'initialize under an unknown version',
    text: INITIALIZE,
    headers: { sessionId: undefined, version: '2099-01-01' },
    is: 'initialize',
  },
  { says: 'a response', text: '{"jsonrpc":"2.0","id":1,"result":{}}', headers: SESSION, is: 'session' },
  { says: 'a batch', text: `[${PING}]`, headers: SESSION, is: 'session' },
  {
    says: 'a request without session',
    text: PING,
    headers: { sessionId: undefined, version: undefined },
    is: 'session-required',
  },
  {
    says: 'a request with an empty session',
    text: PING,
    headers: { sessionId: '', version: undefined },
    is: 'session-required',
  },
  { says: 'an unknown version', text: PING, headers: { ...SESSION, version: '1999-01-01' }, is: 'unsupported-version' },
  { says: 'a half version', text: PING, headers: { ...SESSION, version: '' }, is: 'unsupported-version' },
  { says: 'nothing', text: '', headers: SESSION, is: 'parse-error' },
  { says: 'half a message', text: PING.slice(0, -1), headers: SESSION, is: 'parse-error' },
  { says: 'two messages', text: PING + PING, headers: SESSION, is: 'parse-error' },
  { says: 'a byte order mark', text: `\u{feff}${PING}`, headers: SESSION, is: 'parse-error' },
  {
    says: 'NaN',
    text: '{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":NaN}}',
    headers: SESSION,
    is: 'parse-error',
  },
  {
    says: 'an escape that is none, deep inside',
    text: String.raw`{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":[{"b":"\q"}]}}`,
    headers: SESSION,
    is: 'parse-error',
  },
  {
    says: 'a line break in a string',
    text: '{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"b\nc"}}',
    headers: SESSION,
    is: 'parse-error',
  },
  { says: 'a string', text: '"x"', headers: SESSION, is: 'invalid-request' },
  { says: 'a broken string', text: '"x', headers: SESSION, is: 'parse-error' },
  { says: 'an id with a zero fraction', text: PING.replace('1', '1.0'), headers: SESSION, is: 'session' },
  {
    says: 'deep nesting',
    text: `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":${'['.repeat(9_000)}${']'.repeat(9_000)}}}`,
    headers: SESSION,
    is: 'invalid-request',
  },
  { says: 'an object that is no message', text: '{}', headers: SESSION, is: 'invalid-request' },
  { says: 'an id that is null', text: PING.replace('1', 'null'), headers: SESSION, is: 'invalid-request' },
  { says: 'an id with a fraction', text: PING.replace('1', '1.5'), headers: SESSION, is: 'invalid-request' },
  {
    says: 'a second spelling of method',
    text: PING.replace('{', '{"Method":"x",'),
    headers: SESSION,
    is: 'invalid-request',
  },
  { says: '__proto__', text: PING.replace('{', '{"__proto__":{},'), headers: SESSION, is: 'invalid-request' },
  { says: 'an empty batch', text: '[]', headers: SESSION, is: 'invalid-request' },
  { says: 'a batch of 21', text: `[${Array(21).fill(PING).join(',')}]`, headers: SESSION, is: 'invalid-request' },
  {
    says: 'a batch of a million',
    text: `[${Array(1_000_000).fill('1').join(',')}]`,
    headers: SESSION,
    is: 'invalid-request',
  },
];

const NO_HEADERS = () => undefined;

for (const { says, text, headers, is } of cases) {
  // SEC-23 T-002
  test(`a body with ${says} is classified as ${is}`, () => {
    const posted = classify(text, headers, NO_HEADERS, true);
    assert.equal(posted.kind === 'refused' ? posted.error.code : posted.kind, is);
  });
}

test('a refusal carries the id of the request when it can be read', () => {
  const posted = classify(PING.replace('1', '"é7"'), { sessionId: undefined, version: undefined }, NO_HEADERS, true);
  assert.ok(posted.kind === 'refused');
  assert.equal(posted.id, '"é7"');
  assert.match(posted.error.message, /Mcp-Session-Id/);
});

// T-032
test('a refused version comes with the supported ones', () => {
  const posted = classify(PING, { ...SESSION, version: '2024-01-01' }, NO_HEADERS, true);
  assert.ok(posted.kind === 'refused');
  assert.match(posted.error.message, /2024-11-05, 2025-03-26, 2025-06-18, 2025-11-25/);
});

const batches = [
  { revision: '2024-11-05', text: `[${PING}]`, ok: false },
  { revision: '2025-03-26', text: `[${PING}]`, ok: true },
  { revision: '2025-03-26', text: `[${PING},${INITIALIZE}]`, ok: false },
  { revision: '2025-03-26', text: '[1,{}]', ok: true },
  { revision: '2025-06-18', text: `[${PING}]`, ok: false },
  { revision: '2025-11-25', text: `[${PING}]`, ok: false },
  { revision: undefined, text: `[${PING}]`, ok: false },
] as const;

for (const { revision, text, ok } of batches) {
  // T-033 T-034
  test(`${shortened(text, 40)} in a session of ${revision} is ${ok ? 'accepted' : 'refused'}`, () => {
    assert.equal(refuseBatch(parseBatch(text), revision) === undefined, ok);
  });
}
