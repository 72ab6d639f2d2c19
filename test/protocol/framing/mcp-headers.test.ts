import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { RawObject } from '../../../src/json/json.ts';
import type { Notification, Request } from '../../../src/protocol/jsonrpc.ts';
import {
  type Header,
  type HeaderLookup,
  paramHeaderFault,
  paramHeaders,
  standardHeaderFault,
  standardHeaders,
} from '../../../src/protocol/framing/mcp-headers.ts';
import type { MirroredParam } from '../../../src/protocol/framing/mirrored-params.ts';
import { quote, shortened } from '../../support/test-name.ts';

function request(method: string, params?: object): Request {
  return { kind: 'request', id: '1', method, params: params === undefined ? undefined : RawObject.of(params) };
}

function notification(method: string): Notification {
  return { kind: 'notification', method, params: undefined };
}

/** Returns a look-up of received headers by name, in any case. */
function received(headers: readonly Header[]): HeaderLookup {
  const byName = new Map(headers.map(([name, value]) => [name.toLowerCase(), value]));
  return (name) => byName.get(name);
}

const standard: { message: Request | Notification; headers: Header[] }[] = [
  {
    message: request('tools/call', { name: 'get_weather' }),
    headers: [
      ['Mcp-Method', 'tools/call'],
      ['Mcp-Name', 'get_weather'],
    ],
  },
  {
    message: request('prompts/get', { name: 'größe' }),
    headers: [
      ['Mcp-Method', 'prompts/get'],
      ['Mcp-Name', '=?base64?Z3LDtsOfZQ==?='],
    ],
  },
  {
    message: request('resources/read', { name: 'x', uri: 'file:///a b' }),
    headers: [
      ['Mcp-Method', 'resources/read'],
      ['Mcp-Name', 'file:///a b'],
    ],
  },
  {
    message: request('tasks/get', { taskId: '7' }),
    headers: [
      ['Mcp-Method', 'tasks/get'],
      ['Mcp-Name', '7'],
    ],
  },
  { message: request('tools/list', { name: 'x' }), headers: [['Mcp-Method', 'tools/list']] },
  { message: request('tools/call', { name: 7 }), headers: [['Mcp-Method', 'tools/call']] },
  { message: request('tools/call'), headers: [['Mcp-Method', 'tools/call']] },
  { message: notification('notifications/cancelled'), headers: [['Mcp-Method', 'notifications/cancelled']] },
];

for (const { message, headers } of standard) {
  // T-039
  test(`${message.method} ${message.params?.toString()} has the headers of its body`, () => {
    assert.deepEqual(standardHeaders(message), headers);
    assert.equal(standardHeaderFault(message, received(headers)), undefined);
  });
}

const CALL = request('tools/call', { name: 'foo' });
const GOOD: Header[] = [
  ['Mcp-Method', 'tools/call'],
  ['Mcp-Name', 'foo'],
];

const accepted: { name: string; message: Request | Notification; headers: Header[] }[] = [
  {
    name: 'names of headers in capitals',
    message: CALL,
    headers: [
      ['MCP-METHOD', 'tools/call'],
      ['MCP-NAME', 'foo'],
    ],
  },
  {
    name: 'white space around values',
    message: CALL,
    headers: [
      ['mcp-method', ' tools/call\t'],
      ['mcp-name', ' foo '],
    ],
  },
  {
    name: 'a plain name in base64',
    message: CALL,
    headers: [
      ['mcp-method', 'tools/call'],
      ['mcp-name', '=?base64?Zm9v?='],
    ],
  },
  {
    name: 'a name where the method has none',
    message: request('tools/list'),
    headers: [
      ['Mcp-Method', 'tools/list'],
      ['Mcp-Name', 'x'],
    ],
  },
  { name: 'a notification without headers', message: notification('notifications/cancelled'), headers: [] },
];

for (const { name, message, headers } of accepted) {
  // T-009
  test(`${name}: the request is served`, () => {
    assert.equal(standardHeaderFault(message, received(headers)), undefined);
  });
}

