import assert from 'node:assert/strict';
import { cp, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { MemoryOutcomeStore } from '../../src/store/memory/outcome-store.ts';
import { accepted, asker } from '../support/asker.ts';
import { type AuditRecord, openTestAudit, recordsIn } from '../support/audit.ts';
import { testCore, type TestCore, toolCall } from '../support/core.ts';
import { modernUpstream } from '../support/http-upstream.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { type MemoryUpstream, memoryUpstream, result } from '../support/memory-upstream.ts';
import { inputRequiredIn, ModernClient, modernRequest } from '../support/modern-client.ts';
import { stopTime } from '../support/stopped-time.ts';
import { coreTaskUpstream, extensionUpstream } from '../support/task-upstreams.ts';
import { accessOf, keyOf } from '../policy/policies.ts';
import { lockOf } from '../support/pins.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const FORM = { elicitation: { form: {} } };
const ALICE = { key: 'key:alice', label: 'alice', scopes: [] };
const TOOLS = [{ name: 'echo', inputSchema: { type: 'object' } }];

/** An upstream whose tool `echo` answers, `fails` and `breaks` fail in their ways, and `waits` never answers. */
function upstream() {
  const named = (name: string) => ({ name, inputSchema: { type: 'object' } });
  return memoryUpstream({
    lists: { tools: [...TOOLS, named('fails'), named('breaks'), named('waits')] },
    capabilities: { tools: {}, resources: { subscribe: true } },
    request: (peer, request) => {
      const name = request.params?.string('name');
      if (name === 'waits') return;
      if (name === 'breaks') {
        peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":{"code":-32050,"message":"secret of the upstream"}}`);
        return;
      }
      const text = [{ type: 'text', text: 'secret of the result' }];
      peer.send(result(request, name === 'fails' ? { content: text, isError: true } : { content: text }));
    },
  });
}

/** Returns the members of a record that these tests know, without those that differ in each run. */
function known({ seq: _seq, time: _time, mac: _mac, ms: _ms, session: _session, ...rest }: AuditRecord): object {
  return rest;
}

const outcomeOf = ({ name, decision, outcome, error, executed }: AuditRecord) => [
  name,
  decision,
  outcome,
  error,
  executed,
];

/** Calls the tool `echo` of an upstream, and returns the outcome in each record of the call. */
async function recordsOfCall(memory: MemoryUpstream) {
  await using audit = await openTestAudit();
  {
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo'));
  }
  const records = await audit.records();
  return records.filter(({ method }) => method === 'tools/call').map(outcomeOf);
}

// SEC-44
test('a call has one record that says who, what, the decision and the outcome', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const client = await gateway.connect({ principal: ALICE });
    await client.result('tools/call', toolCall('up__echo', { text: 'hello' }));
  }
  const records = await audit.records();
  const call = records.find(({ method }) => method === 'tools/call');
  assert.ok(call !== undefined);
  assert.ok(typeof call['ms'] === 'number' && typeof call['session'] === 'string');
  const { argumentsDigest, bytesIn, bytesOut, ...rest } = Object(known(call));
  assert.match(argumentsDigest, /^[\w-]{22}$/);
  assert.ok(bytesIn > 20 && bytesOut > 20);
  assert.deepEqual(rest, {
    kind: 'request',
    principal: 'key:alice',
    label: 'alice',
    client: 'test',
    clientVersion: '1',
    endpoint: '/mcp',
    upstream: 'up',
    method: 'tools/call',
    name: 'up__echo',
    upstreamName: 'echo',
    requestId: '1',
    decision: 'allowed',
    outcome: 'ok',
    executed: 'yes',
  });
});

