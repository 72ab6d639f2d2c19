import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { RawObject } from '../../../src/json/json.ts';
import { downgradeServerRequest, downgradeResult, downgradeTool } from '../../../src/protocol/translation/downgrade.ts';
import { LEGACY_REVISIONS, type LegacyRevision } from '../../../src/protocol/revisions.ts';

const LINK =
  '{"type":"resource_link","uri":"file:///a.md","name":"a.md","mimeType":"text/markdown","annotations":{"priority":1.0},"x":7}';
const AUDIO = '{"type":"audio","data":"AAAA","mimeType":"audio/wav"}';
const LINK_TEXT = '{"type":"text","annotations":{"priority":1.0},"x":7,"text":"a.md (file:///a.md)"}';
const AUDIO_TEXT = '{"type":"text","text":"[audio/wav left out: the client\'s revision of the protocol has no audio]"}';

interface ResultCase {
  readonly name: string;
  readonly method: string;
  readonly revisions: readonly LegacyRevision[];
  readonly result: string;
  readonly lowered: string;
}

const OLD: readonly LegacyRevision[] = ['2024-11-05', '2025-03-26'];
const NEW: readonly LegacyRevision[] = ['2025-06-18', '2025-11-25'];

const results: readonly ResultCase[] = [
  {
    name: 'structured content alone becomes text',
    method: 'tools/call',
    revisions: OLD,
    result: '{"structuredContent":{"n":12345678901234567890},"_meta":{"a":1}}',
    lowered: '{"_meta":{"a":1},"content":[{"type":"text","text":"{\\"n\\":12345678901234567890}"}]}',
  },
  {
    name: 'structured content beside an image becomes text too',
    method: 'tools/call',
    revisions: OLD,
    result: '{"content":[{"type":"image","data":"","mimeType":"image/png"}],"structuredContent":{"a":1}}',
    lowered: '{"content":[{"type":"image","data":"","mimeType":"image/png"},{"type":"text","text":"{\\"a\\":1}"}]}',
  },
  {
    name: 'structured content beside its text is left out',
    method: 'tools/call',
    revisions: OLD,
    result: '{"content":[{"type":"text","text":"a is 1"}],"structuredContent":{"a":1},"isError":false}',
    lowered: '{"content":[{"type":"text","text":"a is 1"}],"isError":false}',
  },
  {
    name: 'a resource link becomes text that names it',
    method: 'tools/call',
    revisions: OLD,
    result: `{"content":[{"type":"text","text":"see"},${LINK}]}`,
    lowered: `{"content":[{"type":"text","text":"see"},${LINK_TEXT}]}`,
  },
  {
    name: 'a resource link in a prompt becomes text',
    method: 'prompts/get',
    revisions: OLD,
    result: `{"description":"d","messages":[{"role":"user","content":${LINK},"y":1}]}`,
    lowered: `{"description":"d","messages":[{"role":"user","content":${LINK_TEXT},"y":1}]}`,
  },
  {
    name: 'audio becomes a note',
    method: 'tools/call',
    revisions: ['2024-11-05'],
    result: `{"content":[${AUDIO}]}`,
    lowered: `{"content":[${AUDIO_TEXT}]}`,
  },
  {
    name: 'audio in a prompt becomes a note',
    method: 'prompts/get',
    revisions: ['2024-11-05'],
    result: `{"messages":[{"role":"user","content":${AUDIO}}]}`,
    lowered: `{"messages":[{"role":"user","content":${AUDIO_TEXT}}]}`,
  },
];

for (const { name, method, revisions, result, lowered } of results) {
  for (const revision of revisions) {
    //
    test(`${name} for a client of ${revision}`, () => {
      assert.equal(downgradeResult(method, revision, result), lowered);
    });
  }
}

//
test('the text for a link has its title and description', () => {
  const result = '{"content":[{"type":"resource_link","uri":"u:1","name":"n","title":"T","description":"D"}]}';
  assert.equal(
    downgradeResult('tools/call', '2025-03-26', result),
    '{"content":[{"type":"text","text":"T (u:1): D"}]}',
  );
});

