import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import { text as readText } from 'node:stream/consumers';
import type { ExternalConfig } from '../../src/policy/access-config.ts';
import { Changes } from './changes.ts';
import { listenLocally } from './local-port.ts';
import { PATIENCE_MS } from './patience.ts';

type Members = Readonly<Record<string, unknown>>;

/** A question that a decision point has received. */
export interface Question {
  readonly subject: { readonly type: string; readonly id: string; readonly properties: Members };
  readonly action: { readonly name: string };
  readonly resource: { readonly type: string; readonly id: string; readonly properties: Members };
  readonly context: Members;
}

type Reply = (response: ServerResponse, question: Question) => void;

/** Returns a reply with a status and a body. */
export function replyWith(status: number, body: string, headers: Readonly<Record<string, string>> = {}): Reply {
  return (response) => {
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(body);
  };
}

export const ALLOW = replyWith(200, '{"decision":true}');
export const DENY = replyWith(200, '{"decision":false,"context":{"reason":"secret of the point"}}');

export interface TestDecisionPoint extends AsyncDisposable {
  readonly config: ExternalConfig;
  readonly asked: readonly Question[];
  readonly headers: readonly IncomingHttpHeaders[];
  /** The number of questions whose connection has ended before their answer. */
  readonly givenUp: number;
  /** Replies to the next questions. Default: allows them. */
  reply: Reply;
  /** Resolves with the first defined value of `found`, which runs again after each question, and each that is given up. */
  until<T>(found: () => T | undefined): Promise<T>;
}

/** Starts a decision point. It has as much time as a test. */
export async function startDecisionPoint(own: Partial<ExternalConfig> = {}): Promise<TestDecisionPoint> {
  const changes = new Changes();
  const asked: Question[] = [];
  const headers: IncomingHttpHeaders[] = [];
  let givenUp = 0;
  const server = createServer((request, response) => {
    response.on('close', () => {
      if (!response.writableFinished) givenUp++;
      changes.announce();
    });
    void readText(request).then((body) => {
      const question: Question = JSON.parse(body);
      asked.push(question);
      headers.push(request.headers);
      changes.announce();
      point.reply(response, question);
    });
  });
  const port = await listenLocally(server);
  const point: TestDecisionPoint = {
    config: {
      url: `http://127.0.0.1:${port}/access/v1/evaluation`,
      headers: { authorization: 'Bearer point-secret' },
      timeoutMs: PATIENCE_MS,
      upstreams: undefined,
      arguments: false,
      ...own,
    },
    asked,
    headers,
    get givenUp() {
      return givenUp;
    },
    reply: ALLOW,
    until: (found) => changes.until(found),
    [Symbol.asyncDispose]: async () => {
      const closed = new Promise((resolve) => {
        server.close(resolve);
      });
      server.closeAllConnections();
      await closed;
    },
  };
  return point;
}