// SEC-44
test('the outcome of each request is recorded, and nothing that it holds', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const memory = upstream();
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    for (const name of ['up__echo', 'up__fails', 'up__breaks', 'up__unknown']) {
      await client.request('tools/call', toolCall(name, { secret: 'argument' }));
    }
    const waiting = client.send('tools/call', toolCall('up__waits'), { id: '77' });
    await memory.until(() => memory.requests('tools/call').find(({ params }) => params?.string('name') === 'waits'));
    client.notify('notifications/cancelled', { requestId: 77 });
    await waiting;
    await client.request('resources/read', { uri: 'up+https://me:secret@host/path?secret=1#secret' });
    await gateway.core.gateway.endSession(client.session);
  }
  const records = await audit.records();
  assert.deepEqual(records.filter(({ method }) => method === 'tools/call').map(outcomeOf), [
    ['up__echo', 'allowed', 'ok', undefined, 'yes'],
    ['up__fails', 'allowed', 'tool-error', 'tool_error', 'yes'],
    ['up__breaks', 'allowed', 'error', 'rpc_error', 'unknown'],
    ['up__unknown', 'allowed', 'error', 'unknown-tool', 'no'],
    ['up__waits', 'allowed', 'cancelled', 'cancelled', 'unknown'],
  ]);
  const notifications = records.filter(({ kind }) => kind === 'notification');
  assert.deepEqual(
    notifications.map(({ method, requestId }) => [method, requestId]),
    [
      ['notifications/initialized', undefined],
      ['notifications/cancelled', '77'],
    ],
  );
  const sessions = records.filter(({ kind }) => kind === 'session');
  assert.deepEqual(
    sessions.map(({ event, session }) => [event, session]),
    [
      ['opened', sessions[0]?.['session']],
      ['ended', sessions[0]?.['session']],
    ],
  );
  assert.doesNotMatch(JSON.stringify(records), /secret/);
});

// SEC-44
test('a notification of a modern client has a record', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const params = RawObject.of({ requestId: 7 });
    const notification = { kind: 'notification', method: 'notifications/cancelled', params } as const;
    gateway.core.gateway.noteNotification({ principal: ALICE, view: '' }, notification);
  }
  const record = (await audit.records()).find(({ kind }) => kind === 'notification');
  assert.ok(record !== undefined);
  const { bytesIn, ...rest } = Object(known(record));
  assert.ok(bytesIn > 0);
  assert.deepEqual(rest, {
    kind: 'notification',
    principal: 'key:alice',
    label: 'alice',
    endpoint: '/mcp',
    method: 'notifications/cancelled',
    requestId: '7',
  });
});

for (const client of ['legacy', 'modern']) {
  // SEC-44
  test(`the error of an upstream does not choose the decision (${client})`, TIMEOUT, async () => {
    await using audit = await openTestAudit();
    const codes = ['unauthorized', 'cancelled'];
    {
      const left = [...codes];
      const memory = memoryUpstream({
        lists: { tools: TOOLS },
        request: (peer, { id }) => {
          const error = { code: -32_001, message: 'ran', data: { code: left.shift(), executed: 'no' } };
          peer.send(JSON.stringify({ jsonrpc: '2.0', id: JSON.parse(id), error }));
        },
      });
      await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
      const session = client === 'legacy' ? await gateway.connect() : undefined;
      for (const _ of codes) {
        if (session === undefined) await modernRequest(gateway, 'tools/call', toolCall('up__echo')).reply;
        else await session.request('tools/call', toolCall('up__echo'));
      }
    }
    const calls = (await audit.records()).filter(({ method }) => method === 'tools/call');
    const expected = ['up__echo', 'allowed', 'error', 'rpc_error', 'unknown'];
    assert.deepEqual(calls.map(outcomeOf), [expected, expected]);
  });
}

// SEC-44
test('a result that holds the type of another one is recorded as a result', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: TOOLS },
    request: (peer, request) => {
      peer.send(result(request, { structuredContent: { resultType: 'task' }, content: [] }));
    },
  });
  assert.deepEqual(await recordsOfCall(memory), [['up__echo', 'allowed', 'ok', undefined, 'yes']]);
});

