/** Streamable HTTP of 2026-07-28: only POST, with headers that repeat parts of the body, and without sessions. */
import type { IncomingMessage, ServerResponse } from 'node:http';
import { eventText } from './events.ts';
import { idOf, object, parse, string, type Members, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { ModernUpstream } from './upstream-modern.ts';
import { META, MODERN, NAME_PARAMS } from './words.ts';
import type { World } from './world.ts';

const STATUS: Readonly<Record<number, number>> = {
  [-32601]: 404,
  [-32020]: 400,
  [-32021]: 400,
  [-32022]: 400,
  [-32600]: 400,
};

function decoded(header: string | string[] | undefined): string | undefined {
  if (typeof header !== 'string') return undefined;
  const [, base64] = /^=\?base64\?(.*)\?=$/.exec(header) ?? [];
  return base64 === undefined ? header.trim() : Buffer.from(base64, 'base64').toString('utf8');
}

/** Returns the error if headers and body differ. */
function mismatch(headers: IncomingMessage['headers'], method: string, params: Members): string | undefined {
  const version = object(params['_meta'])[META.revision];
  if (headers['mcp-protocol-version'] !== version)
    return `MCP-Protocol-Version: ${String(headers['mcp-protocol-version'])}`;
  if (headers['mcp-method'] !== method) return `Mcp-Method: ${String(headers['mcp-method'])} for ${method}`;
  const member = NAME_PARAMS[method];
  if (member !== undefined && decoded(headers['mcp-name']) !== params[member]) {
    return `Mcp-Name: ${String(headers['mcp-name'])} for ${string(params[member])}`;
  }
  if (method !== 'tools/call' || params['name'] !== 'values') return undefined;
  const { region } = object(params['arguments']);
  const sent = decoded(headers['mcp-param-region']);
  return sent === region ? undefined : `Mcp-Param-Region: ${String(sent)} for ${String(region)}`;
}

export class StatelessHttp {
  readonly #ledger: LedgerWriter;
  readonly #upstream: ModernUpstream;

  constructor(ledger: LedgerWriter, world: World, canAsk = true) {
    this.#ledger = ledger;
    this.#upstream = new ModernUpstream(ledger, world, canAsk);
  }

  async answer(request: IncomingMessage, body: string, response: ServerResponse): Promise<void> {
    if (request.method !== 'POST') {
      response.writeHead(405, { allow: 'POST' }).end();
      return;
    }
    const message = parse(body);
    const method = string(message['method']);
    const params = object(message['params']);
    const isModern = object(params['_meta'])[META.revision] !== undefined;
    if (request.headers['mcp-session-id'] !== undefined) this.#ledger.violation('Mcp-Session-Id in 2026-07-28');
    const { accept = '' } = request.headers;
    if (!accept.includes('application/json') || !accept.includes('text/event-stream')) {
      this.#ledger.violation(`a POST with Accept: ${accept}`);
    }
    if (idOf(message) === undefined) {
      this.#ledger.violation(`${method === '' ? 'a response' : method} by POST in ${MODERN}`);
      response.writeHead(method === '' ? 400 : 202).end();
      return;
    }
    const wrong = isModern ? mismatch(request.headers, method, params) : undefined;
    if (wrong !== undefined) {
      this.#ledger.violation(wrong);
      const error = { code: -32020, message: `Header mismatch: ${wrong}` };
      this.#json(response, 400, { jsonrpc: '2.0', id: message['id'], error });
      return;
    }
    await this.#serve(message, response);
  }

  async #serve(message: Message, response: ServerResponse): Promise<void> {
    const abort = new AbortController();
    response.once('close', () => abort.abort());
    const answer = await this.#upstream.serve(message, {
      signal: abort.signal,
      notify: (notification) => {
        if (!response.headersSent) {
          response.writeHead(200, { 'content-type': 'text/event-stream', 'x-accel-buffering': 'no' });
        }
        response.write(eventText({ data: JSON.stringify(notification) }));
      },
    });
    if (answer === undefined) {
      response.end();
      return;
    }
    if (response.headersSent) response.end(eventText({ data: JSON.stringify(answer) }));
    else this.#json(response, STATUS[Number(object(answer['error'])['code'])] ?? 200, answer);
  }

  #json(response: ServerResponse, status: number, message: Message): void {
    response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(message));
  }
}
