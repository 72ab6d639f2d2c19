import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { LOCAL } from '../../src/policy/principal.ts';
import type { Request } from '../../src/protocol/jsonrpc.ts';
import { HERE } from '../../src/gateway/exchange/owners.ts';
import { testCore, TestClient, toolCall } from '../support/core.ts';
import { JoinedProcesses } from '../support/joined-processes.ts';
import { memoryUpstream, result } from '../support/memory-upstream.ts';

const TIMEOUT = { timeout: 120_000 };
const TOOL = { name: 'echo', inputSchema: { type: 'object' } };

// L-005
test('an upstream gets initialize, then initialized, then everything else', TIMEOUT, async () => {
  const memory = memoryUpstream({ lists: { tools: [TOOL] } });
  await using gateway = await testCore({ up: { memory } });
  const client = await gateway.connect({ capabilities: { roots: {} } });
  await client.result('tools/list');
  await client.request('tools/call', { name: 'up__echo' });
  assert.ok(memory.peers.length > 0);
  for (const { received } of memory.peers) {
    const methods = received.map((message) => ('method' in message ? message.method : message.kind));
    assert.deepEqual(methods.slice(0, 2), ['initialize', 'notifications/initialized']);
    assert.ok(!methods.slice(2).some((method) => method === 'initialize' || method === 'notifications/initialized'));
  }
});

// L-004
test('before initialized, a client gets only what its own requests cause', TIMEOUT, async () => {
  let tools = [TOOL];
  const calls: Request[] = [];
  const memory = memoryUpstream({
    listsOf: () => ({ tools }),
    // As servers do that want to know where they may work.
    notification: (peer, { method }) => {
      if (method === 'notifications/initialized') peer.send('{"jsonrpc":"2.0","id":"r","method":"roots/list"}');
    },
    request: (peer, request) => {
      if (request.method !== 'tools/call') return peer.send(result(request, {}));
      calls.push(request);
      peer.send('{"jsonrpc":"2.0","id":"q","method":"roots/list"}');
    },
    response: (peer, { id }) => {
      const [call] = calls;
      if (id === '"q"' && call !== undefined) peer.send(result(call, { content: [] }));
    },
  });
  await using gateway = await testCore({ up: { memory, start: 'eager' } });
  const capabilities = { roots: {}, sampling: {}, elicitation: {} };
  const clientInfo = { name: 'test', version: '1' };
  const params = RawObject.of({ protocolVersion: '2025-11-25', capabilities, clientInfo });
  const request = { kind: 'request', id: '0', method: 'initialize', params } as const;
  const { session, answer } = await gateway.core.gateway.initialize(request, LOCAL, '');
  assert.ok(session !== undefined && answer.kind === 'result');
  const client = new TestClient(() => gateway.core, session, RawObject.parse(answer.result), true);
  await memory.until(() => memory.peers[0]?.received.find(({ kind }) => kind === 'error'));

  const other = await gateway.connect({ capabilities });
  // Twice: for clients without capabilities, and for those of these clients.
  await memory.until(() => (memory.requests('tools/list').length === 2 ? true : undefined));
  const change = (name: string) => {
    tools = [TOOL, { ...TOOL, name }];
    for (const peer of memory.open) peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  };
  change('more');
  await other.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(client.listened, []);

  // Some clients never send it, and their calls are to work.
  const called = await client.request('tools/call', toolCall('up__echo'), {
    onMessage: (message) => {
      if (message.kind === 'request') client.answer(message.id, { roots: [] });
    },
  });
  assert.equal(called.answer.kind, 'result');
  assert.ok(called.messages.some((message) => message.kind === 'request' && message.method === 'roots/list'));
  assert.deepEqual(client.listened, []);

  client.notify('notifications/initialized');
  change('other');
  await client.waitForMessage('notifications/tools/list_changed');
  assert.equal(client.listened.length, 1);
});

test('the metrics count initialize by its outcome and revision', TIMEOUT, async () => {
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools: [TOOL] } }) } });
  await gateway.connect();
  const request = { kind: 'request', id: '1', method: 'initialize', params: RawObject.EMPTY } as const;
  await gateway.core.gateway.initialize(request, LOCAL, '');
  const text = await gateway.metrics.text();
  for (const labels of [
    'error_type="",mcp_protocol_version="2025-11-25"',
    'error_type="invalid-params",mcp_protocol_version=""',
  ]) {
    const series = `{mcp_method_name="initialize",gen_ai_tool_name="",${labels},network_transport="tcp"} 1`;
    assert.ok(text.includes(`mcp_server_operation_duration_seconds_count${series}`), labels);
  }
});

test('an initialize request is in flight until it is answered', TIMEOUT, async () => {
  const processes = new JoinedProcesses();
  const joined = processes.join();
  const claimed = Promise.withResolvers<typeof HERE>();
  processes.join = () => ({ ...joined, ownerOf: () => claimed.promise });
  await using gateway = await testCore({ up: {} }, {}, processes);
  const open = (params: object) =>
    gateway.core.gateway.initialize(
      { kind: 'request', id: '1', method: 'initialize', params: RawObject.of(params) },
      LOCAL,
      '',
    );
  const opening = open({ protocolVersion: '2025-11-25' });
  const inFlight = async () => /^linkspan_requests_in_flight (\d+)$/m.exec(await gateway.metrics.text())?.[1];
  assert.deepEqual([await inFlight(), gateway.core.inFlightCount], ['1', 1]);
  claimed.resolve(HERE);
  await opening;
  await open({});
  assert.deepEqual([await inFlight(), gateway.core.inFlightCount], ['0', 0]);
});