// REL-17 SEC-44
test('a call is answered and recorded although its result names a member twice', TIMEOUT, async () => {
  const memory = memoryUpstream({
    lists: { tools: TOOLS },
    request: (peer, { id }) => {
      const text = '{"content":[],"content":[],"structuredContent":{"resultType":"task"}}';
      peer.send(`{"jsonrpc":"2.0","id":${id},"result":${text}}`);
    },
  });
  assert.deepEqual(await recordsOfCall(memory), [['up__echo', 'allowed', 'ok', undefined, 'yes']]);
});

// SEC-44
test('questions and tasks are recorded as such, wherever their results say so', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const inputRequests = { name: { method: 'elicitation/create', params: { message: 'name?', requestedSchema: {} } } };
  const memory = memoryUpstream({
    isRaw: true,
    lists: { tools: TOOLS },
    request: (peer, request) => {
      const capabilities = { tools: {} };
      if (request.method !== 'tools/call') {
        return peer.send(result(request, { resultType: 'complete', supportedVersions: ['2026-07-28'], capabilities }));
      }
      return peer.send(result(request, { _meta: { x: 1 }, resultType: 'input_required', inputRequests }));
    },
  });
  const tasks = coreTaskUpstream();
  const upstreams = { up: { memory, era: 'modern' }, old: { memory: tasks.memory } } as const;
  {
    await using gateway = await testCore(upstreams, {}, undefined, audit.trail);
    await modernRequest(gateway, 'tools/call', toolCall('up__echo'), { capabilities: FORM }).reply;
    const client = await gateway.connect();
    await client.result('tools/call', { ...toolCall('old__job'), task: { ttl: 1_000 } });
  }
  const records = await audit.records();
  assert.deepEqual(records.filter(({ method }) => method === 'tools/call').map(outcomeOf), [
    ['up__echo', 'allowed', 'input-required', undefined, 'unknown'],
    ['old__job', 'allowed', 'task', undefined, 'yes'],
  ]);
});

// SEC-44
test('members that a method does not have do not change the recorded name', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const other = { name: 'other', uri: 'other', ref: { type: 'ref/resource', name: 'other', uri: 'other' } };
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.request('tools/call', { ...other, ...toolCall('up__echo') });
    await client.request('prompts/get', { ...other, name: 'up__prompt' });
    await client.request('resources/read', { ...other, uri: 'up+file:///a' });
    await client.request('completion/complete', { ...other, ref: { type: 'ref/prompt', name: 'p', uri: 'other' } });
    await client.request('completion/complete', { ...other, ref: { type: 'ref/resource', name: 'other', uri: 'u' } });
    await client.request('ping', other);
  }
  const records = (await audit.records()).filter(({ kind, method }) => kind === 'request' && method !== 'initialize');
  assert.deepEqual(
    records.map(({ method, name }) => [method, name]),
    [
      ['tools/call', 'up__echo'],
      ['prompts/get', 'up__prompt'],
      ['resources/read', 'up+file:///a'],
      ['completion/complete', 'p'],
      ['completion/complete', 'u'],
      ['ping', undefined],
    ],
  );
});