const refused: { name: string; message: Request | Notification; headers: Header[]; why: RegExp }[] = [
  // T-009
  { name: 'no method', message: CALL, headers: [['Mcp-Name', 'foo']], why: /Mcp-Method header is missing/ },
  // T-009
  {
    name: 'a method in capitals',
    message: CALL,
    headers: [
      ['Mcp-Method', 'TOOLS/CALL'],
      ['Mcp-Name', 'foo'],
    ],
    why: /Mcp-Method header does not match/,
  },
  // T-009
  {
    name: 'a method before a strange space',
    message: CALL,
    headers: [
      ['Mcp-Method', 'tools/call\u00a0'],
      ['Mcp-Name', 'foo'],
    ],
    why: /Mcp-Method header does not match/,
  },
  // T-009
  {
    name: 'a notification under another method',
    message: notification('notifications/cancelled'),
    headers: [['Mcp-Method', 'tools/call']],
    why: /Mcp-Method header does not match/,
  },
  // T-010
  { name: 'no name', message: CALL, headers: [['Mcp-Method', 'tools/call']], why: /Mcp-Name header is missing/ },
  // T-010
  {
    name: 'another name',
    message: CALL,
    headers: [
      ['Mcp-Method', 'tools/call'],
      ['Mcp-Name', 'bar'],
    ],
    why: /Mcp-Name header does not match/,
  },
  // T-010
  {
    name: 'another URI',
    message: request('resources/read', { uri: 'a:b' }),
    headers: [
      ['Mcp-Method', 'resources/read'],
      ['Mcp-Name', 'a:c'],
    ],
    why: /Mcp-Name header does not match/,
  },
  // T-011
  {
    name: 'a name in bad base64',
    message: CALL,
    headers: [
      ['Mcp-Method', 'tools/call'],
      ['Mcp-Name', '=?base64?Zm9?='],
    ],
    why: /Mcp-Name header is malformed/,
  },
];

for (const { name, message, headers, why } of refused) {
  test(`${name} in the headers is refused with the reason`, () => {
    assert.match(standardHeaderFault(message, received(headers)) ?? '', why);
  });
}

// T-009
test('matching headers are accepted', () => {
  assert.equal(standardHeaderFault(CALL, received(GOOD)), undefined);
});

const PARAMS: readonly MirroredParam[] = [
  { header: 'Region', path: ['region'] },
  { header: 'Count', path: ['deep', 'count'] },
  { header: 'Flag', path: ['flag'] },
];

const mirrored: { name: string; args: string; headers: Header[] }[] = [
  {
    name: 'all arguments',
    args: '{"flag":false,"region":"us-west1","deep":{"count":-7,"x":1},"other":1}',
    headers: [
      ['Mcp-Param-Region', 'us-west1'],
      ['Mcp-Param-Count', '-7'],
      ['Mcp-Param-Flag', 'false'],
    ],
  },
  { name: 'null', args: '{"region":null,"deep":{"count":null}}', headers: [] },
  { name: 'no arguments', args: '{}', headers: [] },
  { name: 'a holder that is no object', args: '{"deep":[1],"region":"a"}', headers: [['Mcp-Param-Region', 'a']] },
  { name: 'arguments that are not as the schema says', args: '{"region":{"a":1},"flag":[true]}', headers: [] },
  { name: 'an empty text', args: '{"region":""}', headers: [['Mcp-Param-Region', '']] },
  {
    name: 'a text with escapes',
    args: '{"region":"a\\u000d\\nb"}',
    headers: [['Mcp-Param-Region', '=?base64?YQ0KYg==?=']],
  },
  { name: 'a number with an exponent', args: '{"deep":{"count":1e3}}', headers: [['Mcp-Param-Count', '1000']] },
  { name: 'a whole number with a point', args: '{"deep":{"count":42.0}}', headers: [['Mcp-Param-Count', '42']] },
  { name: 'a fraction', args: '{"deep":{"count":3.14159}}', headers: [['Mcp-Param-Count', '3.14159']] },
  { name: 'minus zero', args: '{"deep":{"count":-0}}', headers: [['Mcp-Param-Count', '0']] },
  {
    name: 'an integer beyond 2^53',
    args: '{"deep":{"count":12345678901234567891}}',
    headers: [['Mcp-Param-Count', '12345678901234567891']],
  },
  { name: 'a great number', args: '{"deep":{"count":1e21}}', headers: [['Mcp-Param-Count', '1000000000000000000000']] },
  { name: 'a number beyond all', args: '{"deep":{"count":1e400}}', headers: [] },
];

for (const { name, args, headers } of mirrored) {
  // T-039
  test(`the headers repeat ${name}`, () => {
    assert.deepEqual(paramHeaders(PARAMS, RawObject.parse(args)), headers);
    assert.equal(paramHeaderFault(PARAMS, RawObject.parse(args), received(headers)), undefined);
  });
}

