import assert from 'node:assert/strict';
import { test } from 'node:test';

import {
  downgradeClientResult,
  downgradeInputResponse,
  upgradeInputResponse,
} from '../../../src/protocol/translation/input-response.ts';
import { LEGACY_REVISIONS, type LegacyRevision } from '../../../src/protocol/revisions.ts';

const BEFORE_2025_11: readonly LegacyRevision[] = ['2024-11-05', '2025-03-26', '2025-06-18'];
const TEXT = '{"type":"text","text":"a"}';
const AUDIO = '{"type":"audio","data":"","mimeType":"audio/wav"}';

function sampled(content: string): string {
  return `{"role":"assistant","content":${content},"model":"m","x":1.0}`;
}

const answers: {
  name: string;
  method: string;
  revisions: readonly LegacyRevision[];
  from: string;
  to: string | undefined;
}[] = [
  {
    name: 'a form filled in',
    method: 'elicitation/create',
    revisions: LEGACY_REVISIONS,
    from: '{ "action":"accept","content":{"a":1.0} }',
    to: '{ "action":"accept","content":{"a":1.0} }',
  },
  {
    name: 'an action nobody knows',
    method: 'elicitation/create',
    revisions: LEGACY_REVISIONS,
    from: '{"action":"maybe"}',
    to: undefined,
  },
  { name: 'no action', method: 'elicitation/create', revisions: LEGACY_REVISIONS, from: '{}', to: undefined },
  { name: 'roots', method: 'roots/list', revisions: LEGACY_REVISIONS, from: '{"roots":[ ]}', to: '{"roots":[ ]}' },
  {
    name: 'roots that are no list',
    method: 'roots/list',
    revisions: LEGACY_REVISIONS,
    from: '{"roots":{}}',
    to: undefined,
  },
  { name: 'an answer that is no object', method: 'roots/list', revisions: LEGACY_REVISIONS, from: '[]', to: undefined },
  { name: 'an answer to what nobody asks', method: 'ping', revisions: LEGACY_REVISIONS, from: '{}', to: undefined },
  {
    name: 'one block',
    method: 'sampling/createMessage',
    revisions: LEGACY_REVISIONS,
    from: sampled(TEXT),
    to: sampled(TEXT),
  },
  {
    name: 'a list of blocks',
    method: 'sampling/createMessage',
    revisions: ['2025-11-25'],
    from: sampled(`[${TEXT}]`),
    to: sampled(`[${TEXT}]`),
  },
  {
    name: 'a list of one block',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled(`[${TEXT}]`),
    to: sampled(TEXT),
  },
  {
    name: 'a list of texts',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled(`[${TEXT},${TEXT}]`),
    to: sampled('{"type":"text","text":"a\\na"}'),
  },
  {
    name: 'a list of text and image',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled(`[${TEXT},{"type":"image"}]`),
    to: undefined,
  },
  {
    name: 'the use of a tool',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled('{"type":"tool_use"}'),
    to: undefined,
  },
  {
    name: 'an empty list',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled('[]'),
    to: undefined,
  },
  {
    name: 'a list of nothing known',
    method: 'sampling/createMessage',
    revisions: BEFORE_2025_11,
    from: sampled('[7]'),
    to: undefined,
  },
  {
    name: 'audio',
    method: 'sampling/createMessage',
    revisions: ['2025-06-18'],
    from: sampled(AUDIO),
    to: sampled(AUDIO),
  },
  {
    name: 'audio',
    method: 'sampling/createMessage',
    revisions: ['2024-11-05'],
    from: sampled(AUDIO),
    to: sampled('{"type":"text","text":"[audio/wav left out: the client\'s revision of the protocol has no audio]"}'),
  },
  {
    name: 'an answer without a model',
    method: 'sampling/createMessage',
    revisions: LEGACY_REVISIONS,
    from: `{"role":"user","content":${TEXT}}`,
    to: undefined,
  },
  {
    name: 'an answer without content',
    method: 'sampling/createMessage',
    revisions: LEGACY_REVISIONS,
    from: '{"role":"user","model":"m"}',
    to: undefined,
  },
];

for (const { name, method, revisions, from, to } of answers) {
  for (const revision of revisions) {
    //
    test(`${name} ${to === undefined ? 'does not answer' : 'answers'} ${method} at ${revision}`, () => {
      const result = downgradeInputResponse(method, from);
      assert.equal(result && downgradeClientResult(method, revision, result), to);
    });
  }
}

//
test('the answer of a legacy client is passed on without task metadata', () => {
  const answer = '{"action":"accept","x":1.0,"_meta":{"io.modelcontextprotocol/related-task":{"taskId":"1"}}}';
  assert.equal(upgradeInputResponse(answer), '{"action":"accept","x":1.0}');
  assert.equal(upgradeInputResponse('{ "roots":[] , "_meta":{"x":1}}'), '{ "roots":[] , "_meta":{"x":1}}');
});
