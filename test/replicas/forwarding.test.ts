import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { createServer, request, type IncomingMessage } from 'node:http';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import type { ModernCaller } from '../../src/gateway/front/front.ts';
import { RawObject } from '../../src/json/json.ts';
import type { Principal } from '../../src/policy/principal.ts';
import type { ForwardedHead } from '../../src/replicas/forwarded-head.ts';
import type { ServedExchange } from '../../src/replicas/incoming-channel.ts';
import { InternalKeys } from '../../src/replicas/internal-keys.ts';
import { GONE, MISDIRECTED } from '../../src/replicas/internal-server.ts';
import { RemoteOwner } from '../../src/replicas/remote-owner.ts';
import { freshKey, withFreshKey } from '../../src/store/key-store.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';
import { ANNA, openPair } from './replica-pair.ts';

const OPTIONS = { timeout: 120_000 };

/** Returns the body of a request that is answered by its owner. */
async function bodyOf({ incoming, body }: ServedExchange): Promise<Buffer> {
  if (body !== undefined) return body;
  const chunks: Buffer[] = [];
  incoming.on('data', (chunk) => void chunks.push(chunk));
  const { promise, resolve } = Promise.withResolvers<void>();
  incoming.on('end', resolve);
  await promise;
  return Buffer.concat(chunks);
}

/** Begins a GET. Resolves with its response when the headers are there. */
async function get(url: string): Promise<{ readonly response: IncomingMessage; readonly close: () => void }> {
  const sent = request(url);
  sent.end();
  const [response] = await once(sent, 'response');
  return { response, close: () => sent.destroy() };
}

test('a request, its headers by list, and its answer are passed on as they are', OPTIONS, async () => {
  const seen: ForwardedHead[] = [];
  await using opened = await openPair((exchange, head) => {
    seen.push(head);
    void bodyOf(exchange).then((body) => {
      exchange.outgoing.writeHead(202, ['content-type', 'text/x', 'set-cookie', 'canary', 'content-length', '3']);
      exchange.outgoing.end(body);
    });
  });
  const headers = { authorization: 'Bearer canary', cookie: 'canary', 'mcp-session-id': 's', 'x-own': 'canary' };
  const response = await fetch(`${opened.url}?a=1`, { method: 'PUT', body: 'ü\0', headers });
  assert.equal(response.status, 202);
  assert.equal(await response.text(), 'ü\0');
  assert.equal(response.headers.get('content-type'), 'text/x');
  assert.equal(response.headers.get('content-length'), '3');
  assert.equal(response.headers.get('set-cookie'), null);
  const [head] = seen;
  assert.deepEqual(head?.principal, ANNA);
  assert.deepEqual([head?.view, head?.method, head?.target], ['files', 'PUT', '/mcp?a=1']);
  assert.ok(head.headers.includes('mcp-session-id'));
  assert.doesNotMatch(JSON.stringify(head), /canary/);
});

test('an answer without a body, such as 204, has no length', OPTIONS, async () => {
  await using opened = await openPair(({ outgoing }) => {
    outgoing.writeHead(204);
    outgoing.end();
  });
  const response = await fetch(opened.url, { method: 'DELETE' });
  assert.equal(response.status, 204);
  assert.equal(response.headers.get('content-length'), null);
});

test('large bodies cross in both directions, with and without a length', OPTIONS, async () => {
  await using opened = await openPair((exchange) => {
    void bodyOf(exchange).then((body) => {
      exchange.outgoing.writeHead(200, { 'content-type': 'x' });
      exchange.outgoing.write(body.subarray(0, 1_000));
      exchange.outgoing.end(body.subarray(1_000));
    });
  });
  for (const bytes of [1_001, 32_768, 32_769, 131_072, 5_000_000]) {
    const body = randomBytes(bytes);
    const whole = await fetch(opened.url, { method: 'POST', body });
    assert.ok(Buffer.from(await whole.arrayBuffer()).equals(body), `${bytes} bytes`);
    const stream = new Blob([body]).stream();
    const streamed = await fetch(opened.url, { method: 'POST', body: stream, duplex: 'half' });
    assert.ok(Buffer.from(await streamed.arrayBuffer()).equals(body), `${bytes} bytes without a length`);
  }
});

test('requests at once get their own answers', OPTIONS, async () => {
  await using opened = await openPair((exchange) => {
    void bodyOf(exchange).then((body) => {
      const answer = () => exchange.outgoing.end(body);
      if (body.length % 2 === 0) setImmediate(answer);
      else answer();
    });
  });
  const bodies = Array.from({ length: 200 }, (_, n) => `${n}`.repeat(1 + (n % 40) * 50));
  const answers = await Promise.all(
    bodies.map(async (body) => await (await fetch(opened.url, { method: 'POST', body })).text()),
  );
  assert.deepEqual(answers, bodies);
});