const untouched: { name: string; method: string; revisions: readonly LegacyRevision[]; result: string }[] = [
  {
    name: 'everything known to the revision',
    method: 'tools/call',
    revisions: NEW,
    result: `{ "content": [${LINK}, ${AUDIO}], "structuredContent": {"a":1} }`,
  },
  { name: 'audio', method: 'tools/call', revisions: ['2025-03-26'], result: `{ "content": [${AUDIO}] }` },
  { name: 'plain text', method: 'tools/call', revisions: OLD, result: '{ "content": [ {"type":"text","text":""} ] }' },
  {
    name: 'structured content in _meta alone',
    method: 'tools/call',
    revisions: OLD,
    result: '{ "content": [], "_meta": {"structuredContent":1} }',
  },
  {
    name: 'content that is no list',
    method: 'tools/call',
    revisions: OLD,
    result: '{"content":{"type":"resource_link"}}',
  },
  { name: 'another method', method: 'resources/read', revisions: OLD, result: `{ "contents": [${LINK}] }` },
  { name: 'messages that are no list', method: 'prompts/get', revisions: OLD, result: '{"messages":"resource_link"}' },
];

for (const { name, method, revisions, result } of untouched) {
  for (const revision of revisions) {
    test(`${name} reaches a client of ${revision} byte for byte`, () => {
      assert.equal(downgradeResult(method, revision, result), result);
    });
  }
}

test('a malformed block is kept beside valid ones', () => {
  const result = `{"content":[7,null,"x",{"type":1},${LINK}]}`;
  assert.equal(downgradeResult('tools/call', '2025-03-26', result), `{"content":[7,null,"x",{"type":1},${LINK_TEXT}]}`);
});

//
test('a client of 2025-03-26 gets text for any structured content', () => {
  fc.assert(
    fc.property(fc.jsonValue(), fc.array(fc.constantFrom(LINK, AUDIO, '{"type":"image"}')), (value, blocks) => {
      const result = `{"content":[${blocks.join(',')}],"structuredContent":${JSON.stringify(value)}}`;
      const lowered = downgradeResult('tools/call', '2025-03-26', result);
      assert.ok(!RawObject.parse(lowered).raw('structuredContent'));
      assert.match(lowered, /"type":"text"/);
      assert.doesNotMatch(lowered, /"type":"resource_link"/);
    }),
  );
});

const TOOL = '{ "name": "t", "inputSchema": {"type":"object"}, "outputSchema": {"type":"object"}, "icons": [] }';

for (const revision of LEGACY_REVISIONS) {
  const old = OLD.includes(revision);
  test(`a client of ${revision} sees tools ${old ? 'without' : 'with'} output schemas`, () => {
    const lowered = '{"name":"t","inputSchema":{"type":"object"},"icons":[]}';
    assert.equal(downgradeTool(revision, TOOL), old ? lowered : TOOL);
  });
}

const SPLIT =
  '{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"image","data":""}],"_meta":{}}],"maxTokens":1}';
const TITLED =
  '{"message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g"}],"default":"r"},"n":{"type":"integer","maximum":12345678901234567890}},"required":["c"]}}';

interface AskCase {
  readonly name: string;
  readonly method: string;
  readonly revisions: readonly LegacyRevision[];
  readonly params: string;
  /** Undefined if the client must not be asked. */
  readonly lowered: string | undefined;
}

const BEFORE_2025_11: readonly LegacyRevision[] = ['2024-11-05', '2025-03-26', '2025-06-18'];
const SINGLE = '{"messages":[{"role":"user","content":{"type":"text","text":"a"}}],"maxTokens":1,"x":{ }}';

