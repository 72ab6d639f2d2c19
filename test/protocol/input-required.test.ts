import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../support/fast-check.ts';

import {
  type InputRequired,
  inputRequiredResult,
  mayRequireInput,
  readResult,
  readRetry,
  withRetry,
} from '../../src/protocol/input-required.ts';
import { RawObject } from '../../src/json/json.ts';

const readResultText = (text: string) => readResult(RawObject.parse(text));

test('complete, task and absent result types are distinguished', () => {
  for (const [text, kind] of [
    ['{"resultType":"complete","content":[]}', 'complete'],
    ['{"resultType":"task","taskId":"1"}', 'task'],
    ['{ "content":[] }', 'absent'],
  ] as const) {
    const reading = readResultText(text);
    assert.ok(reading.kind === 'complete' || reading.kind === 'task' || reading.kind === 'absent');
    assert.equal(reading.kind, kind);
    assert.equal(reading.result.toString(), text);
  }
});

for (const resultType of ['"partial"', '""', 'null', '7', '"Complete"']) {
  // M-029
  test(`a result of type ${resultType} is unknown`, () => {
    assert.deepEqual(readResultText(`{"resultType":${resultType}}`), { kind: 'unknown', resultType });
  });
}

for (const name of ['ResultType', 'InputRequests', 'inputrequests', 'Reque\u017ftState']) {
  // SEC-29
  test(`a complete result with the member "${name}" is malformed`, () => {
    const reading = readResult(RawObject.of({ resultType: 'complete', content: [], [name]: {} }));
    assert.deepEqual(reading, {
      kind: 'malformed',
      why: `has a member "${name}" that could be mistaken for another one`,
    });
  });
}

test('input requests keep order and parameters, and the state its bytes', () => {
  const reading = readResultText(
    '{"resultType":"input_required","inputRequests":{"b":{"method":"elicitation/create","params":{ "x":1.0 },"y":1},"a":{"method":"roots/list"}},"requestState":"s\\u0041"}',
  );
  assert.ok(reading.kind === 'input-required');
  const { inputRequests, requestState } = reading.asked;
  assert.equal(requestState, '"s\\u0041"');
  assert.deepEqual(
    inputRequests.map(({ key, method, params }) => [key, method, params?.toString()]),
    [
      ['b', 'elicitation/create', '{ "x":1.0 }'],
      ['a', 'roots/list', undefined],
    ],
  );
});

//
test('a result with only a state is valid', () => {
  assert.deepEqual(readResultText('{"resultType":"input_required","requestState":""}'), {
    kind: 'input-required',
    asked: { inputRequests: [], requestState: '""', rest: RawObject.EMPTY },
  });
});

const ROOTS = '{"method":"roots/list"}';

const malformed = [
  //
  { name: 'nothing at all', rest: '', why: /asks for nothing/ },
  //
  { name: 'no question', rest: ',"inputRequests":{}', why: /asks for nothing/ },
  { name: 'questions in a list', rest: ',"inputRequests":[]', why: /no requests/ },
  { name: 'questions with equal keys', rest: `,"inputRequests":{"a":${ROOTS},"a":${ROOTS}}`, why: /no requests/ },
  {
    name: 'a question in two ways',
    rest: ',"inputRequests":{"a":{"method":"m","params":{"x":[{"y":1,"y":2}]}}}',
    why: /no requests/,
  },
  { name: 'a question that is no object', rest: ',"inputRequests":{"a":7}', why: /no requests/ },
  { name: 'a question without a method', rest: ',"inputRequests":{"a":{"params":{}}}', why: /no requests/ },
  { name: 'parameters in a list', rest: ',"inputRequests":{"a":{"method":"m","params":[]}}', why: /no requests/ },
  { name: 'a state that is no string', rest: ',"requestState":{}', why: /"requestState" that is no string/ },
];

for (const { name, rest, why } of malformed) {
  test(`${name} is malformed`, () => {
    const reading = readResultText(`{"resultType":"input_required"${rest}}`);
    assert.ok(reading.kind === 'malformed');
    assert.match(reading.why, why);
  });
}