test('a client that does not read holds back its own answer, and no other one', OPTIONS, async () => {
  const piece = Buffer.alloc(16_384);
  // More than the kernel buffers.
  const pieces = 1_500;
  const sent = { pieces: 0, heldBackAt: 0 };
  await using opened = await openPair(({ outgoing }, { target }) => {
    if (target !== '/mcp') {
      outgoing.end('other');
      return;
    }
    const write = () => {
      while (sent.pieces < pieces) {
        sent.pieces++;
        if (outgoing.write(piece)) continue;
        if (sent.heldBackAt === 0) sent.heldBackAt = sent.pieces;
        return;
      }
      outgoing.end();
    };
    outgoing.writeHead(200);
    outgoing.on('drain', write);
    write();
  });
  const { response } = await get(opened.url);
  const { heldBackAt } = sent;
  assert.ok(heldBackAt > 0 && heldBackAt * piece.length <= 131_072 + piece.length, `${heldBackAt} pieces`);
  // In as many turns as the answer would need if nobody held it back.
  for (let n = 0; n < 400 && sent.pieces < pieces; n++) {
    assert.equal(await (await fetch(`${opened.url}/other`)).text(), 'other');
  }
  assert.ok(sent.pieces < pieces, 'the rest waits for the client');
  let bytes = 0;
  for await (const chunk of response) bytes += chunk.length;
  assert.equal(bytes, pieces * piece.length);
});

test('an owner that does not read holds back the client', OPTIONS, async () => {
  const { promise: reading, resolve: read } = Promise.withResolvers<void>();
  const { promise: held, resolve: hold } = Promise.withResolvers<void>();
  await using opened = await openPair((exchange) => {
    hold();
    void reading.then(async () => exchange.outgoing.end(`${(await bodyOf(exchange)).length}`));
  });
  const total = 64 * 1_048_576;
  const sent = request(opened.url, { method: 'POST' });
  const answered = once(sent, 'response');
  let taken = 0;
  const piece = Buffer.alloc(65_536);
  const { promise: blocked, resolve: block } = Promise.withResolvers<void>();
  const write = () => {
    while (taken < total) {
      taken += piece.length;
      if (!sent.write(piece)) return block();
    }
    return sent.end();
  };
  sent.on('drain', write);
  write();
  await Promise.all([held, blocked]);
  // Another request shows that the connection between the replicas has handled all that came before.
  const other = fetch(opened.url);
  read();
  await (await other).text();
  const [response] = await answered;
  assert.equal(await text(response), String(total));
});

test('the owner sees that a client has gone', OPTIONS, async () => {
  const events: string[] = [];
  await using opened = await openPair(({ incoming, outgoing }) => {
    outgoing.on('close', () => void events.push('response'));
    incoming.on('close', () => void events.push('request'));
    outgoing.writeHead(200);
    outgoing.flushHeaders();
  });
  const { close } = await get(opened.url);
  close();
  await waitUntil(() => events.length === 2);
  await waitUntil(() => opened.outcomes.length === 1);
  assert.deepEqual(opened.outcomes, ['abandoned']);
});

test('a connection that breaks leaves an answered part broken, and the rest unknown', OPTIONS, async () => {
  let waiting = 0;
  await using opened = await openPair(({ outgoing }, { target }) => {
    waiting++;
    if (target !== '/mcp/begun') return;
    outgoing.writeHead(200);
    outgoing.write('begun');
  });
  const begun = await get(`${opened.url}/begun`);
  const unknown = fetch(opened.url, { method: 'POST', body: '{}' });
  await waitUntil(() => waiting === 2);
  opened.relay.cut();
  const response = await unknown;
  assert.equal(response.status, 502);
  assert.match(await response.text(), /"code":"outcome-unknown","executed":"unknown"/);
  await assert.rejects(text(begun.response));
  assert.deepEqual(opened.outcomes, ['broken', 'broken']);
});

test('a response that its owner destroys is broken for the client', OPTIONS, async () => {
  await using opened = await openPair(({ outgoing }, { target }) => {
    if (target === '/mcp/begun') outgoing.write('begun');
    outgoing.destroy();
  });
  const { response } = await get(`${opened.url}/begun`);
  await assert.rejects(text(response));
  const unknown = await fetch(opened.url);
  assert.match(await unknown.text(), /"executed":"unknown"/);
});

const REFUSALS: Readonly<Record<string, number>> = { '/mcp/moved': MISDIRECTED, '/mcp/gone': GONE };

