import assert from 'node:assert/strict';
import { test } from 'node:test';
import { clientDialect } from '../../../src/gateway/dialects/client-dialect.ts';
import { RawObject } from '../../../src/json/json.ts';
import { eraOf, LEGACY_REVISIONS, LATEST_MODERN, type Revision } from '../../../src/protocol/revisions.ts';
import { TASKS_EXTENSION } from '../../../src/protocol/tasks.ts';

const REVISIONS: readonly Revision[] = [...LEGACY_REVISIONS, LATEST_MODERN];
const EXTENSION = RawObject.of({ extensions: { [TASKS_EXTENSION]: {} } });
const STAMP = { serverInfo: '{"name":"linkspan"}', ttlMs: 5, cacheScope: 'private' } as const;

for (const revision of REVISIONS) {
  test(`the dialect of ${revision} has the era of the revision`, () => {
    assert.equal(clientDialect(revision).era, eraOf(revision));
  });
}

const roles = [
  { revision: '2025-11-25', declares: false, role: 'waits' },
  { revision: '2025-11-25', declares: true, role: 'waits' },
  { revision: LATEST_MODERN, declares: false, role: 'none' },
  { revision: LATEST_MODERN, declares: true, role: 'polls' },
] as const;

for (const { revision, declares, role } of roles) {
  test(`a client of ${revision} ${declares ? 'with' : 'without'} the extension has the role ${role}`, () => {
    assert.equal(clientDialect(revision).taskRole(declares ? EXTENSION : RawObject.EMPTY), role);
  });
}

const methods = [
  { revision: '2025-06-18', method: 'tasks/get', declares: false, offers: true, code: 'method-not-found' },
  { revision: '2025-11-25', method: 'tasks/get', declares: false, offers: false, code: 'method-not-found' },
  { revision: '2025-11-25', method: 'tasks/update', declares: false, offers: true, code: 'method-not-found' },
  { revision: '2025-11-25', method: 'tasks/list', declares: false, offers: true, code: undefined },
  { revision: LATEST_MODERN, method: 'tasks/list', declares: true, offers: true, code: 'method-not-found' },
  { revision: LATEST_MODERN, method: 'tasks/update', declares: false, offers: false, code: 'missing-capability' },
  { revision: LATEST_MODERN, method: 'tasks/update', declares: true, offers: false, code: undefined },
] as const;

for (const { revision, method, declares, offers, code } of methods) {
  const pair = `${declares ? 'declared' : 'undeclared'} and ${offers ? 'offered' : 'not offered'}`;
  test(`${method} of ${revision}, ${pair}: ${code ?? 'allowed'}`, () => {
    const declared = declares ? EXTENSION : RawObject.EMPTY;
    const offered = offers ? RawObject.of({ tasks: {} }) : RawObject.EMPTY;
    const check = () => clientDialect(revision).assertTaskMethod(method, declared, offered);
    if (code === undefined) check();
    else assert.throws(check, { code });
  });
}

test('only the params of a modern client lose their envelope', () => {
  const params = RawObject.of({
    name: 'x',
    _meta: { 'io.modelcontextprotocol/protocolVersion': LATEST_MODERN, own: 1 },
  });
  assert.equal(clientDialect('2025-11-25').withoutEnvelope(params), params);
  assert.equal(clientDialect(LATEST_MODERN).withoutEnvelope(params).toString(), '{"name":"x","_meta":{"own":1}}');
});

test('only a modern client gets the members of its revision in a result of the gateway', () => {
  const list = '{"tools":[]}';
  assert.equal(clientDialect('2025-11-25').stampResult('tools/list', list, STAMP), list);
  const stamped: unknown = JSON.parse(clientDialect(LATEST_MODERN).stampResult('tools/list', list, STAMP));
  assert.deepEqual(stamped, {
    tools: [],
    resultType: 'complete',
    _meta: { 'io.modelcontextprotocol/serverInfo': { name: 'linkspan' } },
    ttlMs: 5,
    cacheScope: 'private',
  });
});

test('a question that the client cannot be asked in its revision has no params', () => {
  const params = RawObject.of({ message: 'name?', requestedSchema: { type: 'object', properties: {} } });
  const ask = (revision: Revision) => clientDialect(revision).downgradeServerRequest('elicitation/create', params);
  assert.equal(ask('2024-11-05'), undefined);
  assert.equal(ask('2025-11-25')?.string('message'), 'name?');
  assert.equal(ask(LATEST_MODERN), params);
});