//
test('only tools/call, prompts/get and resources/read may require input', () => {
  for (const method of ['tools/call', 'prompts/get', 'resources/read']) assert.ok(mayRequireInput(method));
  for (const method of ['tools/list', 'completion/complete', 'tasks/result', 'server/discover'])
    assert.ok(!mayRequireInput(method));
});

//
test('input_required needs input requests or a state', () => {
  const kindOf = (rest: string) => readResultText(`{"resultType":"input_required"${rest}}`).kind;
  assert.equal(kindOf(',"inputRequests":{"a":{"method":"roots/list"}}'), 'input-required');
  assert.equal(kindOf(',"requestState":"s"'), 'input-required');
  assert.equal(kindOf(',"inputRequests":{}'), 'malformed');
});

test('an input_required result keeps its members, and nothing of it is cached', () => {
  const raw =
    '{"resultType":"input_required","requestState":"s","ttlMs":9,"cacheScope":"public","_meta":{"a":1},"x":2}';
  const read = readResult(RawObject.parse(raw));
  assert.ok(read.kind === 'input-required');
  const written: unknown = JSON.parse(inputRequiredResult(read.asked).toString());
  assert.deepEqual(written, { resultType: 'input_required', requestState: 's', _meta: { a: 1 }, x: 2 });
});

test('a written input_required result is read back equal', () => {
  const anyAsk = fc.record({
    key: fc.string(),
    method: fc.string(),
    params: fc.option(fc.dictionary(fc.string(), fc.jsonValue()), { nil: undefined }),
  });
  const anyAsked = fc.record({
    asks: fc.uniqueArray(anyAsk, { selector: ({ key }) => key }),
    state: fc.option(fc.string(), { nil: undefined }),
  });
  fc.assert(
    fc.property(anyAsked, ({ asks, state }) => {
      const asked: InputRequired = {
        inputRequests: asks.map((ask) => ({
          ...ask,
          params: ask.params === undefined ? undefined : RawObject.of(ask.params),
        })),
        requestState: state === undefined ? undefined : JSON.stringify(state),
      };
      const reading = readResultText(inputRequiredResult(asked).toString());
      if (asks.length === 0 && state === undefined) return assert.equal(reading.kind, 'malformed');
      assert.ok(reading.kind === 'input-required');
      assert.equal(reading.asked.requestState, asked.requestState);
      const shown = ({ inputRequests }: InputRequired): string[] =>
        inputRequests.map(({ key, method, params }) => JSON.stringify([key, method, params?.toString()]));
      assert.deepEqual(shown(reading.asked), shown(asked));
    }),
  );
});

// X-004 X-005
test('a retry replaces earlier answers and state with those of this round', () => {
  const params = RawObject.parse('{"name":"a","inputResponses":{"old":{}},"requestState":"old","arguments":{ }}');
  const inputResponses = RawObject.parse('{"k":{ "action":"accept" }}');
  assert.equal(
    withRetry(params, { inputResponses, requestState: '"\\u0041"' }).toString(),
    '{"name":"a","inputResponses":{"k":{ "action":"accept" }},"requestState":"\\u0041","arguments":{ }}',
  );
  assert.equal(
    withRetry(params, { inputResponses: undefined, requestState: undefined }).toString(),
    '{"name":"a","arguments":{ }}',
  );
});

const retries = [
  { params: '{"inputResponses":{"a":1},"requestState":"s"}', retry: ['{"a":1}', '"s"'] },
  { params: '{"name":"a"}', retry: [undefined, undefined] },
  { params: '{"inputResponses":[]}', retry: undefined },
  { params: '{"requestState":{}}', retry: undefined },
];

for (const { params, retry } of retries) {
  test(`${params} ${retry === undefined ? 'is a malformed retry' : 'is read'}`, () => {
    const read = readRetry(RawObject.parse(params));
    assert.deepEqual(read === undefined ? undefined : [read.inputResponses?.toString(), read.requestState], retry);
  });
}
