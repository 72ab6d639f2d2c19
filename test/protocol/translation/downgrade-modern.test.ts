import assert from 'node:assert/strict';
import { test } from 'node:test';

import { RawObject } from '../../../src/json/json.ts';
import {
  hasWrappedOutput,
  downgradeInputRequest,
  downgradeModernError,
  downgradeModernResult,
  downgradeModernTool,
} from '../../../src/protocol/translation/downgrade-modern.ts';
import { LEGACY_REVISIONS, type LegacyRevision } from '../../../src/protocol/revisions.ts';

const TEXT = '{"type":"text","text":"t"}';

const results = [
  //
  {
    name: 'what only this revision says goes, and the rest stays',
    method: 'resources/read',
    wrapped: false,
    from: '{"resultType":"complete","contents":[ ],"ttlMs":1,"cacheScope":"public","_meta":{"io.modelcontextprotocol/serverInfo":{},"io.modelcontextprotocol/subscriptionId":1,"x":1},"y":1.0}',
    to: '{"contents":[ ],"_meta":{"x":1},"y":1.0}',
  },
  //
  {
    name: '_meta with nothing else goes whole',
    method: 'prompts/get',
    wrapped: false,
    from: '{"resultType":"complete","messages":[],"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"x","version":"1"}}}',
    to: '{"messages":[]}',
  },
  //
  {
    name: 'a list is wrapped, and readable as text',
    method: 'tools/call',
    wrapped: true,
    from: '{"content":[{"type":"image"}],"structuredContent":[1.0, 12345678901234567890],"resultType":"complete"}',
    to: '{"content":[{"type":"image"},{"type":"text","text":"[1.0, 12345678901234567890]"}],"structuredContent":{"result":[1.0, 12345678901234567890]}}',
  },
  //
  {
    name: 'the text a server sent with it is enough',
    method: 'tools/call',
    wrapped: false,
    from: `{"content":[ ${TEXT} ],"structuredContent":null}`,
    to: `{"content":[ ${TEXT} ],"structuredContent":{"result":null}}`,
  },
  //
  {
    name: 'an object is wrapped where its schema was',
    method: 'tools/call',
    wrapped: true,
    from: `{"content":[${TEXT}],"structuredContent":{"a":1}}`,
    to: `{"content":[${TEXT}],"structuredContent":{"result":{"a":1}}}`,
  },
  {
    name: 'an object is left as it is where its schema was',
    method: 'tools/call',
    wrapped: false,
    from: '{ "content":[], "structuredContent":{"a":1} }',
    to: '{ "content":[], "structuredContent":{"a":1} }',
  },
  //
  {
    name: 'content that is missing is made',
    method: 'tools/call',
    wrapped: true,
    from: '{"structuredContent":7}',
    to: '{"structuredContent":{"result":7},"content":[{"type":"text","text":"7"}]}',
  },
  {
    name: 'content that is no list is left alone',
    method: 'tools/call',
    wrapped: true,
    from: '{"content":"x","structuredContent":7}',
    to: '{"content":"x","structuredContent":{"result":7}}',
  },
  {
    name: 'structured content of anything but a call is left alone',
    method: 'prompts/get',
    wrapped: true,
    from: '{ "structuredContent":7 }',
    to: '{ "structuredContent":7 }',
  },
];

for (const { name, method, wrapped, from, to } of results) {
  test(name, () => {
    assert.equal(downgradeModernResult(method, RawObject.parse(from), wrapped).toString(), to);
  });
}

const tools = [
  //
  {
    name: 'a tool that returns a list',
    wrapped: true,
    from: '{"name":"a","outputSchema":{"type":"array"},"x":1}',
    to: '{"name":"a","outputSchema":{"type":"object","properties":{"result":{"type":"array"}},"required":["result"]},"x":1}',
  },
  //
  {
    name: 'a tool whose output schema cannot be rewritten',
    wrapped: true,
    from: '{"name":"a","outputSchema":{"items":{"a":1,"a":2}}}',
    to: '{"name":"a"}',
  },
  {
    name: 'a tool with schemas that are true or false',
    wrapped: false,
    from: '{"inputSchema":{"type":"object","properties":{"a":true,"b":false,"c":{ }}},"outputSchema":{"type":"object","properties":{"d":true}}}',
    to: '{"inputSchema":{"type":"object","properties":{"a":{},"b":{"not":{}},"c":{ }}},"outputSchema":{"type":"object","properties":{"d":{}}}}',
  },
  {
    name: 'any other tool',
    wrapped: false,
    from: '{ "name":"a", "inputSchema":{ "type":"object", "anyOf":[{}] }, "outputSchema":{ "type":"object" } }',
    to: '{ "name":"a", "inputSchema":{ "type":"object", "anyOf":[{}] }, "outputSchema":{ "type":"object" } }',
  },
  {
    name: 'a tool with an output schema that is none',
    wrapped: false,
    from: '{"outputSchema":true}',
    to: '{"outputSchema":true}',
  },
];

