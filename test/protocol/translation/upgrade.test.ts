import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RawObject } from '../../../src/json/json.ts';
import {
  upgradeServerRequest,
  upgradeError,
  upgradeResult,
  upgradeTool,
  type Stamp,
  withStamp,
} from '../../../src/protocol/translation/upgrade.ts';

const STAMP: Stamp = { serverInfo: '{"name":"linkspan","version":"1"}', ttlMs: 0, cacheScope: 'private' };
const META = '"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"linkspan","version":"1"}}';

const results = [
  //
  {
    name: 'a call is complete and under our name',
    method: 'tools/call',
    from: '{ "content": [ {"type":"text","text":"\\u00e9"} ], "x": 1.0 }',
    to: `{ "content": [ {"type":"text","text":"\\u00e9"} ], "x": 1.0 ,"resultType":"complete",${META}}`,
  },
  //
  {
    name: 'a call without content has none in a list',
    method: 'tools/call',
    from: '{"structuredContent":{"content":1}}',
    to: `{"structuredContent":{"content":1},"resultType":"complete","content":[],${META}}`,
  },
  // M-010
  {
    name: 'what is read says how long it may be kept',
    method: 'resources/read',
    from: '{"contents":[]}',
    to: `{"contents":[],"resultType":"complete",${META},"ttlMs":0,"cacheScope":"private"}`,
  },
  // M-026
  {
    name: 'our name takes the place of another, and the rest of _meta stays',
    method: 'prompts/get',
    from: '{"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"x"},"b":2},"messages":[]}',
    to: '{"_meta":{"a":1,"io.modelcontextprotocol/serverInfo":{"name":"linkspan","version":"1"},"b":2},"messages":[],"resultType":"complete"}',
  },
  {
    name: 'the marks of a task of 2025-11-25 go',
    method: 'tools/call',
    from: '{"content":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"},"io.modelcontextprotocol/model-immediate-response":"x"}}',
    to: `{"content":[],"resultType":"complete",${META}}`,
  },
  // M-030
  {
    name: 'what an older server calls resultType or ttlMs is not what we mean by it',
    method: 'tools/list',
    from: '{"tools":[],"resultType":"input_required","ttlMs":-1,"_meta":null}',
    to: `{"tools":[],"resultType":"complete","ttlMs":0,${META},"cacheScope":"private"}`,
  },
];

for (const { name, method, from, to } of results) {
  test(name, () => {
    assert.equal(upgradeResult(method, from, STAMP), to);
  });
}

// M-010
test('only results of cacheable methods carry ttlMs and cacheScope', () => {
  const cacheable = [
    'server/discover',
    'tools/list',
    'prompts/list',
    'resources/list',
    'resources/templates/list',
    'resources/read',
  ];
  const others = ['tools/call', 'prompts/get', 'completion/complete', 'subscriptions/listen'];
  for (const method of [...cacheable, ...others]) {
    const result = RawObject.parse(upgradeResult(method, '{}', { ...STAMP, ttlMs: 5_000, cacheScope: 'public' }));
    assert.equal(result.raw('ttlMs'), cacheable.includes(method) ? '5000' : undefined, method);
    assert.equal(result.string('cacheScope'), cacheable.includes(method) ? 'public' : undefined, method);
  }
});

// M-026
test('a modern result gets only our serverInfo and cache fields', () => {
  const result = RawObject.parse('{"resultType":"complete","supportedVersions":[ ],"ttlMs":9}');
  assert.equal(
    withStamp('server/discover', result, STAMP).toString(),
    `{"resultType":"complete","supportedVersions":[ ],"ttlMs":0,${META},"cacheScope":"private"}`,
  );
  assert.equal(
    withStamp('tools/call', RawObject.parse('{"resultType":"input_required"}'), STAMP).toString(),
    `{"resultType":"input_required",${META}}`,
  );
});

const items = [
  {
    name: 'a tool loses what it says of tasks',
    from: '{"name":"a","execution":{"taskSupport":"required"},"inputSchema":{ "type":"object" }}',
    to: '{"name":"a","inputSchema":{ "type":"object" }}',
  },
  {
    name: 'a tool keeps what else it says of its execution',
    from: '{"name":"a","execution":{"x":1,"taskSupport":"optional"}}',
    to: '{"name":"a","execution":{"x":1}}',
  },
  {
    name: 'a wrong annotation removes no tool of an upstream without header support',
    from: '{"name":"a","inputSchema":{"type":"object","properties":{"b":{"type":"array","x-mcp-header":"B"}}}}',
    to: '{"name":"a","inputSchema":{"type":"object","properties":{"b":{"type":"array"}}}}',
  },
  {
    name: 'any other tool stays as it is',
    from: '{ "name":"a", "execution":{} , "z":1e400}',
    to: '{ "name":"a", "execution":{} , "z":1e400}',
  },
];

for (const { name, from, to } of items) {
  test(name, () => assert.equal(upgradeTool(from), to));
}

//
test('an unknown resource gets -32602, and keeps its message and data', () => {
  const error = { code: -32002, message: 'gone', data: { uri: 'a:b' }, x: 1 };
  assert.deepEqual(upgradeError(error), { ...error, code: -32602 });
  const other = { code: -32000, message: 'x' };
  assert.equal(upgradeError(other), other);
});

const asks = [
  {
    name: 'a page to open',
    from: '{"mode":"url","message":"m","url":"https://x.example","elicitationId":"1","task":{"ttl":1},"_meta":{"progressToken":1},"x":{ }}',
    to: '{"mode":"url","message":"m","url":"https://x.example","x":{ }}',
  },
  {
    name: 'a form of 2025-06-18',
    from: '{"message":"m","requestedSchema":{"properties":{"a":{"enum":["b"],"enumNames":["B"]}}}}',
    to: '{"message":"m","requestedSchema":{"properties":{"a":{"enum":["b"],"enumNames":["B"]}}}}',
  },
  {
    name: 'sampling about a task, with data of a vendor',
    from: '{"messages":[],"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"},"progressToken":1,"com.example/x":1}}',
    to: '{"messages":[],"_meta":{"com.example/x":1}}',
  },
  // N-44
  { name: 'the roots', from: '{"_meta":{"progressToken":1}}', to: '{}' },
];

for (const { name, from, to } of asks) {
  // X-010 M-027
  test(`${name}: the request loses members unknown to this revision`, () => {
    assert.equal(upgradeServerRequest(RawObject.parse(from)).toString(), to);
  });
}
