import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ADMIN } from '../../../src/compose/admin/admin-methods.ts';
import { MergedAdmin } from '../../../src/compose/workers/merged-admin.ts';
import { serveCalls } from '../../../src/compose/workers/worker-admin.ts';
import type { OperatorCall } from '../../../src/operator/admin/admin-port.ts';
import type {
  ClientsAnswer,
  SessionsAnswer,
  ToolCallAnswer,
  UpstreamAnswer,
} from '../../../src/operator/admin/answers.ts';
import type { PipeCalls } from '../../../src/store/piped/pipe-calls.ts';
import { pipePair } from '../../store/piped/pipe-pair.ts';

const OPTIONS = { timeout: 120_000 };

/** A worker whose answers a test serves. */
function fakeWorker() {
  const { one, other } = pipePair();
  const call: PipeCalls['call'] = (method, args, callMs) => other.call(method, args, callMs);
  return { served: one, worker: { call, given: undefined } };
}

/** Two workers, as operators see them. */
function twoWorkers() {
  const workers = [fakeWorker(), fakeWorker()] as const;
  return { workers, admin: new MergedAdmin(() => workers.map(({ worker }) => worker)) };
}

type Client = ClientsAnswer['clients'][number];
type Session = SessionsAnswer['sessions'][number];

const CLIENT: Client = {
  name: 'agent',
  version: '1',
  revision: '2026-07-28',
  era: 'modern',
  capabilities: ['elicitation'],
  principal: 'ann',
  connections: 1,
  firstSeenAt: '2026-01-01T00:00:00.000Z',
  lastSeenAt: '2026-01-02T00:00:00.000Z',
};

const GROUP: Session = {
  id: 'group',
  kind: 'group',
  principal: 'ann',
  view: '',
  revision: '2026-07-28',
  client: 'agent 1',
  requestsInFlight: 1,
  streams: 1,
  subscriptions: 2,
  upstreams: ['a'],
  idleSeconds: 5,
};

test('a call ends at its worker when the operator leaves', OPTIONS, async () => {
  const { one, other } = pipePair();
  const begun = Promise.withResolvers<AbortSignal>();
  const port = {
    callTool: (_operator: string, _call: OperatorCall, signal: AbortSignal) => {
      begun.resolve(signal);
      return new Promise<ToolCallAnswer>((resolve) => {
        signal.addEventListener('abort', () => resolve({ as: 'operator ops', outcome: 'error', seconds: 0 }));
      });
    },
  };
  serveCalls(one, port);
  const call: PipeCalls['call'] = (method, args, callMs) => other.call(method, args, callMs);
  const admin = new MergedAdmin(() => [{ call, given: undefined }]);
  const leaving = new AbortController();
  const called = admin.port.callTool('ops', { tool: 'slow', arguments: {}, view: '' }, leaving.signal);
  const signal = await begun.promise;
  assert.equal(signal.aborted, false);
  leaving.abort();
  assert.equal((await called).outcome, 'error');
  assert.equal(signal.aborted, true);
});

test('a client of several workers is listed once', OPTIONS, async () => {
  const { workers, admin } = twoWorkers();
  const other = { ...CLIENT, name: 'other' };
  const later = {
    ...CLIENT,
    connections: 2,
    firstSeenAt: '2026-01-01T12:00:00.000Z',
    lastSeenAt: '2026-01-03T00:00:00.000Z',
  };
  workers[0].served.serve(ADMIN.clients, async () => ({ value: { clients: [CLIENT, other] } }));
  workers[1].served.serve(ADMIN.clients, async () => ({ value: { clients: [later] } }));
  assert.deepEqual(await admin.port.clients(), {
    clients: [{ ...CLIENT, connections: 3, lastSeenAt: later.lastSeenAt }, other],
  });
});

test('a group of clients at several workers is listed once, and its sums are of all', OPTIONS, async () => {
  const { workers, admin } = twoWorkers();
  const session: Session = { ...GROUP, id: 'session', kind: 'session' };
  const elsewhere: Session = { ...GROUP, client: undefined, subscriptions: 1, upstreams: ['a', 'b'], idleSeconds: 1 };
  const stream = { session: 'group', kind: 'subscriptions', count: 1, principal: 'ann', view: '' } as const;
  workers[0].served.serve(ADMIN.sessions, async () => ({ value: { sessions: [GROUP, session], isCut: false } }));
  workers[1].served.serve(ADMIN.sessions, async () => ({ value: { sessions: [elsewhere], isCut: false } }));
  for (const { served } of workers) {
    served.serve(ADMIN.streams, async () => ({ value: { streams: [stream], isCut: false } }));
  }
  assert.deepEqual((await admin.port.sessions()).sessions, [
    { ...GROUP, requestsInFlight: 2, streams: 2, subscriptions: 3, upstreams: ['a', 'b'], idleSeconds: 1 },
    session,
  ]);
  assert.deepEqual((await admin.port.streams()).streams, [{ ...stream, count: 2 }]);
});

test('an era that only another worker knows is known', OPTIONS, async () => {
  const { workers, admin } = twoWorkers();
  const lists = { tools: 1, prompts: 0, resources: 0, listProblems: [] };
  const unknown = { ...lists, speaks: 'unknown' } as const;
  const yes = { ...lists, speaks: 'yes', how: 'initialize answered', servedIn: 'legacy' } as const;
  const upstream: UpstreamAnswer = {
    id: 'a',
    title: 'a',
    transport: 'stdio',
    state: 'ready',
    since: '2026-01-01T00:00:00.000Z',
    isDisabled: false,
    isRequired: false,
    connections: 0,
    requestsInFlight: 0,
    eras: { legacy: unknown, modern: unknown },
    isListed: true,
    isForCallers: false,
    tools: 1,
    filteredTools: 0,
    prompts: 0,
    resources: 0,
    listProblems: [],
    emptyAt: [],
  };
  const other = { ...upstream, eras: { legacy: yes, modern: unknown } };
  workers[0].served.serve(ADMIN.upstreams, async () => ({ value: { upstreams: [upstream] } }));
  workers[1].served.serve(ADMIN.upstreams, async () => ({ value: { upstreams: [other] } }));
  assert.deepEqual(await admin.port.upstreams(), { upstreams: [other] });
});
