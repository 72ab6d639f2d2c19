import assert from 'node:assert/strict';
import { test } from 'node:test';
import { AuditRecorder } from '../../../src/gateway/records/audit-recorder.ts';
import { RawObject } from '../../../src/json/json.ts';
import { openTestAudit } from '../../support/audit.ts';

const SENDER = { principal: { key: 'key:alice', label: 'alice', scopes: [] }, view: '' };
/** The words of questions and tasks, where they have another meaning. */
const OTHER = '{"type":"task","state":"input_required","resultType":"other"}';

/** Returns the recorded outcomes of calls with these results, and the length of the longest text that was parsed for them. */
async function recorded(results: readonly string[], params: object = {}) {
  await using audit = await openTestAudit();
  const recorder = new AuditRecorder(audit.trail);
  const request = { kind: 'request', id: '1', method: 'tools/call', params: RawObject.of(params) } as const;
  const rest = { holder: undefined, client: undefined, exchange: undefined, error: undefined, traceId: undefined };
  const parse = test.mock.method(JSON, 'parse');
  for (const result of results) {
    recorder.end({ ...rest, sender: SENDER, request, answer: { kind: 'result', result }, ms: 1 });
  }
  const lengths = parse.mock.calls.map(({ arguments: [text] }) => text.length);
  parse.mock.restore();
  const outcomes = (await audit.records()).map(({ outcome }) => outcome);
  return { outcomes, longest: Math.max(0, ...lengths) };
}

// SEC-44
test('a large result with the words of a question or task inside is no such one', async () => {
  const items = Array.from({ length: 100_000 }, () => OTHER).join();
  const { outcomes, longest } = await recorded([`{"content":[],"structuredContent":{"items":[${items}]}}`]);
  assert.deepEqual(outcomes, ['ok']);
  assert.ok(longest < 1_000, `${longest} characters were parsed at once`);
});

// SEC-44
test('only a member at the top makes a result a question or a task', async () => {
  const results = [
    '{"resultType" : "task","taskId":"1"}',
    '{"structuredContent":{"resultType":"task"}}',
    '{"inputRequests":{},"resultType":"input_required"}',
    '{"_meta":{"resultType":"input_required"}}',
    '{"task":{"taskId":"1"}}',
  ];
  assert.deepEqual((await recorded(results)).outcomes, ['task', 'ok', 'input-required', 'ok', 'ok']);
  const tasks = ['{"task":{"taskId":"1"}}', '{"task":null}', '{"structuredContent":{"task":{}}}'];
  assert.deepEqual((await recorded(tasks, { task: {} })).outcomes, ['task', 'ok', 'ok']);
});

// SEC-44
test('a result that names a member twice is recorded as the result that it is', async () => {
  const results = ['{"resultType":"complete","resultType":"task"}', '{"resultType":"task","content":[],"content":[]}'];
  assert.deepEqual((await recorded(results)).outcomes, ['ok', 'ok']);
  assert.deepEqual((await recorded(['{"task":{},"task":{}}'], { task: {} })).outcomes, ['ok']);
});