test('a request that is not accepted was not executed', OPTIONS, async (t) => {
  const time = stopTime(t);
  await using opened = await openPair((exchange, { target }) => exchange.refuse(REFUSALS[target] ?? 503));
  for (const url of [opened.url, `${opened.url}/moved`, `${opened.url}/gone`]) {
    const response = await fetch(url, { method: 'POST', body: '{}' });
    assert.equal(response.status, 503);
    assert.match(await response.text(), /"executed":"no","retryable":true/);
  }
  assert.deepEqual(opened.outcomes, ['refused', 'misdirected', 'misdirected']);
  // The process that answered is not the one that has the session, so that the next requests wait for its lease.
  assert.equal((await fetch(opened.url, { method: 'POST', body: '{}' })).status, 599);
  assert.deepEqual(opened.outcomes, ['refused', 'misdirected', 'misdirected', 'unreachable']);
  time.pass(5_000);
  assert.equal((await time.passUntil(fetch(opened.url, { method: 'POST', body: '{}' }), 100)).status, 503);
});

test('a request whose principal has too many claims for a frame fails alone', OPTIONS, async () => {
  const { promise: finishing, resolve: finish } = Promise.withResolvers<void>();
  const seen: string[] = [];
  const withClaims = (bytes: number): Principal => ({ ...ANNA, claims: { groups: 'x'.repeat(bytes) } });
  const [large, fitting] = [withClaims(262_144), withClaims(261_000)];
  await using opened = await openPair(
    ({ outgoing }, { target, principal }) => {
      seen.push(target);
      if (target === '/mcp') void finishing.then(() => outgoing.end('slow'));
      else outgoing.end(JSON.stringify(principal.claims));
    },
    'files',
    (path) => (path === '/mcp/large' ? large : path === '/mcp/fitting' ? fitting : ANNA),
  );
  const slow = fetch(opened.url);
  await waitUntil(() => seen.length > 0);
  for (const init of [{ method: 'POST', body: '{}' }, { method: 'GET' }]) {
    const refused = await fetch(`${opened.url}/large`, init);
    assert.equal(refused.status, 502);
    const { error } = JSON.parse(await refused.text());
    assert.deepEqual(error.data, { code: 'too-large', executed: 'no', retryable: false });
    assert.match(error.message, /token claims and headers are too large .*; use a token with fewer claims$/);
  }

  const caller: ModernCaller = {
    principal: large,
    view: 'files',
    revision: '2026-07-28',
    capabilities: RawObject.EMPTY,
    logLevel: undefined,
  };
  const sink = { receivedMs: 0, send: () => assert.fail('message'), answer: () => assert.fail('answer') };
  const modern = { kind: 'request', id: '1', method: 'tasks/get', params: undefined } as const;
  const errors: unknown[] = [];
  opened.owner.handleModernRequest(modern, caller, sink, (error) => errors.push(error?.code, error?.executed));
  await waitUntil(() => errors.length > 0);
  assert.deepEqual(errors, ['too-large', 'no']);
  const cancelled = { kind: 'notification', method: 'notifications/cancelled', params: undefined } as const;
  void opened.owner.handleMessage({ id: 's', caller }, cancelled);

  assert.equal(await (await fetch(`${opened.url}/fitting`)).text(), JSON.stringify(fitting.claims));
  finish();
  assert.equal(await (await slow).text(), 'slow', 'the channel was not closed');
  assert.deepEqual(seen, ['/mcp', '/mcp/fitting']);
  assert.deepEqual(opened.outcomes, ['refused', 'refused', 'refused', 'answered', 'answered']);
});

test('a replica that is stopped gets no request', OPTIONS, async (t) => {
  const time = stopTime(t);
  const seen: string[] = [];
  await using opened = await openPair(({ outgoing }, { target }) => {
    seen.push(target);
    outgoing.end();
  });
  await (await fetch(`${opened.url}/1`)).text();
  opened.relay.pause();
  time.pass(150);
  assert.equal((await time.passUntil(fetch(`${opened.url}/2`), 100)).status, 599);
  assert.deepEqual(opened.unsent, ['/mcp/2']);
  opened.relay.resume();
  assert.equal((await fetch(`${opened.url}/3`)).status, 200);
  assert.deepEqual(seen, ['/mcp/1', '/mcp/3']);
});

test('no replica at the address: nothing is sent, and a later one is found', OPTIONS, async () => {
  await using opened = await openPair(({ outgoing }) => outgoing.end());
  opened.relay.cut();
  assert.equal((await fetch(opened.url)).status, 599);
  opened.relay.restore();
  assert.equal((await fetch(opened.url)).status, 200);
  assert.deepEqual(opened.outcomes, ['unreachable', 'answered']);
});

