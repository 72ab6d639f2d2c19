import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { END_OF_TEXT } from '../../../bench/capacity/large-answers.ts';
import { IdleStreams } from '../../../bench/capacity/idle-streams.ts';
import { SlowReaders } from '../../../bench/capacity/slow-readers.ts';
import { listenOnLoopback } from '../../../bench/loopback.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

interface Streams {
  readonly url: string;
  /** The responses that are event streams, with the method of their requests. */
  readonly open: { readonly method: string; readonly response: ServerResponse }[];
}

/** Starts a server with sessions whose GET and `subscriptions/listen` are answered with event streams. */
async function startServer(
  t: TestContext,
  call: (response: ServerResponse) => void = () => undefined,
): Promise<Streams> {
  const open: { method: string; response: ServerResponse }[] = [];
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = await text(request);
    const stream = (method: string) => {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).write(': hello\n\n');
      open.push({ method, response });
    };
    if (request.method === 'GET') stream('GET');
    else if (body.includes('subscriptions/listen')) stream('listen');
    else if (body.includes('tools/call')) call(response);
    else if (body.includes('"initialize"')) {
      response.setHeader('mcp-session-id', 'one');
      response.end('{"jsonrpc":"2.0","id":0,"result":{}}');
    } else response.writeHead(202).end();
  };
  const server = createServer((request, response) => void answer(request, response));
  const port = await listenOnLoopback(server);
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${port}/mcp`, open };
}

test('idle streams are of both kinds, and a stream that ends is a drop', TIMEOUT, async (t) => {
  const { url, open } = await startServer(t);
  const streams = new IdleStreams({ url, authorizations: ['Bearer one'], gets: 3, listens: 2 });
  await streams.open();
  assert.deepEqual(open.map(({ method }) => method).toSorted(), ['GET', 'GET', 'GET', 'listen', 'listen']);
  assert.equal(streams.report().open, 5);
  assert.deepEqual(streams.report().dropped, {});

  open[0]?.response.destroy();
  await waitUntil(() => streams.report().open === 4);
  assert.equal(
    Object.values(streams.report().dropped).reduce((sum, count) => sum + count, 0),
    1,
  );
});

test('a slow reader reads to the end of an answer, and says if it is cut', TIMEOUT, async (t) => {
  let answers = 0;
  const { url } = await startServer(t, (response) => {
    response.writeHead(200, { 'content-type': 'application/json' });
    if (++answers === 1) response.end(`${'x'.repeat(100_000)}${END_OF_TEXT}"}]}}`);
    else response.write('x'.repeat(100_000), () => response.destroy());
  });
  const job = {
    url,
    authorizations: ['Bearer one'],
    readers: [{ count: 1, tool: 'large', bytesPerSecond: 1_000_000 }],
  };
  const readers = new SlowReaders(job);
  t.after(() => readers.stop());
  readers.start();
  await waitUntil(() => Object.keys(readers.report().ended).length > 0);
  assert.equal(readers.report().whole['large'], 1);
  assert.match(Object.keys(readers.report().ended)[0] ?? '', /ended after 0 MiB/);
});
