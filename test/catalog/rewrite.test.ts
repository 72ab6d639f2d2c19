import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { resolveResource } from '../../src/catalog/catalog.ts';
import { errorToClient, itemToClient, loggerToClient, toClient } from '../../src/catalog/rewrite.ts';
import { GatewayError } from '../../src/errors.ts';
import { RawObject } from '../../src/json/json.ts';
import { bare, catalogOf, upstream, view } from './fixtures.ts';

const a = upstream('a');

const places = [
  {
    what: 'a resource link',
    method: 'tools/call',
    before: '{"content":[{"type":"resource_link","name":"n","uri":"x:1"}],"n":1.0}',
    after: '{"content":[{"type":"resource_link","name":"n","uri":"a+x:1"}],"n":1.0}',
  },
  {
    what: 'an embedded resource',
    method: 'tools/call',
    before: '{"content":[{"type":"text","text":"x:1"},{"type":"resource","resource":{"uri":"ui://x","blob":"AA=="}}]}',
    after: '{"content":[{"type":"text","text":"x:1"},{"type":"resource","resource":{"uri":"ui://a+x","blob":"AA=="}}]}',
  },
  {
    what: 'a link in a task’s result',
    method: 'tasks/result',
    before: '{"content":[{"type":"resource_link","uri":"x:1"}]}',
    after: '{"content":[{"type":"resource_link","uri":"a+x:1"}]}',
  },
  {
    what: 'a user interface in the result of a tool',
    method: 'tools/call',
    before: '{"content":[],"_meta":{"ui":{"resourceUri":"ui://x"},"ui/resourceUri":"ui://x","n":"ui://x"}}',
    after: '{"content":[],"_meta":{"ui":{"resourceUri":"ui://a+x"},"ui/resourceUri":"ui://a+x","n":"ui://x"}}',
  },
  {
    what: 'a user interface in the result of a task',
    method: 'tasks/result',
    before: '{"content":[],"_meta":{"ui/resource\\u0055ri":"ui://x","openai/outputTemplate":"ui://x"}}',
    after: '{"content":[],"_meta":{"ui/resource\\u0055ri":"ui://a+x","openai/outputTemplate":"ui://a+x"}}',
  },
  {
    what: 'a user interface that only one client knows',
    method: 'tools/call',
    before: '{"content":[],"_meta":{"openai/outputTemplate":"ui://x"}}',
    after: '{"content":[],"_meta":{"openai/outputTemplate":"ui://a+x"}}',
  },
  {
    what: 'a user interface whose name is spelled with an escape',
    method: 'tools/call',
    before: '{"content":[],"_meta":{"openai/output\\u0054emplate":"ui://x"}}',
    after: '{"content":[],"_meta":{"openai/output\\u0054emplate":"ui://a+x"}}',
  },
  {
    what: 'a prompt message',
    method: 'prompts/get',
    before: '{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"x:1","text":"t"}}}]}',
    after: '{"messages":[{"role":"user","content":{"type":"resource","resource":{"uri":"a+x:1","text":"t"}}}]}',
  },
  {
    what: 'the contents of a resource',
    method: 'resources/read',
    before: '{"contents":[{"uri":"x:1","text":"see x:2"},{"uri":"https://y","text":""}],"_meta":{"uri":"x:3"}}',
    after: '{"contents":[{"uri":"a+x:1","text":"see x:2"},{"uri":"https://y","text":""}],"_meta":{"uri":"x:3"}}',
  },
  {
    what: 'a tool result within sampling',
    method: 'sampling/createMessage',
    before:
      '{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[{"type":"resource_link","uri":"x:1"}]}]}],"tools":[{"name":"t"}]}',
    after:
      '{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[{"type":"resource_link","uri":"a+x:1"}]}]}],"tools":[{"name":"t"}]}',
  },
  {
    what: 'an update',
    method: 'notifications/resources/updated',
    before: '{"uri":"x:1"}',
    after: '{"uri":"a+x:1"}',
  },
  {
    what: 'a URI whose member name is spelled with escapes',
    method: 'tools/call',
    before: '{"content":[{"type":"resource_link","\\u0075\\u0072\\u0069":"b+x:1"}]}',
    after: '{"content":[{"type":"resource_link","\\u0075\\u0072\\u0069":"a+b+x:1"}]}',
  },
];

