import assert from 'node:assert/strict';
import { test } from 'node:test';
import { modernUpstream } from '../support/http-upstream.ts';
import { modernEvents, modernPost, modernText } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { getEvents, post, send } from './client.ts';
import { BY_NAME, startEdge } from './edge.ts';

const OPTIONS = { timeout: 120_000 };

// N-33
test('a principal at its limit of listen streams is refused another', OPTIONS, async () => {
  await using upstream = await modernUpstream({});
  await using gateway = await openGateway({ up: { url: upstream.url } }, { limits: { streamsPerPrincipal: 2 } });
  const listen = { notifications: { toolsListChanged: true } };
  const streams = await Promise.all(
    ['a', 'b'].map((id) => modernEvents(gateway.url, 'subscriptions/listen', listen, { id })),
  );
  for (const stream of streams) await stream.until(({ seen }) => seen.length > 0);
  const refused = await modernPost(gateway.url, 'subscriptions/listen', listen);
  assert.equal(refused.status, 503);
  assert.match(refused.text, /streams open; close one first/);
  assert.match(refused.text, /"executed":"no","retryable":true/);
  for (const stream of streams) stream.close();
  for (;;) {
    const next = await modernEvents(gateway.url, 'subscriptions/listen', listen);
    if (next.status === 200) {
      next.close();
      break;
    }
  }
});

// N-33
test('GET /sse streams are limited per principal', OPTIONS, async () => {
  await using edge = await startEdge({ limits: { streamsPerPrincipal: 1 } }, BY_NAME);
  const alice = { authorization: 'Bearer alice' };
  const first = await getEvents(`${edge.url}/sse`, undefined, alice);
  assert.equal(first.status, 200);
  assert.equal((await send(`${edge.url}/sse`, { headers: { accept: 'text/event-stream', ...alice } })).status, 503);
  const other = await getEvents(`${edge.url}/sse`, undefined, { authorization: 'Bearer bob' });
  assert.equal(other.status, 200);
  other.close();
  first.close();
});

// N-33
test('listen requests over HTTP+SSE are limited per principal', OPTIONS, async () => {
  await using upstream = await modernUpstream({});
  await using gateway = await openGateway({ up: { url: upstream.url } }, { limits: { streamsPerPrincipal: 1 } });
  const events = await getEvents(new URL('/sse', gateway.url).href, undefined);
  await events.until(({ seen }) => seen.length > 0);
  const [endpoint] = events.seen.splice(0, 1);
  const { href } = new URL(endpoint?.data ?? '', gateway.url);
  const listen = (id: string) =>
    post(href, modernText('subscriptions/listen', { notifications: { toolsListChanged: true } }, { id }));
  await listen('a');
  await events.until(({ messages }) => messages.length === 1);
  await listen('b');
  await events.until(({ messages }) => messages.length === 2);
  assert.match(JSON.stringify(events.messages[1]), /"id":"b".*1 subscriptions\/listen streams open; close one first/);
  await post(href, '{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"a"}}');
  await listen('c');
  await events.until(({ messages }) => messages.length === 3);
  assert.match(JSON.stringify(events.messages[2]), /acknowledged.*"c"/);
  events.close();
});