// SEC-30
test('after a rotation new requests use the new key, and old ones finish', OPTIONS, async () => {
  const { promise: finishing, resolve: finish } = Promise.withResolvers<void>();
  const seen: string[] = [];
  await using opened = await openPair(({ outgoing }, { target }) => {
    seen.push(target);
    if (target === '/mcp/new') outgoing.end('new');
    else void finishing.then(() => outgoing.end('old'));
  });
  const old = freshKey(Date.now());
  opened.keys.update([old]);
  const before = fetch(`${opened.url}/old`);
  await waitUntil(() => seen.length === 1);
  opened.keys.update(withFreshKey([old], Date.now(), 60_000));
  assert.equal(await (await fetch(`${opened.url}/new`)).text(), 'new');
  await waitUntil(() => opened.relay.connections === 2);
  finish();
  assert.equal(await (await before).text(), 'old');
  await waitUntil(() => opened.relay.connections === 1);
});

/** Starts a pair whose replicas both have one key, and returns a ring with another one after it, which is valid for `graceMs` longer. */
async function openRotating(graceMs: number) {
  const sending = new InternalKeys();
  const opened = await openPair(({ outgoing }) => outgoing.end('answer'), 'files', undefined, sending);
  const old = freshKey(Date.now());
  for (const keys of [sending, opened.keys]) keys.update([old]);
  return { opened, sending, ring: withFreshKey([old], Date.now(), graceMs) };
}

const answerOf = async (url: string): Promise<string> => await (await fetch(url)).text();

// SEC-30
test('a replica that does not know a new key yet is reached with the old one', OPTIONS, async (t) => {
  for (const isConnected of [true, false]) {
    const { opened, sending, ring } = await openRotating(60_000);
    await using _opened = opened;
    if (isConnected) assert.equal(await answerOf(opened.url), 'answer');
    sending.update(ring);
    const answers = await Promise.all([1, 2, 3].map(() => answerOf(opened.url)));
    assert.deepEqual(answers, ['answer', 'answer', 'answer']);
    opened.keys.update(ring);
    // The key of the connection of a request is checked with each request.
    const { mock } = t.mock.method(opened.keys, 'find');
    await waitUntil(async () => {
      assert.equal(await answerOf(opened.url), 'answer');
      return mock.calls.at(-1)?.arguments[0] === ring.at(-1)?.kid;
    });
    await waitUntil(() => opened.relay.connections === 1);
    mock.restore();
  }
});

// SEC-30
test('a replica that is asked for an unknown key reads it, and the request goes on', OPTIONS, async () => {
  const { opened, sending, ring } = await openRotating(0);
  await using _opened = opened;
  assert.equal(await answerOf(opened.url), 'answer');
  let asked = 0;
  opened.keys.onUnknown = () => {
    asked++;
    setImmediate(() => opened.keys.update(ring));
  };
  sending.update(ring);
  assert.equal(await answerOf(opened.url), 'answer');
  assert.equal(asked, 1);
});

// SEC-45
test('a connection whose key has ended sends nothing more, and gets earlier answers', OPTIONS, async () => {
  const { promise: finishing, resolve: finish } = Promise.withResolvers<void>();
  const handled: string[] = [];
  await using opened = await openPair(({ outgoing }, { target }) => {
    handled.push(target);
    if (target === '/mcp') outgoing.end();
    else void finishing.then(() => outgoing.end('slow'));
  });
  const owner = new InternalKeys();
  const old = freshKey(Date.now());
  owner.update([old]);
  opened.keys.update([old]);
  const remote = new RemoteOwner(
    { id: 'owner', process: 'p', address: `127.0.0.1:${opened.relay.port}`, version: '1' },
    owner,
    { countForwarded: () => undefined },
  );
  const front = createServer((incoming, outgoing) => void remote.forward(incoming, outgoing, ANNA, ''));
  front.listen(0, '127.0.0.1');
  await once(front, 'listening');
  const address = front.address();
  const url = typeof address === 'object' && address !== null ? `http://127.0.0.1:${address.port}/mcp` : '';
  try {
    assert.equal((await fetch(url)).status, 200);
    const slow = fetch(`${url}/slow`);
    await waitUntil(() => handled.length === 2);
    const ring = [freshKey(Date.now())];
    opened.keys.update(ring);
    const refused = await fetch(url);
    assert.equal(refused.status, 503);
    assert.match(await refused.text(), /"executed":"no"/);
    assert.deepEqual(handled, ['/mcp', '/mcp/slow']);
    // It is asked for the old key at the next connection, and reads the ring.
    owner.onUnknown = () => owner.update(ring);
    assert.equal((await fetch(url)).status, 200);
    finish();
    assert.equal(await (await slow).text(), 'slow');
  } finally {
    remote.destroy();
    front.closeAllConnections();
    front.close();
  }
});
