import assert from 'node:assert/strict';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { test, type TestContext } from 'node:test';
import { text } from 'node:stream/consumers';
import { answerTo } from '../../../bench/answers.ts';
import { OpenLoad } from '../../../bench/capacity/open-load.ts';
import { listenOnLoopback } from '../../../bench/loopback.ts';
import { stopTime } from '../../support/stopped-time.ts';

const TIMEOUT = { timeout: 120_000 };

/** Starts an MCP server that lets `treat` answer a call; without that, it answers as the fixture does. */
async function startServer(
  t: TestContext,
  treat: (response: ServerResponse, count: number) => boolean,
): Promise<string> {
  let count = 0;
  const answer = async (request: IncomingMessage, response: ServerResponse) => {
    const body = await text(request);
    if (treat(response, ++count)) return;
    const answered = answerTo(body, '2026-07-28');
    response.setHeader('content-type', 'application/json');
    response.end(answered === undefined ? '' : `${answered.head}${answered.tail.toString()}`);
  };
  const server = createServer((request, response) => void answer(request, response));
  const port = await listenOnLoopback(server);
  t.after(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${port}/mcp`;
}

async function openLoad(url: string, connections = 8): Promise<OpenLoad> {
  const load = new OpenLoad({
    url,
    authorizations: [],
    revision: '2026-07-28',
    tool: 'small',
    toolPrefix: '',
    connections,
  });
  await load.open();
  return load;
}

test('calls at a rate are counted, with a latency for each', TIMEOUT, async (t) => {
  const load = await openLoad(await startServer(t, () => false));
  const report = await load.play(1_000, 50);
  assert.ok(report.due > 0);
  assert.equal(report.answered + report.unsent, report.due);
  assert.ok(report.p50Ms > 0 && report.p50Ms <= report.p95Ms && report.p95Ms <= report.p99Ms);
  assert.equal(
    report.seconds.reduce((sum, { answered }) => sum + answered, 0),
    report.answered,
  );
  assert.deepEqual([report.refused, report.lost, report.unanswered], [{}, {}, 0]);
});

test('refusals are counted by their text, and not as answers', TIMEOUT, async (t) => {
  const url = await startServer(t, (response, count) => {
    if (count % 2 === 0) return false;
    response.writeHead(503, { 'content-type': 'application/json' });
    response.end('{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"Overloaded"}}');
    return true;
  });
  const report = await (await openLoad(url)).play(1_000, 50);
  assert.ok((report.refused['503 Overloaded'] ?? 0) > 0);
  assert.equal(report.answered + (report.refused['503 Overloaded'] ?? 0) + report.unsent, report.due);
  assert.ok(report.refusalP99Ms > 0);
});

test('a lost connection is counted and replaced', TIMEOUT, async (t) => {
  const url = await startServer(t, (response, count) => {
    if (count !== 3) return false;
    response.destroy();
    return true;
  });
  const report = await (await openLoad(url, 1)).play(1_000, 50);
  assert.equal(
    Object.values(report.lost).reduce((sum, count) => sum + count, 0),
    1,
  );
  assert.ok(report.answered > 2, `${report.answered}`);
});

test('calls that find no free connection for a second are counted as not sent', TIMEOUT, async (t) => {
  const time = stopTime(t);
  const held: ServerResponse[] = [];
  const url = await startServer(t, (response) => {
    held.push(response);
    if (held.length > 1) return false;
    // The only connection is busy until the end of the turn.
    setTimeout(() => response.destroy(), 3_000);
    return true;
  });
  const load = await openLoad(url, 1);
  const report = await time.passUntil(load.play(2_000, 20), 10);
  assert.ok(report.unsent > 0);
  assert.equal(report.answered, 0);
});