test('full arguments are recorded without the values of members that may be secrets', TIMEOUT, async () => {
  await using audit = await openTestAudit({ arguments: 'full', recordBytes: 4_096 });
  const args = { path: '/tmp', token: 'hunter2', nested: [{ password: 'hunter2', x: 1 }] };
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo', args));
    await client.result('tools/call', toolCall('up__echo', { text: 'long '.repeat(10_000) }));
  }
  const [first, second] = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(first?.['arguments'], {
    path: '/tmp',
    token: '[redacted]',
    nested: [{ password: '[redacted]', x: 1 }],
  });
  assert.match(String(second?.['argumentsCut']), /^\{"text":"long long/);
  assert.ok(Buffer.byteLength(JSON.stringify(second)) <= 4_096);
});

test('full arguments have the digits of numbers that a double cannot hold', TIMEOUT, async () => {
  const args = '{"id":12345678901234567891,"sum":[100.000000000000001,1e400,1e-400],"kept":[0.10,-1.5E3,120,0,1e21]}';
  await using audit = await openTestAudit({ arguments: 'full' });
  const { argumentsText = '' } = audit.trail.argumentsOf(RawObject.parse(`{"arguments":${args}}`));
  assert.deepEqual(JSON.parse(argumentsText), {
    id: '12345678901234567891',
    sum: ['100.000000000000001', '1e400', '1e-400'],
    kept: [0.1, -1500, 120, 0, 1e21],
  });
});

test('the digits of a long number with zeros are read once', TIMEOUT, async () => {
  await using audit = await openTestAudit({ arguments: 'full' });
  // A search from each zero on would take longer than this test may.
  const number = `0.1${'0'.repeat(1_000_000)}1`;
  const { argumentsText = '' } = audit.trail.argumentsOf(RawObject.parse(`{"arguments":{"a":${number}}}`));
  assert.deepEqual(JSON.parse(argumentsText), { a: number });
});

test('the values of secrets are not recorded, however their members are spelled', TIMEOUT, async () => {
  const names = [
    'api_key',
    'API-Key',
    'apikey',
    'access_token',
    'refreshToken',
    'client_secret',
    'Password',
    'PASSWD',
    'passphrase',
    'Authorization',
    'proxy-authorisation',
    'Set-Cookie',
    'credentials',
    'private_key',
    'AWS_ACCESS_KEY_ID',
  ];
  const hidden = Object.fromEntries(names.map((name) => [name, 'hunter2']));
  const args = { ...hidden, list: [{ ...hidden, shown: 1 }], user_credentials: { id: 'hunter2' }, token: null };
  await using audit = await openTestAudit({ arguments: 'full' });
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo', args));
  }
  const [record] = (await audit.records()).filter(({ method }) => method === 'tools/call');
  const redacted = Object.fromEntries(names.map((name) => [name, '[redacted]']));
  assert.deepEqual(record?.['arguments'], {
    ...redacted,
    list: [{ ...redacted, shown: 1 }],
    user_credentials: '[redacted]',
    token: null,
  });
});

test('equal arguments have equal digests, and other ones others', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    for (const a of [1, 1, 2]) await client.result('tools/call', toolCall('up__echo', { a }));
    await client.result('tools/list');
  }
  const records = await audit.records();
  const [one, two, three] = records.filter(({ method }) => method === 'tools/call');
  assert.equal(one?.['argumentsDigest'], two?.['argumentsDigest']);
  assert.notEqual(one?.['argumentsDigest'], three?.['argumentsDigest']);
  assert.equal(records.find(({ method }) => method === 'tools/list')?.['argumentsDigest'], undefined);
});

// R22
test('a required record is written before the upstream gets the call', TIMEOUT, async () => {
  await using audit = await openTestAudit({ required: true, sync: 'write' });
  {
    let atCall: readonly AuditRecord[] = [];
    const memory = memoryUpstream({
      lists: { tools: TOOLS },
      request: (peer, request) => {
        void recordsIn(audit.path).then((records) => {
          atCall = records;
          peer.send(result(request, { content: [] }));
        });
      },
    });
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.result('tools/call', toolCall('up__echo', { a: 1 }));
    const begun = atCall.at(-1);
    assert.deepEqual(
      [begun?.kind, begun?.['name'], begun?.['upstreamName'], begun?.['upstream'], begun?.['principal']],
      ['begun', 'up__echo', 'echo', 'up', 'local'],
    );
  }
  const records = await audit.records();
  const begun = records.find(({ kind }) => kind === 'begun');
  assert.equal(
    records.find(({ method, kind }) => kind === 'request' && method === 'tools/call')?.['begun'],
    begun?.seq,
  );
});

/** Requests that reach an upstream. */
const reaching: readonly (readonly [method: string, params: object])[] = [
  ['tools/call', toolCall('up__echo')],
  ['resources/read', { uri: 'up+file:///a' }],
  ['resources/subscribe', { uri: 'up+file:///a' }],
  ['logging/setLevel', { level: 'info' }],
  ['tasks/list', {}],
];

