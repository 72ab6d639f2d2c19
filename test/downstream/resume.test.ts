import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BY_NAME, startEdge } from './edge.ts';
import { getEvents, initialize, post, postForEvents, rpc, send } from './client.ts';
import { HonestFront } from './honest-front.ts';
import { usedBytes } from '../support/used-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

function upTo(count: number): number[] {
  return Array.from({ length: count }, (_, i) => i + 1);
}

/** Returns pseudo-random numbers below `limit`, the same in every run. */
function dice(seed: number): (limit: number) => number {
  let state = seed;
  return (limit) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return (state >>> 12) % limit;
  };
}

// REL-19
test('a stream that is cut 200 times arrives without gaps or duplicates', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const roll = dice(20_261_121);
  let cuts = 0;
  for (let call = 1; cuts < 200; call++) {
    const gate = `gate-${call}`;
    let events = await postForEvents(url, rpc(call, 'count', { to: 40, gate }), id);
    const numbers: unknown[] = [];
    let lastId = '';
    for (;;) {
      const enough = 1 + roll(12);
      await events.until(({ seen }) => seen.length >= enough || numbers.length + events.numbers.length === 40);
      const isLast = roll(6) === 0;
      if (isLast) edge.front.release(gate);
      else events.close();
      await events.ended();
      // Simulates that later events were lost with the connection.
      if (!isLast) events.seen.length = (lastId === '' ? 1 : 0) + roll(events.seen.length);
      numbers.push(...events.numbers);
      if (isLast) break;
      cuts++;
      lastId = events.lastId === '' ? lastId : events.lastId;
      events = await getEvents(url, id, { 'last-event-id': lastId });
    }
    const answers = events.messages.filter((message) => 'result' in message);
    assert.deepEqual(numbers, upTo(40), `call ${call}`);
    assert.deepEqual(answers, [{ jsonrpc: '2.0', id: call, result: { counted: 40 } }]);
  }
});

// T-030
test('an answer during a disconnect is delivered when the stream is resumed', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const first = await postForEvents(url, rpc(1, 'count', { to: 2, gate: 'g' }), id);
  await first.until(({ numbers }) => numbers.length === 2);
  first.close();
  await first.ended();
  edge.front.release('g');
  await waitUntil(() => edge.front.finished.length > 0);

  const [primed, one] = first.seen;
  const again = await (await getEvents(url, id, { 'last-event-id': one?.id ?? '' })).ended();
  assert.deepEqual(again.numbers, [2]);
  assert.deepEqual(again.messages.at(-1)?.result, { counted: 2 });
  // Repeated resumption is allowed.
  const whole = await (await getEvents(url, id, { 'last-event-id': primed?.id ?? '' })).ended();
  assert.deepEqual(whole.numbers, [1, 2]);
  assert.equal(whole.messages.at(-1)?.id, 1);
});

// T-028
test('a resumed stream carries only its own events', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const listening = await getEvents(url, id);
  const calls = await Promise.all(
    ['a', 'b', 'c'].map(async (name) => await postForEvents(url, rpc(name, 'count', { to: 10, gate: 'g' }), id)),
  );
  for (const call of calls) {
    await call.until(({ numbers }) => numbers.length === 10);
    call.close();
    await call.ended();
  }
  edge.front.own(id).notify(77);
  await listening.until(({ numbers }) => numbers.length === 1);
  listening.close();
  await listening.ended();
  edge.front.release('g');
  for (const [n, call] of calls.entries()) {
    const again = await (await getEvents(url, id, { 'last-event-id': call.seen[3 + n]?.id ?? '' })).ended();
    assert.deepEqual(again.numbers, upTo(10).slice(3 + n));
    assert.equal(again.messages.at(-1)?.id, 'abc'[n]);
  }
});

test('the GET stream is resumed too, and continues', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url, '2025-03-26');
  const first = await getEvents(url, id);
  for (const n of upTo(5)) edge.front.own(id).notify(n);
  await first.until(({ numbers }) => numbers.length === 5);
  first.close();
  await first.ended();
  await waitUntil(() => edge.front.own(id).sink === undefined);
  edge.front.own(id).notify(6);

  const again = await getEvents(url, id, { 'last-event-id': first.seen[2]?.id ?? '' });
  edge.front.own(id).notify(7);
  await again.until(({ numbers }) => numbers.length === 4);
  assert.deepEqual(again.numbers, [4, 5, 6, 7]);
  again.close();
});

test('a new GET stream replaces the previous one, which ends', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  let open = await getEvents(url, id);
  for (const n of upTo(10)) {
    const next = await getEvents(url, id);
    await open.ended();
    edge.front.own(id).notify(n);
    await next.until(({ numbers }) => numbers.length === 1);
    assert.deepEqual(next.numbers, [n]);
    open = next;
  }
  open.close();
  await open.ended();
  await waitUntil(() => edge.front.own(id).sink === undefined);
  assert.match(await edge.metrics.text(), /^linkspan_streams\{kind="get"\} 0$/m);
});

