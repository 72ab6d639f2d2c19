import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { PATIENCE_MS } from '../support/patience.ts';
import { OpenAttempt } from './client.ts';
import type { Attempt } from './history.ts';
import { type Message, parseMessage } from './http-exchange.ts';
import { LegacyCaller } from './legacy-caller.ts';
import { planChaos } from './plan.ts';

const REFUSALS = 6;
const QUESTION = { jsonrpc: '2.0', id: 1, method: 'elicitation/create', params: {} };

async function read(request: IncomingMessage): Promise<Message | undefined> {
  let text = '';
  for await (const chunk of request) text += String(chunk);
  return parseMessage(text);
}

test('a client repeats its answer to a question until the gateway accepts it', { timeout: 120_000 }, async () => {
  let refused = 0;
  let call: { readonly id: unknown; readonly response: ServerResponse } | undefined;
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const message = await read(request);
    if (message?.method === 'initialize') {
      response.setHeader('mcp-session-id', 's');
      response.end(JSON.stringify({ jsonrpc: '2.0', id: message.id, result: {} }));
    } else if (message?.method === 'tools/call') {
      call = { id: message.id, response };
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.write(`id: 1\ndata: ${JSON.stringify(QUESTION)}\n\n`);
    } else if (message?.result === undefined) response.writeHead(message === undefined ? 405 : 202).end();
    else if (refused < REFUSALS) {
      refused++;
      response.writeHead(503).end();
    } else {
      response.writeHead(202).end();
      call?.response.end(`data: ${JSON.stringify({ jsonrpc: '2.0', id: call.id, result: {} })}\n\n`);
    }
  };
  const server = createServer((request, response) => void answer(request, response));
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = addressOf(server.address());
  const [planned] = planChaos(1).clients[0]?.calls ?? [];
  assert.ok(planned !== undefined);
  const attempt: Attempt = {
    call: { ...planned, resetMs: undefined },
    number: 1,
    sentMs: 0,
    ends: [],
    progress: [],
    notes: [],
    resumed: 0,
    session: undefined,
  };
  try {
    await using caller = new LegacyCaller(`http://127.0.0.1:${port}/mcp`, 'key', '2025-11-25', new Set());
    assert.ok(await caller.prepare(AbortSignal.timeout(PATIENCE_MS)));
    const clock = { now: () => 0 };
    await caller.send(new OpenAttempt(attempt, clock), AbortSignal.timeout(PATIENCE_MS));
  } finally {
    server.closeAllConnections();
    server.close();
  }
  assert.equal(refused, REFUSALS);
  assert.deepEqual(
    attempt.ends.map(({ kind }) => kind),
    ['ok'],
  );
});

function addressOf(address: AddressInfo | string | null): AddressInfo {
  assert.ok(typeof address === 'object' && address !== null);
  return address;
}