for (const [method, params] of reaching) {
  // R22
  test(`${method} that cannot be recorded is refused, and not sent`, TIMEOUT, async () => {
    await using audit = await openTestAudit({ required: true });
    const tasks = { list: {}, cancel: {}, requests: { tools: { call: {} } } };
    const memory = memoryUpstream({
      lists: { tools: TOOLS, resources: [{ uri: 'file:///a', name: 'a' }] },
      capabilities: { tools: {}, resources: { subscribe: true }, logging: {}, tasks },
    });
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    await client.result('tools/list');
    await audit.trail.close();
    const { answer } = await client.request(method, params);
    assert.ok(answer.kind === 'error', JSON.stringify(answer));
    assert.deepEqual(answer.error.data, { code: 'audit-unavailable', executed: 'no', retryable: true });
    assert.deepEqual(memory.requests(method), []);
  });
}

test('without `required` a call goes on that cannot be recorded', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  await using gateway = await testCore({ up: { memory: upstream() } }, {}, undefined, audit.trail);
  const client = await gateway.connect();
  await audit.trail.close();
  await client.result('tools/call', toolCall('up__echo'));
});

for (const required of [false, true]) {
  test(`a parked call and its retry have a record each (required: ${required})`, TIMEOUT, async () => {
    await using audit = await openTestAudit({ required });
    {
      await using gateway = await testCore({ up: { memory: asker().memory } }, {}, undefined, audit.trail);
      const asked = inputRequiredIn(await ask(gateway).reply);
      const inputResponses = answersTo(asked.inputRequests);
      await ask(gateway, { requestState: asked.requestState, inputResponses }).reply;
    }
    const records = await audit.records();
    const ended = records.filter(({ kind, method }) => kind === 'request' && method === 'tools/call');
    assert.deepEqual(
      ended.map(({ outcome, isRetry, executed }) => [outcome, isRetry, executed]),
      [
        ['input-required', undefined, 'unknown'],
        ['ok', true, 'yes'],
      ],
    );
    const begun = records.filter(({ kind }) => kind === 'begun').map(({ seq }) => seq);
    assert.deepEqual(
      ended.map((record) => record['begun']),
      required ? begun : [undefined, undefined],
    );
  });
}

// R22
test('the answer to a question that cannot be recorded does not reach the upstream', TIMEOUT, async () => {
  await using audit = await openTestAudit({ required: true });
  const { memory, call } = asker();
  await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
  const { requestState, inputRequests } = inputRequiredIn(await ask(gateway).reply);
  await audit.trail.close();
  const { error } = await ask(gateway, { requestState, inputResponses: answersTo(inputRequests) }).reply;
  assert.deepEqual(Object(error?.data).code, 'audit-unavailable');
  assert.deepEqual(Object(error?.data).executed, 'unknown');
  assert.equal(call('n').isCancelled, false);
  assert.deepEqual(
    memory.peers.flatMap(({ received }) => received.filter(({ kind }) => kind === 'result')),
    [],
  );
});

test('tasks and the requests about them are recorded with their upstream', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const { memory } = coreTaskUpstream();
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const client = await gateway.connect();
    const created = await client.result('tools/call', { ...toolCall('up__job'), task: { ttl: 1_000 } });
    const taskId = Object(created['task']).taskId;
    await client.result('tasks/get', { taskId });
    await client.result('tasks/cancel', { taskId });
    await client.request('tasks/get', { taskId: 'unknown' });
  }
  const records = (await audit.records()).filter(({ method }) => /^t(?:asks|ools\/call)/.test(String(method)));
  assert.deepEqual(
    records.map(({ method, upstream, outcome, executed }) => [method, upstream, outcome, executed]),
    [
      ['tools/call', 'up', 'task', 'yes'],
      ['tasks/get', 'up', 'ok', 'yes'],
      ['tasks/cancel', 'up', 'ok', 'yes'],
      ['tasks/get', undefined, 'error', 'no'],
    ],
  );
});

