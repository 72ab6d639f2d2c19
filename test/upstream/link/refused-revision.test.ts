import assert from 'node:assert/strict';
import type { ServerResponse } from 'node:http';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../../downstream/client.ts';
import { event, serve, stream } from '../../fixtures/servers/http-harness.ts';
import { modernCall } from '../../support/eras.ts';
import { errorText, legacyUpstream, resultText, type Served } from '../../support/http-upstream.ts';
import { type OpenGateway, openGateway } from '../../support/open-gateway.ts';

const TIMEOUT = { timeout: 120_000 };
const REVISION = '2025-03-26';
const SUPPORTED = { supported: ['2024-11-05', REVISION] };
const HELLO = { protocolVersion: REVISION, capabilities: { tools: {} }, serverInfo: { name: 'picky', version: '1' } };
const TOOLS = [{ name: 'works', inputSchema: { type: 'object' } }];

/** Calls the only tool of the upstream in a new session. Returns its text. */
async function callOf({ url }: OpenGateway, name: string): Promise<string> {
  const session = await initialize(url, REVISION);
  const called = await post(url, rpc(2, 'tools/call', { name: `up__${name}` }), session);
  const { content }: { content?: { text: string }[] } = Object(messagesOf(called).at(-1)?.['result']);
  return content?.[0]?.text ?? called.text;
}

const unsupported = (data?: object) => ({ code: -32_602, message: 'Unsupported protocol version', data });

type Refusal = (served: Served) => void;

const refuse =
  (status: number, text: (served: Served) => string, headers: Readonly<Record<string, string>> = {}): Refusal =>
  (served) => {
    served.response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(text(served));
  };
const inText = { code: -32_000, message: `Bad Request: this server is one of ${REVISION}` };

const REFUSALS: readonly (readonly [string, Refusal, asked: readonly string[]])[] = [
  ['lists its revisions', refuse(200, ({ id }) => errorText(id, unsupported(SUPPORTED))), [REVISION]],
  ['lists its revisions with HTTP 400', refuse(400, ({ id }) => errorText(id, unsupported(SUPPORTED))), [REVISION]],
  ['names it with HTTP 400 and no id', refuse(400, () => errorText(undefined, inText)), [REVISION]],
  ['names it with HTTP 400 and a null id', refuse(400, () => errorText(null, inText)), [REVISION]],
  [
    'names only the refused one',
    refuse(200, ({ id, params }) =>
      errorText(id, { ...unsupported(), message: `no protocol version ${String(params['protocolVersion'])}` }),
    ),
    ['2025-06-18', REVISION],
  ],
  [
    'begins a session with its refusal',
    refuse(200, ({ id }) => errorText(id, unsupported(SUPPORTED)), { 'mcp-session-id': 'refused' }),
    [REVISION],
  ],
];

suite('a remote server that refuses our latest revision', () => {
  for (const [how, refuses, asked] of REFUSALS) {
    // L-010
    test(`and ${how} is asked for another one`, TIMEOUT, async () => {
      const answer = (served: Served) => {
        assert.equal(served.headers['mcp-session-id'], undefined);
        if (served.params['protocolVersion'] === REVISION) return HELLO;
        refuses(served);
        return undefined;
      };
      const works = () => ({ content: [{ type: 'text', text: 'works' }] });
      await using server = await legacyUpstream({ tools: TOOLS, answers: { initialize: answer, 'tools/call': works } });
      await using gateway = await openGateway({ up: { url: server.url, isolation: 'session' } });
      assert.equal(await callOf(gateway, 'works'), 'works');
      assert.equal(await callOf(gateway, 'works'), 'works');
      const proposed = server.requests('initialize').map(({ params }) => params['protocolVersion']);
      // Later connections begin with the revision that it took.
      const [first, ...others] = proposed;
      assert.equal(first, '2025-11-25');
      assert.deepEqual(others.slice(0, asked.length), asked);
      assert.ok(
        others.slice(asked.length).every((revision) => revision === REVISION),
        proposed.join(),
      );
    });
  }

  // L-010
  test('over HTTP+SSE is asked for another one', TIMEOUT, async () => {
    let events: ServerResponse | undefined;
    await using server = await serve((request, response) => {
      if (request.method === 'GET') {
        events = response;
        stream(response, 'event: endpoint\ndata: /messages\n\n');
        return;
      }
      response.writeHead(202).end();
      const { id, rpc: method } = request;
      const { params }: { params?: { protocolVersion?: string } } = JSON.parse(request.body);
      if (method === 'initialize') {
        const isTaken = params?.protocolVersion === REVISION;
        events?.write(event(isTaken ? resultText(id, HELLO) : errorText(id, unsupported(SUPPORTED))));
      } else if (id !== undefined) {
        events?.write(event(resultText(id, { tools: TOOLS, content: [{ type: 'text', text: 'works' }] })));
      }
    }, '/sse');
    await using gateway = await openGateway({ up: { type: 'sse', url: server.url } });
    assert.equal(await callOf(gateway, 'works'), 'works');
  });

  // L-010
  test('and names none of ours fails with its revisions as the reason', TIMEOUT, async () => {
    const answer = (served: Served) => {
      refuse(200, ({ id }) => errorText(id, unsupported({ supported: ['2031-01-01', '2032-01-01'] })))(served);
      return undefined;
    };
    await using server = await legacyUpstream({ tools: TOOLS, answers: { initialize: answer } });
    await using gateway = await openGateway({ up: { url: server.url, era: 'legacy' } });
    const text = await callOf(gateway, 'works');
    assert.match(text, /refused initialize: Unsupported protocol version \(it supports 2031-01-01, 2032-01-01\)/);
  });
});

// L-010
test('a revision in the name of an upstream is none that its refusal names', TIMEOUT, async () => {
  const answer = (served: Served) => {
    refuse(405, () => '')(served);
    return undefined;
  };
  await using server = await legacyUpstream({ tools: TOOLS, answers: { initialize: answer } });
  await using gateway = await openGateway({ 'files-2024-11-05': { url: server.url, era: 'legacy' } });
  const session = await initialize(gateway.url, REVISION);
  await post(gateway.url, rpc(2, 'tools/call', { name: 'files-2024-11-05__works' }), session);
  const proposed = new Set(server.requests('initialize').map(({ params }) => params['protocolVersion']));
  assert.deepEqual([...proposed], ['2025-11-25']);
});

for (const how of ['stays', 'ends']) {
  // L-010
  test(`a program that refuses our latest revision and ${how} is asked for another one`, TIMEOUT, async () => {
    const file = join(import.meta.dirname, '../../fixtures/servers/picky-stdio.ts');
    await using gateway = await openGateway({ up: { command: process.execPath, args: [file, how] } });
    assert.match(await callOf(gateway, 'pid'), /^\d+$/);
    assert.match(await modernCall(gateway.url, 'up__pid'), /^\d+$/);
  });
}

// L-010
test('a server that names 2024-10-07 is one of 2024-11-05', TIMEOUT, async () => {
  const answer = () => ({ ...HELLO, protocolVersion: '2024-10-07' });
  const works = () => ({ content: [{ type: 'text', text: 'works' }] });
  await using server = await legacyUpstream({ tools: TOOLS, answers: { initialize: answer, 'tools/call': works } });
  await using gateway = await openGateway({ up: { url: server.url } });
  assert.equal(await callOf(gateway, 'works'), 'works');
});
