import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import { RawObject } from '../../src/json/json.ts';
import { LIMITS } from '../../src/limits.ts';
import {
  idKey,
  isBatch,
  type Message,
  MessageError,
  notificationText,
  parseBatch,
  parseMessage,
  requestText,
  responseText,
} from '../../src/protocol/jsonrpc.ts';
import { shortened } from '../support/test-name.ts';

function refusal(text: string): { code: number; id: string; message: string } {
  try {
    parseMessage(text);
  } catch (thrown) {
    assert.ok(thrown instanceof MessageError, String(thrown));
    return { code: thrown.code, id: thrown.id, message: thrown.message };
  }
  return assert.fail(`accepted ${text}`);
}

const kinds: { text: string; kind: Message['kind']; id?: string }[] = [
  { text: '{"jsonrpc":"2.0","id":1,"method":"ping"}', kind: 'request', id: '1' },
  { text: '{"jsonrpc":"2.0","id":-7,"method":"ping"}', kind: 'request', id: '-7' },
  { text: '{"jsonrpc":"2.0","id":"a\\u0062","method":"ping","params":{}}', kind: 'request', id: '"a\\u0062"' },
  { text: '{"jsonrpc":"2.0","id":"","method":"ping"}', kind: 'request', id: '""' },
  { text: '{"jsonrpc":"2.0","method":"notifications/initialized"}', kind: 'notification' },
  { text: '{"result":{},"id":1,"jsonrpc":"2.0","extra":true}', kind: 'result', id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no"}}', kind: 'error', id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"method":"ping","params":null}', kind: 'request', id: '1' },
  { text: '{"jsonrpc":"2.0","method":"notifications/x","params":null}', kind: 'notification' },
  { text: '{"jsonrpc":"2.0","id":1,"result":{},"error":null}', kind: 'result', id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"result":null,"error":{"code":-1,"message":"no"}}', kind: 'error', id: '1' },
  { text: '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}', kind: 'error', id: 'null' },
  { text: '{"jsonrpc":"2.0","error":{"code":-32700,"message":"no"}}', kind: 'error', id: 'null' },
  { text: ' \n{"jsonrpc":"2.0","method":"x"}\r\n', kind: 'notification' },
];

for (const { text, kind, id } of kinds) {
  test(`${text.trim()} is a ${kind}`, () => {
    const message = parseMessage(text);
    assert.equal(message.kind, kind);
    assert.equal('id' in message ? message.id : undefined, id);
  });
}

const refused = [
  { text: 'x', code: -32700, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1,"method":"ping"', code: -32700, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1,"id":2,"method":"ping"}', code: -32600, id: 'null' },
  { text: '', code: -32700, id: 'null' },
  { text: '5 5', code: -32700, id: 'null' },
  { text: 'nul', code: -32700, id: 'null' },
  { text: '"a\nb"', code: -32700, id: 'null' },
  { text: '[1', code: -32700, id: 'null' },
  { text: '{}', code: -32600, id: 'null' },
  { text: '{"id":1,"method":"ping"}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"1.0","id":1,"method":"ping"}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"method":7}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":null,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1.5,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1e-1,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1.05e1,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1e1024,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1e-9999999999,"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":{},"method":"ping"}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":"a\nb","method":"ping"}', code: -32700, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":"\\q","method":"ping"}', code: -32700, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","result":{}}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":null,"result":{}}', code: -32600, id: 'null' },
  { text: '{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"result":[]}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"result":null}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"result":null,"error":null}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":"no"}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":null}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":{"code":"1","message":"x"}}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":{"code":1.5,"message":"x"}}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":{"code":1e999,"message":"x"}}', code: -32600, id: '1' },
  { text: '{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"\\q"}}', code: -32700, id: '1' },
];

for (const { text, code, id } of refused) {
  test(`${shortened(text, 50)} is refused with ${code}, id ${id}`, () => {
    const { message: _, ...rest } = refusal(text);
    assert.deepEqual(rest, { code, id });
  });
}

for (const text of ['5', ' null ', 'true', '-1.5e3', '"x"', '[]', '[1,2]', '\n[{}]\n']) {
  // N-90
  test(`${shortened(JSON.stringify(text), 50)} is JSON, and no message`, () => {
    assert.deepEqual(refusal(text), { code: -32600, id: 'null', message: 'a message must be a JSON object' });
  });
}

const spellings = [
  { id: '1.0', key: '1' },
  { id: '1e2', key: '100' },
  { id: '-2.50E+2', key: '-250' },
  { id: '1000e-3', key: '1' },
  { id: '0.00', key: '0' },
  { id: '-0', key: '0' },
  { id: '1.7E9', key: '1700000000' },
  { id: '9007199254740993.0', key: '9007199254740993' },
  { id: '1e1023', key: `1${'0'.repeat(1_023)}` },
];

for (const { id, key } of spellings) {
  // N-90
  test(`the id ${id} is an integer: a request keeps it, a response has its key`, () => {
    const request = parseMessage(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`);
    assert.deepEqual([request.kind, 'id' in request ? request.id : undefined], ['request', id]);
    for (const outcome of ['"result":{}', '"error":{"code":1,"message":"no"}']) {
      const response = parseMessage(`{"jsonrpc":"2.0","id":${id},${outcome}}`);
      assert.equal('id' in response ? response.id : undefined, key);
    }
    assert.equal(refusal(`{"jsonrpc":"2.0","id":${id},"result":[]}`).id, key);
    assert.equal(idKey(id), key);
  });
}

// N-90
test('the key of another value than a number is the value', () => {
  for (const id of ['"1.0"', '"\\u0061"', '1.5', 'null', '{}', '']) assert.equal(idKey(id), id);
});

// Parsers that fold case would read another message than the gateway authorised.
const lookalikes = ['Method', 'ID', 'Params', 'param\u017f', 'RESULT', '__proto__'];

for (const key of lookalikes) {
  // SEC-23
  test(`a member "${key}" beside the envelope's own is refused`, () => {
    const text = `{"jsonrpc":"2.0","id":1,"method":"ping",${JSON.stringify(key)}:"x"}`;
    assert.equal(refusal(text).code, -32600);
  });
}

const PARAMETERS = ['Name', 'URI', 'Arguments', '_Meta', 'requestid', 'RequestId', 'to\u212aenx', 'Cur\u017for'];

for (const key of [...PARAMETERS, 'Task', 'ta\u017f\u212a', 'RequestState', 'inputresponses']) {
  const folds = key !== 'to\u212aenx';
  // SEC-23
  test(`a parameter "${key}" is ${folds ? 'refused' : 'carried'}`, () => {
    const text = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a",${JSON.stringify(key)}:"b"}}`;
    if (folds) assert.match(refusal(text).message, /could be mistaken/);
    else assert.equal(parseMessage(text).kind, 'request');
  });
}

test('an error message quotes only the beginning of the fault', () => {
  const key = 'x'.repeat(1_000);
  const text = `{"jsonrpc":"2.0","method":"x","${key}":1,"${key}":2}`;
  assert.ok(refusal(text).message.length < 120);
});

test('an error keeps the members that JSON-RPC does not name', () => {
  const message = parseMessage('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"x","data":[1],"hint":"y"}}');
  assert.deepEqual(message, { kind: 'error', id: '1', error: { code: 1, message: 'x', data: [1], hint: 'y' } });
});

test('a written message is read back equal', () => {
  const id = fc.oneof(
    fc.maxSafeInteger().map(String),
    fc.string({ maxLength: 20 }).map((text) => JSON.stringify(text)),
  );
  const params = fc.option(fc.dictionary(fc.stringMatching(/^p\d*$/), fc.jsonValue()), { nil: undefined });
  fc.assert(
    fc.property(id, fc.string(), params, fc.constantFrom(undefined, 1, '\n'), (rawId, method, value, indent) => {
      const raw = value === undefined ? undefined : RawObject.parse(JSON.stringify(value, undefined, indent));
      const request = requestText(rawId, method, raw);
      const notification = notificationText(method, raw);
      for (const text of [request, notification]) {
        const message = parseMessage(text);
        assert.ok('method' in message);
        assert.equal(message.method, method);
        assert.deepEqual(
          message.params === undefined ? undefined : JSON.parse(message.params.toString()),
          value === undefined ? undefined : JSON.parse(JSON.stringify(value)),
        );
      }
      const parsed = parseMessage(request);
      assert.equal('id' in parsed ? parsed.id : undefined, rawId);
    }),
  );
});

test('an answer keeps the text of its result', () => {
  const text = responseText('"a"', { kind: 'result', result: '{\n  "n": 12345678901234567890\r\n}' });
  assert.equal(text, '{"jsonrpc":"2.0","id":"a","result":{\n  "n": 12345678901234567890\r\n}}');
  assert.equal(
    responseText('null', { kind: 'error', error: { code: -32700, message: 'Parse error' } }),
    '{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"Parse error"}}',
  );
});

test('a batch is split into messages, and an invalid item affects no other', () => {
  const text = ' [{"jsonrpc":"2.0","method":"a"}, 7, {"jsonrpc":"2.0","id":3}, {"jsonrpc":"2.0","id":4,"method":"b"}]';
  assert.ok(isBatch(text));
  assert.ok(!isBatch('{"jsonrpc":"2.0","method":"["}'));
  const [first, second, third, fourth] = parseBatch(text);
  assert.ok(first !== undefined && 'kind' in first && first.kind === 'notification');
  assert.ok(second instanceof MessageError && second.code === -32600);
  assert.ok(third instanceof MessageError && third.code === -32600 && third.id === '3');
  assert.ok(fourth !== undefined && 'kind' in fourth && fourth.kind === 'request');
  assert.throws(() => parseBatch('[{}'), MessageError);
  assert.deepEqual(parseBatch('[]'), []);
});

test('limit upstreamBatchMessages: a longer batch of an upstream is refused as a whole', () => {
  const batchOf = (count: number) => `[${Array.from({ length: count }, () => '1').join()}]`;
  const most = LIMITS.upstreamBatchMessages;
  assert.equal(parseBatch(batchOf(most)).length, most);
  assert.throws(() => parseBatch(batchOf(most + 1)), { code: -32600, limit: 'upstreamBatchMessages' });
});

// SEC-25 N-48
test('limit requestIdChars: ids are kept as text, up to 1 KiB', () => {
  const long = (chars: number): string => `"${'x'.repeat(chars)}"`;
  for (const id of ['9007199254740993', '-9007199254740993', `1${'0'.repeat(99)}`, long(129), long(1_022)]) {
    const message = parseMessage(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`);
    assert.ok(message.kind === 'request');
    assert.equal(message.id, id);
  }
  for (const id of [long(1_023), `1${'0'.repeat(1_024)}`]) {
    assert.throws(() => parseMessage(`{"jsonrpc":"2.0","id":${id},"method":"ping"}`), { code: -32600 });
  }
});

const errorsInOwnWords = [
  '{"message":"no","code":-32099,"data":{"10":1,"2":2,"id":12345678901234567890,"share":1.0}}',
  '{ "code": 7, "message": "no", "data": { "id": 12345678901234567890 } }',
];

for (const raw of errorsInOwnWords) {
  test(`an error that is passed on keeps its text: ${shortened(raw)}`, () => {
    const message = parseMessage(`{"jsonrpc":"2.0","id":1,"error":${raw}}`);
    assert.ok(message.kind === 'error');
    assert.equal(responseText('2', message), `{"jsonrpc":"2.0","id":2,"error":${raw}}`);
    const changed = { ...message.error, code: 8 };
    assert.ok(responseText('2', { kind: 'error', error: changed }).includes(JSON.stringify(changed)));
  });
}

test('the code of an error is written as an integer', () => {
  const message = parseMessage('{"jsonrpc":"2.0","id":1,"error":{"code":-32602.0,"message":"no"}}');
  assert.ok(message.kind === 'error');
  assert.equal(responseText('2', message), '{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"no"}}');
});

test('an error that names a member twice is written with the value that was read', () => {
  const raw = '{"code":7,"message":"no","data":{"uri":"b+x:1","uri":"x:1"}}';
  const message = parseMessage(`{"jsonrpc":"2.0","id":1,"error":${raw}}`);
  assert.ok(message.kind === 'error');
  const written = '{"code":7,"message":"no","data":{"uri":"x:1"}}';
  assert.equal(responseText('2', message), `{"jsonrpc":"2.0","id":2,"error":${written}}`);
});