test('a request that another replica executes is recorded there alone', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  await using near = await openTestAudit();
  await using far = await openTestAudit();
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-replica-'));
  {
    const { memory } = asker();
    await using first = await testCore({ up: { memory } }, {}, processes, far.trail);
    await cp(join(first.config.stateDir, 'keys.json'), join(stateDir, 'keys.json'));
    await using second = await testCore({ up: { memory } }, { stateDir }, processes, near.trail);
    const { requestState, inputRequests } = inputRequiredIn(await ask(first).reply);
    const { result: ended } = await ask(second, { requestState, inputResponses: answersTo(inputRequests) }).reply;
    assert.equal(ended?.['resultType'], 'complete');
  }
  await rm(stateDir, { recursive: true });
  const calls = (records: readonly AuditRecord[]) => records.filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    calls(await far.records()).map(({ isRetry, hops }) => [isRetry, hops]),
    [
      [undefined, undefined],
      [true, 1],
    ],
  );
  assert.deepEqual(calls(await near.records()), []);
});

test('a modern request that its client cancels is recorded as cancelled', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  {
    const memory = upstream();
    await using gateway = await testCore({ up: { memory } }, {}, undefined, audit.trail);
    const { call, reply } = new ModernClient(gateway).request('tools/call', toolCall('up__waits'));
    await memory.until(() => memory.requests('tools/call')[0]);
    call.cancel('gone');
    await reply;
  }
  const [record] = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(outcomeOf(record ?? assert.fail()), ['up__waits', 'allowed', 'cancelled', 'cancelled', 'unknown']);
});

function ask(gateway: TestCore, retry: object = {}) {
  return modernRequest(
    gateway,
    'tools/call',
    { ...toolCall('up__ask', { nonce: 'n' }), ...retry },
    { capabilities: FORM },
  );
}

function answersTo(requests: object): object {
  return Object.fromEntries(Object.keys(requests).map((key) => [key, accepted('Ada')]));
}

const RESOURCES = ['public', 'secret'].map((name) => ({ uri: `test://${name}`, name, description: 'For models.' }));

// SEC-44
test('a subscription to a hidden resource is denied, in the audit log and the metric', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists: { resources: RESOURCES },
    request: (peer, request) => peer.send(result(request, {})),
  });
  const deny = [{ resources: ['test://secret'] }];
  const access = accessOf({ some: { upstreams: ['up'], deny } }, [{ roles: ['some'], anyone: true }]);
  {
    await using gateway = await testCore({ up: { memory } }, { access }, undefined, audit.trail);
    await gateway.core.refresh();
    const client = await gateway.connect({ principal: keyOf('ann') });
    for (const name of ['public', 'secret']) await client.request('resources/subscribe', { uri: `up+test://${name}` });
    await client.request('resources/subscribe', { uri: 'nowhere+test://secret' });
    await client.request('resources/unsubscribe', { uri: 'up+test://public' });
    assert.match(await gateway.metrics.text(), /linkspan_access_denied_total\{upstream="up"\} 1\n/);
    const notifications = { resourceSubscriptions: ['up+test://secret'] };
    const listen = modernRequest(gateway, 'subscriptions/listen', { notifications }, { principal: keyOf('ann') });
    await waitUntil(() => listen.messages.length > 0);
    listen.call.close();
    await listen.reply;
    assert.match(await gateway.metrics.text(), /linkspan_access_denied_total\{upstream="up"\} 2\n/);
  }
  const all = await audit.records();
  const records = all.filter(({ method }) => method === 'resources/subscribe');
  assert.deepEqual(
    records.map(({ name, decision, rule, executed }) => [name, decision, Object(rule).name, executed]),
    [
      ['up+test://public', 'allowed', 'some', 'yes'],
      ['up+test://secret', 'denied', 'some deny 1', 'no'],
      ['nowhere+test://secret', 'allowed', undefined, 'no'],
    ],
  );
  const end = all.find(({ method }) => method === 'resources/unsubscribe');
  assert.deepEqual(
    [records[0], end].map((record) => [record?.['upstream'], record?.['executed']]),
    Array.from({ length: 2 }, () => ['up', 'yes']),
  );
});

