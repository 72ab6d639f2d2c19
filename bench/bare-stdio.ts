/**
 * The minimum of a gateway in front of a stdio upstream, as a reference: node:http, a route by session, the id and
 * the
 * tool's name replaced by position, bytes copied. It has no checks, limits, policy or log.
 */
import { type ChildProcessByStdio, spawn } from 'node:child_process';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { Readable, Writable } from 'node:stream';
import { serve } from './loopback.ts';
import { parseUpstreamAddress } from './upstream-address.ts';

const LF = 0x0a;
const ID = Buffer.from('"id":');
const PREFIX = Buffer.from('"bench__');
const INITIALIZE = Buffer.from('"method":"initialize"');

const upstream = parseUpstreamAddress(process.argv[2]);
if (upstream.kind !== 'stdio') throw new Error('this prototype stands in front of stdio upstreams');
const { command, args, isolation } = upstream;

interface Pending {
  readonly id: Buffer;
  readonly session: string | undefined;
  readonly response: ServerResponse;
}

/** Returns the position of the raw id. */
function idSpan(bytes: Buffer): readonly [start: number, end: number] | undefined {
  const at = bytes.indexOf(ID);
  if (at < 0) return undefined;
  let end = at + ID.length;
  while (bytes[end] !== 0x2c && bytes[end] !== 0x7d) end++;
  return [at + ID.length, end];
}

/** One upstream process. All messages of a turn of the event loop are one write. */
class Child {
  readonly #process: ChildProcessByStdio<Writable, Readable, null>;
  readonly #pending = new Map<number, Pending>();
  #lastId = 0;
  #outgoing: Buffer[] = [];
  #held: Buffer[] = [];

  constructor() {
    this.#process = spawn(command, args, { stdio: ['pipe', 'pipe', 'inherit'] });
    this.#process.stdout.on('data', (chunk: Buffer) => this.#read(chunk));
  }

  forward(body: Buffer, session: string | undefined, response: ServerResponse): void {
    const span = idSpan(body);
    if (span === undefined) {
      this.#write(body, Buffer.from('\n'));
      response.writeHead(202).end();
      return;
    }
    const id = ++this.#lastId;
    this.#pending.set(id, { id: body.subarray(...span), session, response });
    const renamed = body.indexOf(PREFIX, span[1]);
    this.#write(body.subarray(0, span[0]), Buffer.from(String(id)));
    if (renamed < 0) this.#write(body.subarray(span[1]), Buffer.from('\n'));
    else this.#write(body.subarray(span[1], renamed + 1), body.subarray(renamed + PREFIX.length), Buffer.from('\n'));
  }

  end(): void {
    this.#process.stdin.end();
  }

  #write(...pieces: readonly Buffer[]): void {
    if (this.#outgoing.length === 0) {
      setImmediate(() => {
        const outgoing = this.#outgoing;
        this.#outgoing = [];
        this.#process.stdin.write(Buffer.concat(outgoing));
      });
    }
    this.#outgoing.push(...pieces);
  }

  #read(chunk: Buffer): void {
    let start = 0;
    for (;;) {
      const end = chunk.indexOf(LF, start);
      if (end < 0) break;
      const piece = chunk.subarray(start, end);
      this.#answer(this.#held.length === 0 ? piece : Buffer.concat([...this.#held, piece]));
      this.#held = [];
      start = end + 1;
    }
    if (start < chunk.length) this.#held.push(chunk.subarray(start));
  }

  #answer(line: Buffer): void {
    const span = idSpan(line);
    if (span === undefined) return;
    const key = Number(line.toString('latin1', ...span));
    const pending = this.#pending.get(key);
    if (pending === undefined) return;
    this.#pending.delete(key);
    const { response, session } = pending;
    const length = line.length - (span[1] - span[0]) + pending.id.length;
    const headers = ['content-type', 'application/json', 'content-length', String(length)];
    if (session !== undefined) headers.push('mcp-session-id', session);
    response.writeHead(200, headers);
    response.end(Buffer.concat([line.subarray(0, span[0]), pending.id, line.subarray(span[1])]));
  }
}

const shared = isolation === 'shared' ? new Child() : undefined;
const children = new Map<string, Child>();
let sessions = 0;

function post(request: IncomingMessage, response: ServerResponse, body: Buffer): void {
  const opened = body.includes(INITIALIZE) ? `bare-${++sessions}` : undefined;
  if (opened !== undefined) children.set(opened, shared ?? new Child());
  const child = children.get(opened ?? String(request.headers['mcp-session-id']));
  if (child === undefined) response.writeHead(404).end();
  else child.forward(body, opened, response);
}

function leave(request: IncomingMessage, response: ServerResponse): void {
  const session = String(request.headers['mcp-session-id']);
  const child = children.get(session);
  children.delete(session);
  if (child !== shared) child?.end();
  response.writeHead(200).end();
}

const server = createServer((request, response) => {
  if (request.method === 'DELETE') {
    leave(request, response);
    return;
  }
  const chunks: Buffer[] = [];
  request.on('data', (chunk: Buffer) => chunks.push(chunk));
  request.on('end', () => {
    const [first = Buffer.alloc(0)] = chunks;
    post(request, response, chunks.length === 1 ? first : Buffer.concat(chunks));
  });
});
await serve(server);