for (const { what, method, before, after } of places) {
  // M-016
  test(`the URI of ${what} is published`, () => {
    assert.equal(toClient(method, a, before), after);
    assert.equal(toClient(method, bare('a'), before), before);
  });
}

const ICONS =
  '"icons":[{"src":"javascript:alert(1)"},{"src":"DATA:image/png,"},{"x":1},{"src":"file:///a"},{"src":"https://x/i"}]';
const SAFE_ICONS = '"icons":[{"src":"DATA:image/png,"},{"x":1},{"src":"https://x/i"}]';

for (const { where, method, text } of [
  { where: 'a link', method: 'tools/call', text: `{"content":[{"type":"resource_link",${ICONS},"uri":"https://x"}]}` },
  { where: 'a prompt', method: 'prompts/get', text: `{"messages":[{"content":{${ICONS},"uri":"https://x"}}]}` },
  { where: 'a tool for a model', method: 'sampling/createMessage', text: `{"tools":[{"name":"t",${ICONS}}]}` },
]) {
  // S-015
  test(`icons of ${where} that clients must reject are left out`, () => {
    for (const upstreamOf of [a, bare('a')]) {
      assert.equal(toClient(method, upstreamOf, text), text.replace(ICONS, SAFE_ICONS));
      const escaped = text.replace('"icons"', String.raw`"icon\u0073"`);
      assert.equal(toClient(method, upstreamOf, escaped).includes('javascript'), false);
    }
  });
}

// S-015
test('a result whose icons are all safe is the same text', () => {
  const text = `{ "content": [ {"type":"resource_link", ${SAFE_ICONS},"uri":"https://x"} ] }`;
  for (const upstreamOf of [a, bare('a')]) assert.equal(toClient('tools/call', upstreamOf, text), text);
  assert.equal(toClient('resources/read', bare('a'), `{${ICONS}}`), `{${ICONS}}`);
});

const untouched = [
  { what: 'structured content', method: 'tools/call', text: '{"content":[],"structuredContent":{"uri":"x:1"}}' },
  { what: 'free text', method: 'tools/call', text: '{"content":[{"type":"text","text":"\\"uri\\": x:1"}]}' },
  { what: 'a web link', method: 'tools/call', text: '{"content":[{ "type":"resource_link","uri":"https://x"}]}' },
  { what: 'a URI that is no text', method: 'tools/call', text: '{"content":[{"uri":7,"resource":"uri"}]}' },
  { what: 'content that is no list', method: 'tools/call', text: '{"content":"uri","uri":"x:1"}' },
  { what: 'completion values', method: 'completion/complete', text: '{"completion":{"values":["uri"],"uri":"x:1"}}' },
  { what: 'a request for a URL', method: 'elicitation/create', text: '{"url":"https://x","uri":"x:1"}' },
];

for (const { what, method, text } of untouched) {
  // M-018 M-025
  test(`${what} is relayed unchanged`, () => assert.equal(toClient(method, a, text), text));
}

// M-016
test('nothing but the URI changes, whatever is around it', () => {
  const extra = fc.dictionary(fc.string({ minLength: 3 }), fc.jsonValue({ maxDepth: 2 }));
  fc.assert(
    fc.property(extra, extra, fc.webPath(), (block, result, path) => {
      const build = (uri: string): string =>
        JSON.stringify({ ...result, content: [{ ...block, type: 'resource_link', uri }, block] });
      fc.pre(!('uri' in block) && !('resource' in block));
      assert.equal(toClient('tools/call', a, build(`x:${path}`)), build(`a+x:${path}`));
    }),
  );
});