const compared: { args: string; headers: Header[]; why: RegExp | undefined }[] = [
  { args: '{"deep":{"count":42}}', headers: [['MCP-PARAM-COUNT', ' 42.0 ']], why: undefined },
  { args: '{"deep":{"count":42.0}}', headers: [['Mcp-Param-Count', '42']], why: undefined },
  { args: '{"deep":{"count":1000}}', headers: [['Mcp-Param-Count', '1e3']], why: undefined },
  { args: '{"deep":{"count":0.5}}', headers: [['Mcp-Param-Count', '0.50']], why: undefined },
  { args: '{"deep":{"count":42}}', headers: [['Mcp-Param-Count', '=?base64?NDI=?=']], why: undefined },
  { args: '{}', headers: [['Mcp-Param-Unknown', 'é']], why: undefined },
  { args: '{"deep":{"count":42}}', headers: [['Mcp-Param-Count', '43']], why: /Count header does not match/ },
  { args: '{"deep":{"count":0}}', headers: [['Mcp-Param-Count', '']], why: /Count header does not match/ },
  { args: '{"deep":{"count":16}}', headers: [['Mcp-Param-Count', '0x10']], why: /Count header does not match/ },
  {
    args: '{"deep":{"count":12345678901234567890}}',
    headers: [['Mcp-Param-Count', '12345678901234567891']],
    why: /Count header does not match/,
  },
  { args: '{"region":"42"}', headers: [['Mcp-Param-Region', '42.0']], why: /Region header does not match/ },
  { args: '{"flag":true}', headers: [['Mcp-Param-Flag', 'TRUE']], why: /Flag header does not match/ },
  { args: '{"flag":true}', headers: [['Mcp-Param-Flag', '1']], why: /Flag header does not match/ },
  { args: '{"region":"a"}', headers: [['Mcp-Param-Region', 'A']], why: /Region header does not match/ },
  { args: '{"region":"a"}', headers: [], why: /Region header is missing/ },
  { args: '{"region":""}', headers: [], why: /Region header is missing/ },
  { args: '{}', headers: [['Mcp-Param-Region', 'a']], why: /Region header has no argument/ },
  { args: '{"region":null}', headers: [['Mcp-Param-Region', 'null']], why: /Region header has no argument/ },
  { args: '{"region":null}', headers: [['Mcp-Param-Region', '']], why: /Region header has no argument/ },
  { args: '{"region":["a"]}', headers: [['Mcp-Param-Region', 'a']], why: /Region header has no argument/ },
  { args: '{"region":"a"}', headers: [['Mcp-Param-Region', 'a\u0001']], why: /Region header is malformed/ },
  { args: '{"region":"a"}', headers: [['Mcp-Param-Region', '=?base64?YQ?=']], why: /Region header is malformed/ },
];

for (const { args, headers, why } of compared) {
  // T-012
  test(`${quote(headers, 32)} for ${shortened(args, 28)} is ${why === undefined ? 'fine' : 'refused'}`, () => {
    const fault = paramHeaderFault(PARAMS, RawObject.parse(args), received(headers));
    if (why === undefined) assert.equal(fault, undefined);
    else assert.match(fault ?? '', why);
  });
}

// T-012
test('a call without arguments needs no headers', () => {
  assert.deepEqual(paramHeaders(PARAMS, undefined), []);
  assert.equal(
    paramHeaderFault(PARAMS, undefined, () => undefined),
    undefined,
  );
});

const anyText = fc.oneof(
  fc.string({ unit: 'binary' }),
  fc.string({ unit: fc.constantFrom('\ud800', '\r', '\n', '?=', ' ') }),
);

// T-012 S-018
test('headers made for any arguments are accepted and have no control characters', () => {
  const anyArgs = fc.record(
    {
      region: fc.oneof(anyText, fc.jsonValue()),
      deep: fc.oneof(fc.record({ count: fc.oneof(fc.integer(), fc.double(), fc.jsonValue()) }), fc.jsonValue()),
      flag: fc.oneof(fc.boolean(), fc.jsonValue()),
    },
    { requiredKeys: [] },
  );
  fc.assert(
    fc.property(anyText, anyText, anyArgs, (method, name, value) => {
      const args = RawObject.of(value);
      const params = paramHeaders(PARAMS, args);
      assert.equal(paramHeaderFault(PARAMS, args, received(params)), undefined);
      const call = request('tools/call', { name, arguments: value });
      assert.equal(standardHeaderFault(call, received(standardHeaders(call))), undefined);
      const headers = [...params, ...standardHeaders(call), ...standardHeaders(request(method))];
      for (const [, text] of headers) assert.match(text, /^[\x20-\x7e]*$/);
    }),
    { numRuns: 2_000 },
  );
});