test('a stream resumed while its old connection is open moves to the new one', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const old = await postForEvents(url, rpc(1, 'count', { to: 3, gate: 'g' }), id);
  await old.until(({ numbers }) => numbers.length === 3);
  const moved = await getEvents(url, id, { 'last-event-id': old.seen[1]?.id ?? '' });
  await old.ended();
  edge.front.release('g');
  await moved.ended();
  assert.deepEqual(moved.numbers, [2, 3]);
  assert.equal(moved.messages.at(-1)?.id, 1);
  assert.ok(old.messages.every((message) => !('result' in message)));
});

test('an answer lost by a restart is reported as outcome-unknown, once', OPTIONS, async () => {
  const front = new HonestFront();
  const before = await startEdge({}, undefined, front);
  const id = await initialize(`${before.url}/mcp`);
  const cut = await postForEvents(`${before.url}/mcp`, rpc('call "7"', 'count', { to: 1, gate: 'g' }), id);
  await cut.until(({ numbers }) => numbers.length === 1);
  await before[Symbol.asyncDispose]();
  await cut.ended();

  await using after = await startEdge({}, undefined, front);
  const url = `${after.url}/mcp`;
  // Stream names start again, and must differ from earlier ones.
  const other = await postForEvents(url, rpc(8, 'count', { to: 1, gate: 'g' }), id);
  await other.until(({ numbers }) => numbers.length === 1);

  const again = await (await getEvents(url, id, { 'last-event-id': cut.lastId })).ended();
  assert.deepEqual(again.numbers, []);
  const [error, ...rest] = again.messages;
  assert.deepEqual(rest, []);
  assert.equal(error?.id, 'call "7"');
  assert.deepEqual(error?.error, {
    code: -31017,
    message:
      'Outcome unknown: the gateway no longer has the answer to this request; check what it did before sending it again',
    data: { code: 'outcome-unknown', executed: 'unknown', retryable: false },
  });
  front.release('g');
  await other.ended();
  assert.equal(other.messages.at(-1)?.id, 8);
});

for (const lastId of ['nonsense', 'a.1', '', 'a.1.bm90IGFuIGlk', '../../x', 'x'.repeat(300)]) {
  test(
    `a GET after the unknown event ${JSON.stringify(lastId.slice(0, 20))} opens the GET stream`,
    OPTIONS,
    async () => {
      await using edge = await startEdge();
      const url = `${edge.url}/mcp`;
      const id = await initialize(url);
      const events = await getEvents(url, id, { 'last-event-id': lastId });
      assert.equal(events.status, 200);
      edge.front.own(id).notify(1);
      await events.until(({ numbers }) => numbers.length === 1);
      events.close();
    },
  );
}

// S-001 S-003
test('events of one session reach neither another session nor another user', OPTIONS, async () => {
  await using edge = await startEdge({}, BY_NAME);
  const url = `${edge.url}/mcp`;
  const users = ['alice', 'bob', 'carol'].map((name) => ({ authorization: `Bearer ${name}` }));
  const owners = [...users, ...users];
  const sessions = await Promise.all(owners.map((headers) => initialize(url, '2025-11-25', headers)));
  const cut = await Promise.all(
    sessions.map(async (id, n) => {
      const events = await postForEvents(url, rpc(`secret-${n}`, 'count', { to: 5, gate: 'g' }), id, owners[n]);
      await events.until(({ numbers }) => numbers.length === 5);
      events.close();
      return await events.ended();
    }),
  );
  edge.front.release('g');
  for (const [n, events] of cut.entries()) {
    for (const [m, id] of sessions.entries()) {
      for (const user of users) {
        const isOwner = user.authorization === owners[m]?.authorization;
        const got = await getEvents(url, id, { ...user, 'last-event-id': events.seen[2]?.id ?? '' });
        if (!isOwner) {
          assert.equal(got.status, 404);
          got.close();
          continue;
        }
        assert.equal(got.status, 200);
        if (n === m) {
          await got.ended();
          assert.deepEqual(got.numbers, [3, 4, 5]);
          assert.ok('result' in (got.messages.at(-1) ?? {}));
        } else {
          // An event id of another session is unknown here: it opens a new stream, without replay and without an error
          // for its request.
          await got.until(({ seen }) => seen.length === 1);
          assert.deepEqual(got.messages, []);
          got.close();
        }
      }
    }
  }
});

// N-43 N-33
test('an event id of another session opens a new stream without answers', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const [own, other] = [await initialize(url), await initialize(url)];
  const theirs = await (await postForEvents(url, rpc(7, 'count', { to: 2 }), other)).ended();
  const call = await postForEvents(url, rpc(7, 'count', { to: 1, gate: 'g' }), own);
  await call.until(({ numbers }) => numbers.length === 1);
  const got = await getEvents(url, own, { 'last-event-id': theirs.seen[0]?.id ?? '' });
  assert.equal(got.status, 200);
  edge.front.own(own).notify(9);
  await got.until(({ numbers }) => numbers.length === 1);
  assert.deepEqual(got.numbers, [9]);
  assert.ok(got.messages.every((message) => message.id === undefined));
  got.close();
  edge.front.release('g');
  await call.ended();
  assert.deepEqual(call.messages.at(-1)?.result, { counted: 1 });
});

