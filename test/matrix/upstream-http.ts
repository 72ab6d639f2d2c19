/** Streamable HTTP with sessions, of 2025-03-26 to 2025-11-25. Streams have event ids and can be resumed. */
import { randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { eventText } from './events.ts';
import { idOf, parse, string, type Id, type Message } from './json.ts';
import type { LedgerWriter } from './ledger.ts';
import { LegacyUpstream } from './upstream-legacy.ts';
import type { Revision } from './words.ts';
import type { World } from './world.ts';

const EVENTS = { 'content-type': 'text/event-stream', 'cache-control': 'no-cache' };

/** One event stream and its current reader. */
class Stream {
  readonly name = randomUUID();
  readonly #sent: string[] = [];
  #response: ServerResponse | undefined;
  #isOver = false;

  attach(response: ServerResponse, after: number): void {
    this.#response = response;
    response.writeHead(200, EVENTS).flushHeaders();
    for (const text of this.#sent.slice(after)) response.write(text);
    if (this.#isOver) response.end();
    response.once('close', () => {
      if (this.#response === response) this.#response = undefined;
    });
  }

  send(data: string): void {
    const text = eventText({ id: `${this.name}/${this.#sent.length + 1}`, data });
    this.#sent.push(text);
    this.#response?.write(text);
  }

  end(): void {
    this.#isOver = true;
    this.#response?.end();
  }
}

class Session {
  readonly upstream: LegacyUpstream;
  readonly standing = new Stream();
  readonly posts = new Map<Id, Stream | ServerResponse>();
  readonly streams = new Map<string, Stream>([[this.standing.name, this.standing]]);
  readonly #revision: Revision;

  constructor(revision: Revision, ledger: LedgerWriter, world: World) {
    this.#revision = revision;
    this.upstream = new LegacyUpstream(revision, ledger, world, (message, about) => this.#send(message, about));
  }

  /** Sends a single answer as JSON. Any earlier message opens a stream. */
  #send(message: Message, about: Id | undefined): void {
    if (about === undefined) {
      this.standing.send(JSON.stringify(message));
      return;
    }
    const isAnswer = message['method'] === undefined;
    let post = this.posts.get(about);
    if (post !== undefined && !(post instanceof Stream)) {
      if (isAnswer) {
        this.posts.delete(about);
        if (Object.keys(message).length === 0) post.writeHead(202).end();
        else post.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(message));
        return;
      }
      const stream = new Stream();
      this.streams.set(stream.name, stream);
      stream.attach(post, 0);
      // The first event of a stream may have only an id, for clients that support it.
      if (this.#revision >= '2025-11-25') stream.send('');
      this.posts.set(about, stream);
      post = stream;
    }
    if (Object.keys(message).length > 0) post?.send(JSON.stringify(message));
    if (!isAnswer) return;
    post?.end();
    this.posts.delete(about);
  }
}

export class LegacyHttp {
  readonly #revision: Revision;
  readonly #ledger: LedgerWriter;
  readonly #world: World;
  readonly #sessions = new Map<string, Session>();

  constructor(revision: Revision, ledger: LedgerWriter, world: World) {
    this.#revision = revision;
    this.#ledger = ledger;
    this.#world = world;
  }

  answer(request: IncomingMessage, body: string, response: ServerResponse): void {
    if (request.method === 'POST') {
      this.#post(request, body, response);
      return;
    }
    const session = this.#sessionOf(request, response);
    if (session === undefined) return;
    if (request.method === 'GET') this.#get(request, session, response);
    else {
      this.#sessions.delete(string(request.headers['mcp-session-id']));
      session.upstream.close();
      session.standing.end();
      response.writeHead(200).end();
    }
  }

  #post(request: IncomingMessage, body: string, response: ServerResponse): void {
    const accept = request.headers.accept ?? '';
    if (!accept.includes('application/json') || !accept.includes('text/event-stream')) {
      this.#ledger.violation(`a POST with Accept: ${accept}`);
    }
    const message = parse(body);
    const id = idOf(message);
    if (message['method'] === 'server/discover' && request.headers['mcp-session-id'] === undefined) {
      const error = { code: -32600, message: 'Bad Request: no valid session ID provided' };
      response.writeHead(400, { 'content-type': 'application/json' });
      response.end(JSON.stringify({ jsonrpc: '2.0', id: null, error }));
      return;
    }
    let session: Session | undefined;
    if (message['method'] === 'initialize') {
      const name = randomUUID();
      session = new Session(this.#revision, this.#ledger, this.#world);
      this.#sessions.set(name, session);
      response.setHeader('mcp-session-id', name);
    } else session = this.#sessionOf(request, response);
    if (session === undefined) return;
    if (id === undefined || message['method'] === undefined) {
      response.writeHead(202).end();
    } else session.posts.set(id, response);
    session.upstream.receive(message);
  }

  #get(request: IncomingMessage, session: Session, response: ServerResponse): void {
    const last = request.headers['last-event-id'];
    if (last === undefined) {
      session.standing.attach(response, Number.MAX_SAFE_INTEGER);
      return;
    }
    const [name = '', seq] = string(last).split('/');
    const stream = session.streams.get(name);
    if (stream === undefined) {
      this.#ledger.violation(`Last-Event-ID ${string(last)}, which was never sent`);
      response.writeHead(400).end();
    } else stream.attach(response, Number(seq));
  }

  #sessionOf(request: IncomingMessage, response: ServerResponse): Session | undefined {
    const session = this.#sessions.get(string(request.headers['mcp-session-id']));
    const version = request.headers['mcp-protocol-version'];
    if (session === undefined) response.writeHead(404).end();
    if (this.#revision >= '2025-06-18' && version !== this.#revision) {
      this.#ledger.violation(`MCP-Protocol-Version: ${String(version)} on ${String(request.method)}`);
    }
    return session;
  }
}
