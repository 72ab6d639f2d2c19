import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { initialize, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { modernUpstream } from '../support/http-upstream.ts';
import { modernResult } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { MAIN } from '../support/program.ts';

const MEMORY = fileURLToPath(
  new URL('../../node_modules/@modelcontextprotocol/server-memory/dist/index.js', import.meta.url),
);
const BOUNDED = { timeout: 120_000 };

/** The methods of the request lines after one listing that succeeds and one call that fails. */
async function requestLines(gateway: Readonly<Record<string, unknown>>): Promise<readonly string[]> {
  const memory = { command: process.execPath, args: [MEMORY], env: { MEMORY_FILE_PATH: '/nowhere/memory' } };
  const running = await startGateway({ mcpServers: { memory }, gateway });
  try {
    const client = new Client({ name: 'reader', version: '1' });
    await client.connect(new StreamableHTTPClientTransport(new URL(running.endpoint())));
    await client.listTools();
    await assert.rejects(client.callTool({ name: 'no-such-tool', arguments: {} }));
    await client.close();
  } finally {
    await running.stop();
  }
  return running
    .logs()
    .split('\n')
    .flatMap((line) => /"method":"(tools\/[a-z]+)".*"msg":"request"/.exec(line)?.[1] ?? []);
}

// N-49
test('on loopback the log has a line for each failed request and no others', BOUNDED, async () => {
  assert.deepEqual(await requestLines({}), ['tools/call']);
});

// N-49
test('accessLog: all, and a public URL, give every request a line', BOUNDED, async () => {
  assert.deepEqual(await requestLines({ accessLog: 'all' }), ['tools/list', 'tools/call']);
  assert.deepEqual(await requestLines({ publicUrl: 'https://mcp.example.com' }), ['tools/list', 'tools/call']);
});

function linesOf(logs: string): readonly Readonly<Record<string, unknown>>[] {
  return logs
    .split('\n')
    .flatMap((line) => (/"msg":"(?:request|notification)"/.test(line) ? [Object(JSON.parse(line))] : []));
}

test('the line of a call names the tool as published and as its upstream names it', BOUNDED, async () => {
  await using up = await modernUpstream({
    tools: [{ name: 'act', inputSchema: { type: 'object' } }],
    answers: { 'tools/call': () => ({ resultType: 'complete', content: [] }) },
  });
  await using gateway = await openGateway({ up: { url: up.url } }, { accessLog: 'all' });
  await modernResult(gateway.url, 'tools/call', { name: 'up__act' });
  await initialize(gateway.url).then((session) =>
    post(gateway.url, rpc(1, 'tools/call', { name: 'up__act' }), session),
  );
  await gateway.stop();
  const lines = linesOf(gateway.lines.join('')).filter(({ method }) => method === 'tools/call');
  assert.deepEqual(
    lines.map(({ era, tool, upstream, upstreamTool }) => [era, tool, upstream, upstreamTool]),
    ['modern', 'legacy'].map((era) => [era, 'up__act', 'up', 'act']),
  );
});

test('each message of a client has a line with its session, client and outcome', BOUNDED, async () => {
  const memory = { command: process.execPath, args: [MEMORY], env: { MEMORY_FILE_PATH: '/nowhere/memory' } };
  await using gateway = await startGateway({ mcpServers: { memory }, gateway: { accessLog: 'all' } });
  const client = new Client({ name: 'reader', version: '1.5' });
  const bodies: Promise<string>[] = [];
  const recordingFetch = async (url: string | URL, init?: RequestInit): Promise<Response> => {
    const response = await fetch(url, init);
    if (init?.method === 'POST') bodies.push(response.clone().text());
    return response;
  };
  const transport = new StreamableHTTPClientTransport(new URL(gateway.endpoint()), { fetch: recordingFetch });
  await client.connect(transport);
  await client.listTools();
  const list = JSON.parse((await bodies.at(-1)) ?? '').result;
  await assert.rejects(client.callTool({ name: 'no-such-tool', arguments: {} }));
  await gateway.waitForLog((line) => (/"tools\/call".*"msg":"request"/.test(line) ? true : undefined));
  const state = ['--state-dir', join(gateway.dir, 'state'), '--json'];
  const listed = spawnSync(process.execPath, [MAIN, 'ls', 'sessions', ...state], {
    encoding: 'utf8',
    timeout: 120_000,
  });
  const [session] = Object(JSON.parse(listed.stdout)).sessions;
  const handle = transport.sessionId;
  await client.close();

  const lines = linesOf(gateway.logs());
  assert.deepEqual(
    lines.map(({ method, status }) => [method, status]),
    [
      ['initialize', 'ok'],
      ['notifications/initialized', undefined],
      ['tools/list', 'ok'],
      ['tools/call', 'error'],
    ],
  );
  for (const line of lines) {
    assert.equal(line['session'], session.id, 'as the admin API names it');
    assert.deepEqual([line['client'], line['clientVersion'], line['era']], ['reader', '1.5', 'legacy']);
  }
  assert.equal(lines[3]?.['code'], -32_602);
  assert.equal(lines[2]?.['bytesOut'], Buffer.byteLength(JSON.stringify(list)));
  assert.ok(handle !== undefined && !gateway.logs().includes(handle.slice(0, 40)), 'a handle is a credential');
});
