import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientDialect } from '../../../src/gateway/dialects/client-dialect.ts';
import { UPSTREAM_DIALECTS } from '../../../src/gateway/dialects/upstream-dialect.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LATEST_MODERN, type Revision } from '../../../src/protocol/revisions.ts';
import { declaresTasks, TASKS_EXTENSION } from '../../../src/protocol/tasks.ts';

const { legacy, modern } = UPSTREAM_DIALECTS;
const ALL_USABLE = { usableCapabilities: (capabilities: RawObject) => capabilities };

function clientOf(revision: Revision, declared: object) {
  const capabilities = RawObject.of(declared);
  const dialect = clientDialect(revision);
  return { caller: { capabilities }, clientCapabilities: capabilities, logLevel: 'info', dialect } as const;
}

test('a request to a legacy upstream has neither capabilities nor a log level', () => {
  const client = clientOf(LATEST_MODERN, { roots: {} });
  assert.equal(legacy.envelopeCapabilities(ALL_USABLE, client), undefined);
  assert.equal(legacy.envelopeLogLevel(client), undefined);
});

test('a request to a modern upstream has capabilities without members of 2025-11-25', () => {
  const client = clientOf('2025-11-25', { roots: { listChanged: true }, tasks: { list: {} }, sampling: {} });
  const capabilities = modern.envelopeCapabilities(ALL_USABLE, client);
  assert.deepEqual(JSON.parse(String(capabilities)), {
    roots: {},
    sampling: {},
    extensions: { [TASKS_EXTENSION]: {} },
  });
  assert.equal(modern.envelopeLogLevel(client), 'info');
});

test('a request of a modern client declares tasks only if the client does', () => {
  const declares = (declared: object) =>
    declaresTasks(modern.envelopeCapabilities(ALL_USABLE, clientOf(LATEST_MODERN, declared)) ?? RawObject.EMPTY);
  assert.equal(declares({}), false);
  assert.equal(declares({ extensions: { [TASKS_EXTENSION]: {} } }), true);
});

test('a request declares only capabilities that the upstream may use', () => {
  const filter = { usableCapabilities: (capabilities: RawObject) => capabilities.with('sampling', undefined) };
  const capabilities = modern.envelopeCapabilities(filter, clientOf(LATEST_MODERN, { sampling: {}, roots: {} }));
  assert.equal(capabilities?.toString(), '{"roots":{}}');
});

test('only a modern upstream must declare subscriptions to get them', () => {
  const undeclared = RawObject.of({ subscribe: false });
  assert.equal(legacy.acceptsSubscriptions(undeclared), true);
  assert.equal(modern.acceptsSubscriptions(undeclared), false);
  assert.equal(modern.acceptsSubscriptions(RawObject.of({ subscribe: true })), true);
});

const steps = [
  { status: 'working', legacy: { kind: 'poll' }, modern: { kind: 'poll' } },
  { status: 'input_required', legacy: { kind: 'fetch' }, modern: { kind: 'ask' } },
  {
    status: 'completed',
    legacy: { kind: 'fetch' },
    modern: { kind: 'end', answer: { kind: 'result', result: '{"content":[]}' } },
  },
  {
    status: 'failed',
    legacy: { kind: 'fetch' },
    modern: { kind: 'end', answer: { kind: 'error', error: { code: -1, message: 'broken' } } },
  },
] as const;

for (const step of steps) {
  test(`${step.status} task: ${step.legacy.kind} in the legacy era, ${step.modern.kind} in the modern`, () => {
    const { status } = step;
    const state = RawObject.of({ status, result: { content: [] }, error: { code: -1, message: 'broken' } });
    assert.deepEqual(legacy.taskStep(state), step.legacy);
    assert.deepEqual(modern.taskStep(state), step.modern);
  });
}