for (const { name, wrapped, from, to } of tools) {
  test(`${name} for older clients`, () => {
    assert.equal(downgradeModernTool(from), to);
    assert.equal(hasWrappedOutput(RawObject.parse(from)), wrapped);
  });
}

const errors = [
  { name: 'a resource that is not there', method: 'resources/read', data: { uri: 'a:b' }, to: -32002 },
  { name: 'parameters that are wrong', method: 'resources/read', data: undefined, to: -32602 },
  { name: 'data without a URI', method: 'resources/read', data: { uri: 7 }, to: -32602 },
  { name: 'data that is null', method: 'resources/read', data: null, to: -32602 },
  { name: 'another method', method: 'tools/call', data: { uri: 'a:b' }, to: -32602 },
];

for (const { name, method, data, to } of errors) {
  // M-007
  test(`${name}: -32602 becomes ${to} for older clients`, () => {
    const error = { code: -32602, message: 'm', data, x: 1 };
    assert.deepEqual(downgradeModernError(method, error), { ...error, code: to });
  });
}

const PAGE = '{"mode":"url","message":"m","url":"https://x.example"}';
const TITLED =
  '{"message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","oneOf":[{"const":"r","title":"Red"}]}}}}';
const TITLED_OLD =
  '{"message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","enum":["r"],"enumNames":["Red"]}}}}';
const SEVERAL =
  '{"message":"m","requestedSchema":{"properties":{"s":{"type":"array","items":{"type":"string","enum":["a"]}}}}}';
const WITH_TOOLS = `{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[],"structuredContent":[1]}]},7,{"role":"user","content":{"type":"tool_result","structuredContent":{}}},{"role":"user"}],"tools":[{"name":"t","outputSchema":{"type":"array"}},7]}`;
const WITH_TOOLS_OLD = `{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[{"type":"text","text":"[1]"}],"structuredContent":{"result":[1]}}]},7,{"role":"user","content":{"type":"tool_result","structuredContent":{}}},{"role":"user"}],"tools":[{"name":"t","outputSchema":{"type":"object","properties":{"result":{"type":"array"}},"required":["result"]}},7]}`;

const BEFORE_2025_06: readonly LegacyRevision[] = ['2024-11-05', '2025-03-26'];
const BEFORE_2025_11: readonly LegacyRevision[] = [...BEFORE_2025_06, '2025-06-18'];

interface AskCase {
  readonly name: string;
  readonly method: string;
  readonly revisions: readonly LegacyRevision[];
  readonly from: string;
  readonly to: string | undefined;
}

const asks: readonly AskCase[] = [
  //
  {
    name: 'a page to open gets an id',
    method: 'elicitation/create',
    revisions: ['2025-11-25'],
    from: PAGE,
    to: '{"mode":"url","message":"m","url":"https://x.example","elicitationId":"e-1"}',
  },
  //
  { name: 'a page to open', method: 'elicitation/create', revisions: BEFORE_2025_11, from: PAGE, to: undefined },
  { name: 'a titled choice', method: 'elicitation/create', revisions: ['2025-11-25'], from: TITLED, to: TITLED },
  { name: 'a titled choice', method: 'elicitation/create', revisions: ['2025-06-18'], from: TITLED, to: TITLED_OLD },
  //
  { name: 'a form', method: 'elicitation/create', revisions: BEFORE_2025_06, from: TITLED, to: undefined },
  { name: 'a choice of several', method: 'elicitation/create', revisions: ['2025-11-25'], from: SEVERAL, to: SEVERAL },
  //
  {
    name: 'a choice of several',
    method: 'elicitation/create',
    revisions: BEFORE_2025_11,
    from: SEVERAL,
    to: undefined,
  },
  //
  {
    name: 'sampling with tools',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: WITH_TOOLS,
    to: undefined,
  },
  //
  {
    name: 'sampling with tools',
    method: 'sampling/createMessage',
    revisions: ['2025-11-25'],
    from: WITH_TOOLS,
    to: WITH_TOOLS_OLD,
  },
  {
    name: 'sampling',
    method: 'sampling/createMessage',
    revisions: ['2025-11-25'],
    from: '{ "messages":[ ] }',
    to: '{ "messages":[ ] }',
  },
  { name: 'the roots', method: 'roots/list', revisions: LEGACY_REVISIONS, from: '{ }', to: '{ }' },
  //
  { name: 'what nobody can be asked', method: 'x/y', revisions: LEGACY_REVISIONS, from: '{}', to: undefined },
];

for (const { name, method, revisions, from, to } of asks) {
  for (const revision of revisions) {
    test(`${name} ${to === undefined ? 'cannot reach' : 'reaches'} a client of ${revision}`, () => {
      assert.equal(downgradeInputRequest(method, revision, RawObject.parse(from), 'e-1')?.toString(), to);
    });
  }
}
