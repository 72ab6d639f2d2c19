import assert from 'node:assert/strict';
import { test } from 'node:test';

import { toAnswer, GatewayError } from '../../src/errors.ts';
import type { Answer } from '../../src/protocol/jsonrpc.ts';
import { RawObject } from '../../src/json/json.ts';
import { errorTypeOf } from '../../src/telemetry/operation.ts';

function result(text: string): Answer {
  return { kind: 'result', result: text };
}

function cut(text: string): Answer {
  return { kind: 'result', result: text, parsedResult: RawObject.parse(text) };
}

const cases: { name: string; method: string; answer: Answer; is: string | undefined }[] = [
  { name: 'a result', method: 'tools/call', answer: result('{"content":[]}'), is: undefined },
  {
    name: 'a tool that failed',
    method: 'tools/call',
    answer: result('{"isError":true,"content":[]}'),
    is: 'tool_error',
  },
  { name: 'one with spaces', method: 'tools/call', answer: result('{"isError" : true}'), is: 'tool_error' },
  { name: 'one that did not fail', method: 'tools/call', answer: result('{"isError":false}'), is: undefined },
  {
    name: 'text that quotes a failure',
    method: 'tools/call',
    answer: result(JSON.stringify({ content: [{ type: 'text', text: '{"isError":true}' }] })),
    is: undefined,
  },
  { name: 'a failed tool, cut open,', method: 'tools/call', answer: cut('{"isError": true}'), is: 'tool_error' },
  {
    name: 'what stands deeper in a result that is cut open',
    method: 'tools/call',
    answer: cut('{"structuredContent":{"isError":true}}'),
    is: undefined,
  },
  {
    name: 'what stands deeper in a result',
    method: 'tools/call',
    answer: result('{"content":[],"structuredContent":{"results":[{"isError":true}]}}'),
    is: undefined,
  },
  {
    name: 'a failed tool whose result names a member twice',
    method: 'tools/call',
    answer: result('{"content":[],"content":[],"isError":true}'),
    is: 'tool_error',
  },
  { name: 'another method, cut open,', method: 'prompts/get', answer: cut('{"isError":true}'), is: undefined },
  { name: 'another method', method: 'resources/read', answer: result('{"isError":true}'), is: undefined },
  { name: 'our own failure', method: 'tools/call', answer: toAnswer(new GatewayError('draining')), is: 'draining' },
  {
    name: "an upstream's error",
    method: 'tools/call',
    answer: { kind: 'error', error: { code: -32602, message: 'no', data: { code: '__proto__' } } },
    is: 'rpc_error',
  },
];

for (const { name, method, answer, is } of cases) {
  test(`${name} counts as ${is ?? 'success'}`, () => assert.equal(errorTypeOf(method, answer), is));
}