// SEC-44
test('a resource that the policy hides at each upstream that has it is denied', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const both = () => ({
    memory: memoryUpstream({ capabilities: { resources: { subscribe: true } }, lists: { resources: RESOURCES } }),
  });
  const access = accessOf({ some: { resources: ['test://public'] } }, [{ roles: ['some'], anyone: true }]);
  {
    await using gateway = await testCore({ one: both(), two: both() }, { access }, undefined, audit.trail);
    await gateway.core.refresh();
    const client = await gateway.connect({ principal: keyOf('ann') });
    for (const uri of ['test://secret', 'test://none', 'test://public']) {
      await client.request('resources/read', { uri });
      await client.request('resources/subscribe', { uri });
    }
    await modernRequest(gateway, 'resources/read', { uri: 'test://secret' }, { principal: keyOf('ann') }).reply;
    assert.match(await gateway.metrics.text(), /linkspan_access_denied_total\{upstream="one"\} 3\n/);
  }
  const records = (await audit.records()).filter(({ method }) => String(method).startsWith('resources/'));
  assert.deepEqual(
    records.map(({ name, decision, error }) => [name, decision, error]),
    [
      ['test://secret', 'denied', 'unknown-resource'],
      ['test://secret', 'denied', 'unknown-resource'],
      ['test://none', 'allowed', 'unknown-resource'],
      ['test://none', 'allowed', 'unknown-resource'],
      ['test://public', 'allowed', 'ambiguous-resource'],
      ['test://public', 'allowed', 'ambiguous-resource'],
      ['test://secret', 'denied', 'unknown-resource'],
    ],
  );
});

for (const era of ['legacy', 'modern'] as const) {
  test(`a subscription is recorded as executed if the upstream was asked (${era} upstream)`, TIMEOUT, async () => {
    await using audit = await openTestAudit();
    const resources = { subscribe: true };
    await using modern = await modernUpstream({ capabilities: { resources }, resources: RESOURCES });
    const memory = memoryUpstream({ capabilities: { resources }, lists: { resources: RESOURCES } });
    const up = era === 'modern' ? modern.config : { memory, isolation: 'shared' as const };
    {
      await using gateway = await testCore({ up }, {}, undefined, audit.trail);
      await gateway.core.refresh();
      const [first, second] = [await gateway.connect(), await gateway.connect()];
      for (const method of ['resources/subscribe', 'resources/unsubscribe'])
        for (const client of [first, second]) await client.result(method, { uri: 'up+test://public' });
    }
    const records = (await audit.records()).filter(({ name }) => name === 'up+test://public');
    assert.deepEqual(
      records.map(({ method, upstream, executed }) => [String(method).slice('resources/'.length), upstream, executed]),
      [
        ['subscribe', 'up', 'yes'],
        ['subscribe', 'up', 'no'],
        ['unsubscribe', 'up', 'no'],
        ['unsubscribe', 'up', 'yes'],
      ],
    );
  });

  test(`a call that a reload denies while it waits is recorded as not executed (${era})`, TIMEOUT, async () => {
    await using audit = await openTestAudit({ required: true });
    const ofTools = (tools: readonly string[]) => accessOf({ r: { tools } }, [{ roles: ['r'], keys: ['ada'] }]);
    const access = ofTools(['*']);
    {
      const up = { memory: upstream(), concurrency: 1 };
      await using gateway = await testCore({ up }, { access }, undefined, audit.trail);
      const client = await gateway.connect({ principal: keyOf('ada') });
      await client.result('tools/list');
      const limiter = gateway.core.upstreams.get('up')?.limiter;
      assert.equal(limiter?.acquire('another'), undefined);
      const waiting =
        era === 'legacy'
          ? client.request('tools/call', toolCall('up__echo'))
          : modernRequest(gateway, 'tools/call', toolCall('up__echo'), { principal: keyOf('ada') }).reply;
      await waitUntil(() => limiter?.waitingCount === 1);
      await gateway.reload({ access: ofTools(['fails']) });
      limiter?.release('another');
      await waiting;
      assert.deepEqual(up.memory.requests('tools/call'), []);
    }
    const records = (await audit.records()).filter(({ kind, method }) => kind === 'request' && method === 'tools/call');
    assert.deepEqual(records.map(outcomeOf), [['up__echo', 'denied', 'error', 'unknown-tool', 'no']]);
  });
}