const asks: readonly AskCase[] = [
  {
    name: 'a message of several blocks is split into messages of one',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    params: SPLIT,
    lowered:
      '{"messages":[{"role":"user","content":{"type":"text","text":"a"},"_meta":{}},{"role":"user","content":{"type":"image","data":""}}],"maxTokens":1}',
  },
  {
    name: 'a message of one block',
    method: 'sampling/createMessage',
    revisions: LEGACY_REVISIONS,
    params: SINGLE,
    lowered: SINGLE,
  },
  {
    name: 'sampling with tools',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    params: '{"messages":[],"tools":[]}',
    lowered: undefined,
  },
  {
    name: 'sampling with a choice of tools',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    params: '{"messages":[],"toolChoice":{"mode":"auto"}}',
    lowered: undefined,
  },
  {
    name: 'sampling over the result of a tool',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    params: '{"messages":[{"role":"user","content":[{"type":"tool_result","toolUseId":"1","content":[]}]}]}',
    lowered: undefined,
  },
  {
    name: 'sampling with audio becomes a note',
    method: 'sampling/createMessage',
    revisions: ['2024-11-05'],
    params: `{"messages":[{"role":"user","content":${AUDIO}}]}`,
    lowered: `{"messages":[{"role":"user","content":${AUDIO_TEXT}}]}`,
  },
  {
    name: 'a form',
    method: 'elicitation/create',
    revisions: OLD,
    params: '{"message":"m","requestedSchema":{"type":"object","properties":{}}}',
    lowered: undefined,
  },
  {
    name: 'a titled choice becomes enum and enumNames',
    method: 'elicitation/create',
    revisions: ['2025-06-18'],
    params: TITLED,
    lowered:
      '{"message":"m","requestedSchema":{"type":"object","properties":{"c":{"type":"string","default":"r","enum":["r","g"],"enumNames":["Red","g"]},"n":{"type":"integer","maximum":12345678901234567890}},"required":["c"]}}',
  },
  {
    name: 'a form of plain fields',
    method: 'elicitation/create',
    revisions: NEW,
    params: '{"mode":"form","message":"m","requestedSchema":{ "type":"object","properties":{"s":{"type":"string"}}}}',
    lowered: '{"mode":"form","message":"m","requestedSchema":{ "type":"object","properties":{"s":{"type":"string"}}}}',
  },
  {
    name: 'a choice of several',
    method: 'elicitation/create',
    revisions: ['2025-06-18'],
    params:
      '{"message":"m","requestedSchema":{"properties":{"s":{"type":"array","items":{"type":"string","enum":["a"]}}}}}',
    lowered: undefined,
  },
  {
    name: 'a choice of something else than texts',
    method: 'elicitation/create',
    revisions: ['2025-06-18'],
    params: '{"message":"m","requestedSchema":{"properties":{"s":{"oneOf":[{"const":1}]}}}}',
    lowered: undefined,
  },
  {
    name: 'a page to open',
    method: 'elicitation/create',
    revisions: BEFORE_2025_11,
    params: '{"mode":"url","message":"m","url":"https://x.example","elicitationId":"1"}',
    lowered: undefined,
  },
  {
    name: 'anything',
    method: 'elicitation/create',
    revisions: ['2025-11-25'],
    params: TITLED,
    lowered: TITLED,
  },
  { name: 'the roots', method: 'roots/list', revisions: LEGACY_REVISIONS, params: '{ }', lowered: '{ }' },
];

for (const { name, method, revisions, params, lowered } of asks) {
  for (const revision of revisions) {
    const how = lowered === undefined ? ' is not sent' : lowered === params ? ' is sent as it is' : '';
    //
    test(`${name}${how} at ${revision}`, () => {
      assert.equal(downgradeServerRequest(method, revision, RawObject.parse(params))?.toString(), lowered);
    });
  }
}

test('a sampling message that is split does not repeat its large members', () => {
  const blocks = Array.from({ length: 1_000 }, () => '{"type":"text","text":""}').join(',');
  const large = JSON.stringify('x'.repeat(100_000));
  for (const members of [`"role":"user","x":${large}`, `"role":${large}`]) {
    const params = RawObject.parse(`{"messages":[{${members},"content":[${blocks}]}],"maxTokens":1}`);
    const lowered = downgradeServerRequest('sampling/createMessage', '2025-06-18', params)?.toString() ?? '';
    assert.ok(lowered.length < 2 * params.toString().length, `${lowered.length} characters`);
  }
});

// SEC-28
test('a form of very many choices is translated in linear time', { timeout: 120_000 }, () => {
  const choices = Array.from({ length: 100_000 }, (_, i) => `"p${i}":{"type":"string","oneOf":[{"const":"a"}]}`);
  const params = RawObject.parse(`{"requestedSchema":{"properties":{${choices.join(',')}}}}`);
  const lowered = downgradeServerRequest('elicitation/create', '2025-06-18', params)?.toString() ?? '';
  assert.ok(lowered.includes('"p99999":{"type":"string","enum":["a"],"enumNames":["a"]}'));
});