// M-016
test('reading a link in a tool result reaches the tool’s upstream', () => {
  const catalog = catalogOf(view([a, upstream('b')]), {});
  const text = toClient('tools/call', a, '{"content":[{"type":"resource_link","uri":"note:1"}]}');
  assert.match(text, /"a\+note:1"/);
  assert.deepEqual(resolveResource(catalog, 'a+note:1'), { kind: 'one', upstream: 'a', uri: 'note:1' });
});

test('a malformed result that may hide a URI fails with executed "yes"', () => {
  const twice = '{"content":[{"type":"resource_link","uri":"x:1","uri":"b+x:1"}]}';
  assert.throws(
    () => toClient('tools/call', a, twice),
    (thrown) =>
      thrown instanceof GatewayError && thrown.code === 'upstream-protocol' && thrown.detail.executed === 'yes',
  );
});

// M-022
test('all three references to a tool’s user interface are published as ui://', () => {
  const item = RawObject.parse(
    '{"name":"t","_meta":{"ui":{"visibility":["app"],"resourceUri":"ui://x/y"},"ui/resourceUri":"ui://x/y","openai/outputTemplate":"ui://x/y","other":"ui://x/y"}}',
  );
  assert.equal(
    itemToClient('tool', a, item).toString(),
    '{"name":"t","_meta":{"ui":{"visibility":["app"],"resourceUri":"ui://a+x/y"},"ui/resourceUri":"ui://a+x/y","openai/outputTemplate":"ui://a+x/y","other":"ui://x/y"}}',
  );
  assert.equal(itemToClient('tool', bare('a'), item), item);
  const plain = RawObject.parse('{"name":"t","_meta":{"x":1}}');
  assert.equal(itemToClient('tool', a, plain), plain);
});

// M-007
test('an error names the resource by its published URI', () => {
  const error = { code: -32002, message: 'no', data: { uri: 'x:1', more: 1 } };
  assert.deepEqual(errorToClient(error, a), { code: -32002, message: 'no', data: { uri: 'a+x:1', more: 1 } });
  assert.equal(errorToClient(error, bare('a')), error);
  for (const data of [undefined, null, 'x:1', { uri: 1 }]) {
    const other = { code: 1, message: 'm', data };
    assert.equal(errorToClient(other, a), other);
  }
});

test('an error of a gateway behind this one names the upstream that clients know', () => {
  const named = (code: number, data: object) => errorToClient({ code, message: 'm', data }, a).data;
  const timeout = { code: 'upstream-timeout', executed: 'unknown' };
  assert.deepEqual(named(-31_011, { ...timeout, upstream: 'files' }), { ...timeout, upstream: 'a/files' });
  assert.deepEqual(named(-31_014, { code: 'draining', executed: 'no' }), {
    code: 'draining',
    executed: 'no',
    upstream: 'a',
  });
  const unknown = { code: 'unknown-resource', uri: 'x:1' };
  assert.deepEqual(named(-32_002, unknown), { ...unknown, uri: 'a+x:1', upstream: 'a' });
  for (const [code, data] of [
    [7, { ...timeout, upstream: 'files' }],
    [-31_011, { code: 'other', upstream: 'files' }],
  ] as const) {
    assert.equal(named(code, data), data);
  }
});

const loggers = [
  { params: '{"level":"info","logger":"db","data":1.0}', expected: '{"level":"info","logger":"a/db","data":1.0}' },
  { params: '{"level":"info","logger":"\\u0064b"}', expected: '{"level":"info","logger":"a/\\u0064b"}' },
  { params: '{"level":"info","data":1}', expected: '{"level":"info","data":1,"logger":"a"}' },
];

for (const { params, expected } of loggers) {
  test(`a log message ${params} names its upstream`, () => {
    assert.equal(loggerToClient(view([a, upstream('b')]), a, RawObject.parse(params)).toString(), expected);
    assert.equal(loggerToClient(view([a]), a, RawObject.parse(params)).toString(), params);
  });
}