// SEC-44
test('a read of a resource that the lock withholds is denied by the lock', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const lists = {
    resources: RESOURCES,
    resourceTemplates: [{ uriTemplate: 'test://files/{name}', name: 'files', description: 'For models.' }],
  };
  const memory = memoryUpstream({
    capabilities: { resources: { subscribe: true } },
    lists,
    request: (peer, request) => peer.send(result(request, { contents: [] })),
  });
  const lock = lockOf({ up: { resources: RESOURCES.slice(0, 1) } }, 'quarantine');
  {
    await using gateway = await testCore({ up: { memory } }, { lock }, undefined, audit.trail);
    await gateway.core.refresh();
    const client = await gateway.connect({ principal: ALICE });
    for (const name of ['public', 'secret', 'files/a']) {
      await client.request('resources/read', { uri: `up+test://${name}` });
    }
    await client.request('resources/subscribe', { uri: 'test://secret' });
    await client.request('resources/read', { uri: 'nowhere+test://a' });
  }
  const records = (await audit.records()).filter(({ method }) => method?.toString().startsWith('resources/'));
  assert.deepEqual(
    records.map(({ name, decision, rule }) => [name, decision, Object(rule).name]),
    [
      ['up+test://public', 'allowed', undefined],
      ['up+test://secret', 'denied', 'lock'],
      ['up+test://files/a', 'denied', 'lock'],
      ['test://secret', 'denied', 'lock'],
      ['nowhere+test://a', 'allowed', undefined],
    ],
  );
});

for (const place of ['this process', 'the store']) {
  // SEC-44
  test(`the kept error of a parked call does not choose the decision (in ${place})`, TIMEOUT, async (t) => {
    const time = stopTime(t);
    await using audit = await openTestAudit();
    const { memory, call } = asker();
    const processes = new JoinedProcesses();
    processes.outcomes = new MemoryOutcomeStore(() => undefined);
    {
      await using gateway = await testCore({ up: { memory } }, {}, processes, audit.trail);
      const ask = (retry: object) => {
        const { reply } = modernRequest(
          gateway,
          'tools/call',
          { ...toolCall('up__ask'), ...retry },
          { capabilities: FORM },
        );
        return time.passUntil(reply, 1);
      };
      const { requestState } = inputRequiredIn(await ask({}));
      const { peer, request } = call('');
      const error = { code: -32_001, message: 'ran', data: { code: 'unauthorized', executed: 'no' } };
      peer.send(`{"jsonrpc":"2.0","id":${request.id},"error":${JSON.stringify(error)}}`);
      await time.passUntil(
        waitUntil(() => [...gateway.core.parked.waiting()].length === 0),
        1,
      );
      // The process keeps it for a minute, and the store for longer.
      if (place === 'the store') time.pass(61_000);
      assert.equal((await ask({ requestState, inputResponses: {} })).error?.message, 'ran');
    }
    const records = (await audit.records()).filter(({ method }) => method === 'tools/call');
    assert.deepEqual(records.map(outcomeOf).at(-1), ['up__ask', 'allowed', 'error', 'rpc_error', 'unknown']);
  });
}

// SEC-44
test('the data of an error inside a task is that of the upstream', TIMEOUT, async () => {
  await using audit = await openTestAudit();
  const { memory } = extensionUpstream((task) => {
    task.status = 'failed';
    task.error = { code: -32603, message: 'Failed', data: { code: 'rate-limited', executed: 'no' } };
  });
  {
    await using gateway = await testCore({ up: { memory, era: 'modern' } }, {}, undefined, audit.trail);
    const client = await gateway.connect({ principal: ALICE });
    assert.equal((await client.request('tools/call', toolCall('up__job'))).answer.kind, 'error');
  }
  const records = (await audit.records()).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(records.map(outcomeOf), [['up__job', 'allowed', 'error', 'rpc_error', 'unknown']]);
});