test('a finished stream that was received completely is not resumed', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const listening = await getEvents(url, id);
  const call = await (await postForEvents(url, rpc(1, 'count', { to: 2 }), id)).ended();
  const again = await send(url, {
    headers: { accept: 'text/event-stream', 'mcp-session-id': id, 'last-event-id': call.lastId },
  });
  assert.equal(again.status, 405);
  edge.front.own(id).notify(9);
  await listening.until(({ numbers }) => numbers.length === 1);
  listening.close();
});

test('kept events are bounded, and a removed answer is outcome-unknown', OPTIONS, async () => {
  await using edge = await startEdge({ sessions: { eventLimit: 20 } });
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const done = [];
  for (const n of upTo(5)) done.push(await (await postForEvents(url, rpc(n, 'count', { to: 6 }), id)).ended());
  const resumed = await Promise.all(
    done.map(async ({ seen }) => await (await getEvents(url, id, { 'last-event-id': seen[0]?.id ?? '' })).ended()),
  );
  const kept = resumed.filter(({ numbers }) => numbers.length === 6);
  assert.ok(kept.length >= 1 && kept.length <= 2);
  for (const { messages } of resumed) assert.equal(messages.filter((each) => each.id !== undefined).length, 1);
});

test('a client without event ids loses its answer; other messages go to the session', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url, '2025-06-18');
  const listening = await getEvents(url, id);
  const call = await postForEvents(url, rpc(1, 'wait', { gate: 'first' }), id);
  assert.equal(call.status, 200);
  call.close();
  await call.ended();
  edge.front.release('first');
  await waitUntil(() => edge.front.finished.length > 0);
  edge.front.own(id).notify(9);
  await listening.until(({ numbers }) => numbers.length === 1);
  assert.ok(listening.messages.every((message) => !('result' in message)));
  listening.close();
});

// R15 REL-20
test('a stalled reader loses only droppable messages, and uses little memory', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const usedBefore = usedBytes();
  const slow = await postForEvents(url, rpc(1, 'count', { to: 1, gate: 'never' }), id);
  slow.pause();
  const call = await postForEvents(url, rpc(2, 'count', { to: 15_000, pad: 4_000 }), id);
  await call.until(({ seen }) => seen.length > 0);
  call.pause();
  await waitUntil(() => edge.front.finished.length > 0);
  // The messages have 60 MB in total. Buffers are released a little later.
  await waitUntil(() => usedBytes() - usedBefore < 20 * 1_048_576);
  call.resume();
  await call.ended();
  const { numbers } = call;
  assert.ok(numbers.length < 15_000);
  assert.deepEqual(
    numbers,
    numbers.toSorted((a, b) => Number(a) - Number(b)),
  );
  assert.deepEqual(call.messages.at(-1)?.result, { counted: 15_000 });
  const [, dropped] =
    /^linkspan_dropped_messages_total\{reason="slow-client"\} (\d+)$/m.exec(await edge.metrics.text()) ?? [];
  assert.equal(Number(dropped) + numbers.length, 15_000);
  slow.close();
});

test('an answer larger than the queue reaches a slow reader completely', { timeout: 120_000 }, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  const id = await initialize(url);
  const accept = 'text/event-stream';
  const call = await postForEvents(url, rpc(1, 'big', { chars: 20_000_000 }), id, { accept });
  call.pause();
  await new Promise((resolve) => setImmediate(resolve));
  call.resume();
  await call.ended();
  assert.equal(JSON.stringify(call.messages.at(-1)?.result).length, 20_000_000 + '{"text":""}'.length);
  const json = await post(url, rpc(2, 'big', { chars: 10_000_000 }), id);
  assert.equal(JSON.parse(json.text).result.text.length, 10_000_000);
});

test('ended sessions and streams are not counted as open streams', OPTIONS, async () => {
  await using edge = await startEdge();
  const url = `${edge.url}/mcp`;
  for (let round = 0; round < 5; round++) {
    const id = await initialize(url);
    const listening = await getEvents(url, id);
    const call = await postForEvents(url, rpc(1, 'count', { to: 1, gate: `g${round}` }), id);
    await call.until(({ numbers }) => numbers.length === 1);
    const counted = await edge.metrics.text();
    for (const kind of ['get', 'post']) assert.match(counted, new RegExp(`kind="${kind}"\\} [1-9]`));
    if (round % 2 === 0) call.close();
    await send(url, { method: 'DELETE', headers: { 'mcp-session-id': id } });
    await listening.ended();
    await call.ended();
    edge.front.release(`g${round}`);
  }
  for (;;) {
    const text = await edge.metrics.text();
    if (/kind="get"\} 0$/m.test(text) && /kind="post"\} 0$/m.test(text)) break;
    await new Promise((resolve) => setImmediate(resolve));
  }
});
