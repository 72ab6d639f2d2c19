/** HTTP+SSE of 2024-11-05: one event stream for all messages to the client, and POSTs from it. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { eventText } from './events.ts';
import { parse } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { LegacyUpstream } from './upstream-legacy.ts';
import type { World } from './world.ts';

export class SseHttp {
  readonly #ledger: LedgerWriter;
  readonly #world: World;
  readonly #lines = new Map<string, LegacyUpstream>();

  constructor(ledger: LedgerWriter, world: World) {
    this.#ledger = ledger;
    this.#world = world;
  }

  answer(request: IncomingMessage, body: string, response: ServerResponse): void {
    const url = new URL(request.url ?? '/', 'http://matrix');
    if (request.method === 'GET' && url.pathname === '/sse') {
      this.#open(response);
      return;
    }
    const upstream = this.#lines.get(url.searchParams.get('line') ?? '');
    if (request.method !== 'POST') response.writeHead(405).end();
    else if (upstream === undefined) response.writeHead(404).end();
    else {
      response.writeHead(202).end('Accepted');
      upstream.receive(parse(body));
    }
  }

  #open(response: ServerResponse): void {
    const line = randomUUID();
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write(eventText({ event: 'endpoint', data: `/messages?line=${line}` }));
    const upstream = new LegacyUpstream('2024-11-05', this.#ledger, this.#world, (message) => {
      if (Object.keys(message).length > 0)
        response.write(eventText({ event: 'message', data: JSON.stringify(message) }));
    });
    this.#lines.set(line, upstream);
    response.once('close', () => {
      this.#lines.delete(line);
      upstream.close();
    });
  }
}
