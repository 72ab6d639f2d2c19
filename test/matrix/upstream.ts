/**
 * An MCP server of exactly one revision over exactly one transport, without an SDK:
 *
 *     node test/matrix/upstream.ts REVISION|dual stdio|http DIR
 *
 * A dual one supports two revisions: 2025-11-25 in sessions, and 2026-07-28, in which it asks no questions.
 * Over HTTP it prints its address on stdout. It writes its actions and every violation of its revision to
 * `DIR/ledger.jsonl`.
 */
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { parse } from './json.ts';
import { LedgerWriter } from './ledger.ts';
import { LegacyHttp } from './upstream-http.ts';
import { SseHttp } from './upstream-sse.ts';
import { StatelessHttp } from './upstream-stateless.ts';
import { isModern, serveStdio } from './upstream-stdio.ts';
import { DUAL, DUAL_LEGACY, MODERN, REVISIONS, type Revision } from './words.ts';
import { World } from './world.ts';

const [, , asked, transport, dir] = process.argv;
const revision = asked === DUAL ? DUAL : REVISIONS.find((one) => one === asked);
if (revision === undefined || dir === undefined) throw new Error('usage: upstream.ts REVISION stdio|http DIR');
const ledger = new LedgerWriter(dir);
const world = new World(dir);

async function textOf(request: IncomingMessage): Promise<string> {
  let body = '';
  request.setEncoding('utf8');
  for await (const chunk of request) body += String(chunk);
  return body;
}

interface Edge {
  answer(request: IncomingMessage, body: string, response: ServerResponse): void | Promise<void>;
}

function dualEdge(): Edge {
  const modern = new StatelessHttp(ledger, world, false);
  const legacy = new LegacyHttp(DUAL_LEGACY, ledger, world);
  return {
    answer: (request, body, response) => {
      const edge = request.method === 'POST' && isModern(parse(body)) ? modern : legacy;
      return edge.answer(request, body, response);
    },
  };
}

function edgeOf(revision: Revision | typeof DUAL): Edge {
  if (revision === DUAL) return dualEdge();
  if (revision === '2024-11-05') return new SseHttp(ledger, world);
  return revision === MODERN ? new StatelessHttp(ledger, world) : new LegacyHttp(revision, ledger, world);
}

function listen(edge: Edge, path: string): void {
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    await edge.answer(request, await textOf(request), response);
  };
  const server = createServer((request, response) => {
    answer(request, response).catch((thrown: unknown) => {
      if (response.destroyed) return;
      ledger.violation(`${request.method ?? ''} ${request.url ?? ''}: ${String(thrown)}`);
      response.destroy();
    });
  });
  server.listen(0, '127.0.0.1', () => {
    const address = server.address();
    if (typeof address === 'object') console.log(`listening on http://127.0.0.1:${address?.port}${path}`);
  });
}

if (transport === 'stdio') serveStdio(revision, ledger, world);
else listen(edgeOf(revision), revision === '2024-11-05' ? '/sse' : '/mcp');
