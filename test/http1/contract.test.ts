import assert from 'node:assert/strict';
import { after, test } from 'node:test';

import { type LimitName, LIMITS } from '../../src/limits.ts';
import { DISTRUST_MS } from '../../src/http1/distrust.ts';
import type { Wire, WireController } from '../../src/http1/wire.ts';
import { WirePool } from '../../src/http1/pool.ts';
import { TlsWire } from '../../src/http1/tls.ts';
import { startConnectProxy } from '../support/connect-proxy.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { stopTime } from '../support/stopped-time.ts';
import { ask, closed, holds, line, ok } from '../support/wire.ts';

const LIMIT = { timeout: 120_000 };
const INTERIM = 'HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n';

/** Resolves after a turn of the event loop: undici releases a socket only after onResponseEnd. */
const turn = () =>
  new Promise<void>((resolve) => {
    setImmediate(resolve);
  });

type OnLimit = (limit: LimitName) => void;

function wireContract(name: string, connect: (url: URL, onLimit?: OnLimit) => Wire): void {
  test(`${name}: successive requests share a socket`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('hello', 'X-One: a', 'x-one: b')));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    for (let n = 0; n < 2; n++) {
      const asked = ask(wire, { headers: ['x-test', 'y'] });
      const { status, headers, body } = await asked.answer;
      assert.equal(status, 200);
      assert.deepEqual(headers['x-one'], ['a', 'b']);
      assert.equal(body.toString(), 'hello');
      assert.deepEqual(asked.events, ['start', 'response 200', 'data', 'end']);
      // undici releases the socket only after onResponseEnd.
      await new Promise((resolve) => {
        setImmediate(resolve);
      });
    }
    assert.equal(to.sockets.length, 1);
    assert.match(
      to.received[0] ?? '',
      /^POST \/mcp HTTP\/1.1\r\n(?:.+\r\n)*x-test: y\r\ncontent-length: 2\r\n\r\n\{\}POST/,
    );
    await wire.destroy();
  });

  test(`${name}: white space around the value of a header is no part of it`, LIMIT, async () => {
    await using to = await line((socket) =>
      socket.write(ok('x', 'X-One: \t a b \t', 'X-Two: c ', 'X-Two: d\t', 'X-Three: ')),
    );
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const { headers } = await ask(wire).answer;
    assert.deepEqual([headers['x-one'], headers['x-two'], headers['x-three']], ['a b', ['c', 'd'], '']);
    await wire.destroy();
  });

  test(`${name}: an abort closes the socket, and onResponseEnd is not called`, LIMIT, async () => {
    const { promise: received, resolve } = Promise.withResolvers<void>();
    await using to = await line(() => resolve());
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const asked = ask(wire, { method: 'GET' });
    await received;
    asked.abort();
    await closed(to.sockets[0] ?? assert.fail());
    assert.ok(!asked.events.includes('end'));
    await wire.destroy();
  });

  test(`${name}: a request refused in onRequestStart is not written, socket reused`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('x')));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const onRequestStart = () => {
      throw new Error('too late');
    };
    assert.equal((await ask(wire, { body: '{"not":"sent"}', on: { onRequestStart } }).failure).message, 'too late');
    await ask(wire).answer;
    assert.equal(to.sockets.length, 1);
    assert.ok(!to.received.join('').includes('not'));
    await wire.destroy();
  });

  for (const [how, judge] of [
    ['aborts', (controller: WireController) => controller.abort(new Error('no answer'))],
    [
      'throws',
      () => {
        throw new Error('no answer');
      },
    ],
  ] as const) {
    // N-20
    test(`${name}: a handler that ${how} at the end prevents the reuse of the socket`, LIMIT, async () => {
      await using to = await line((socket) => socket.write(ok('x')));
      const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
      const { promise: judged, resolve } = Promise.withResolvers<void>();
      ask(wire, {
        on: {
          onResponseEnd: (controller) => {
            resolve();
            judge(controller);
          },
        },
      });
      await judged;
      await ask(wire).answer;
      assert.equal(to.sockets.length, 2);
      await closed(to.sockets[0] ?? assert.fail());
      await wire.destroy();
    });
  }

  // N-29
  test(`${name}: reading continues after a pause, and the socket is reused`, LIMIT, async () => {
    const pieces = 200;
    const piece = 'x'.repeat(10_000);
    await using to = await line((socket) => socket.write(ok(piece.repeat(pieces))));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const pauseMs = 20;
    let pauses = 0;
    let untilMs = 0;
    const onResponseData = (controller: WireController) => {
      assert.ok(performance.now() >= untilMs, 'reads nothing in a pause');
      if (pauses === 3) return;
      pauses++;
      // Timers fire up to a millisecond early.
      untilMs = performance.now() + pauseMs - 1;
      assert.equal(controller.pause(pauseMs), true);
      assert.equal(controller.pause(pauseMs), false);
    };
    const { body } = await ask(wire, { bodyMs: PATIENCE_MS, on: { onResponseData } }).answer;
    assert.equal(body.length, pieces * piece.length);
    assert.equal(pauses, 3);
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    await ask(wire).answer;
    assert.equal(to.sockets.length, 1);
    await wire.destroy();
  });

  // N-29
  test(`${name}: a response that ends during a pause ends its request`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('hello')));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const onResponseData = (controller: WireController) => assert.equal(controller.pause(50), true);
    const { body } = await ask(wire, { on: { onResponseData } }).answer;
    assert.equal(body.toString(), 'hello');
    await wire.destroy();
  });

  // REL-23
  test(`${name}: a held response is read on after resume, and its socket is reused`, LIMIT, async (t) => {
    const time = stopTime(t);
    const piece = 'x'.repeat(10_000);
    const pieces = 200;
    await using to = await line((socket) => socket.write(ok(piece.repeat(pieces))));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    let holds = 0;
    let isHeld = false;
    const onResponseData = (controller: WireController) => {
      assert.equal(isHeld, false, 'reads nothing while it is held');
      if (holds === 3) return;
      holds++;
      isHeld = true;
      controller.hold();
      // A pause that ends earlier does not end the hold.
      if (holds === 2) assert.equal(controller.pause(5), true);
      setImmediate(() => {
        // The server is not silent: nobody reads what it sends.
        time.pass(1_000);
        setImmediate(() => {
          isHeld = false;
          controller.resume();
        });
      });
    };
    const { body } = await ask(wire, { bodyMs: 500, on: { onResponseData } }).answer;
    assert.equal(body.length, pieces * piece.length);
    assert.equal(holds, 3);
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    await ask(wire).answer;
    assert.equal(to.sockets.length, 1);
    await wire.destroy();
  });

  // REL-23
  test(`${name}: a held request can be aborted`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('x'.repeat(2_000_000))));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const onResponseData = (controller: WireController) => {
      controller.hold();
      setImmediate(() => {
        controller.abort(new Error('aborted by the test'));
        controller.resume();
      });
    };
    ask(wire, { on: { onResponseData } });
    await new Promise((resolve) => {
      to.server.once('connection', resolve);
    });
    await closed(to.sockets[0] ?? assert.fail());
    await wire.destroy();
  });

  // N-20
  test(`${name}: a GET does not get the socket of a POST`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('x')));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    await ask(wire).answer;
    await new Promise((resolve) => {
      setImmediate(resolve);
    });
    await ask(wire, { method: 'GET' }).answer;
    assert.equal(to.sockets.length, 2);
    await wire.destroy();
  });

  // N-76
  test(`${name}: a byte of no response ends the reuse of sockets for a minute`, LIMIT, async (t) => {
    const time = stopTime(t);
    let isFaulty = true;
    await using to = await line((socket, soFar) => {
      // The byte follows the response before, and comes when the next request is written already.
      if (isFaulty && !holds(soFar, 1)) socket.write('x');
      else socket.write(ok('x'));
    });
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const answered = async () => {
      const { body } = await ask(wire).answer;
      await turn();
      return body.toString();
    };
    assert.equal(await answered(), 'x');
    const failed = ask(wire);
    await failed.failure;
    assert.deepEqual(failed.events, ['start', 'error']);
    assert.equal(to.sockets.length, 1);
    for (let n = 0; n < 3; n++) assert.equal(await answered(), 'x');
    assert.equal(to.sockets.length, 4);
    isFaulty = false;
    time.pass(DISTRUST_MS);
    for (let n = 0; n < 3; n++) await answered();
    // undici may use each of its clients once before it uses one again.
    assert.ok(to.sockets.length < 7, 'no socket was reused');
    await wire.destroy();
  });

  // N-76
  test(`${name}: a byte of no response on one socket closes the other idle ones`, LIMIT, async () => {
    await using to = await line((socket) => socket.write(ok('x')));
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    await Promise.all([ask(wire), ask(wire), ask(wire)].map(({ answer }) => answer));
    await turn();
    const [faulty = assert.fail()] = to.sockets;
    faulty.write('x');
    await closed(faulty);
    await ask(wire).answer;
    assert.equal(to.sockets.length, 4);
    assert.ok(to.received.every((text) => holds(text, 1)));
    await Promise.all(to.sockets.map(closed));
    await wire.destroy();
  });

  const longHead = (bytes: number) => ok('x', `x-long: ${'y'.repeat(bytes)}`);
  const interimFirst = (count: number) => `${INTERIM.repeat(count)}${ok('x')}`;
  for (const { title, limit, answer } of [
    { title: 'limit responseHeadBytes', limit: 'responseHeadBytes', answer: longHead },
    { title: 'limit interimResponses', limit: 'interimResponses', answer: interimFirst },
  ] as const) {
    // N-29
    test(`${title}: ${name} fails the request, and closes its socket`, LIMIT, async () => {
      // Heads have a few other bytes.
      const most = limit === 'responseHeadBytes' ? LIMITS[limit] - 200 : LIMITS[limit];
      await using to = await line((socket, soFar) => {
        socket.write(answer(soFar.includes('"much"') ? LIMITS[limit] + 1 : most));
      });
      const reached: LimitName[] = [];
      const wire = connect(new URL(`http://127.0.0.1:${to.port}`), (one) => reached.push(one));
      assert.equal((await ask(wire).answer).body.toString(), 'x');
      assert.deepEqual(reached, []);
      await ask(wire, { body: '{"much":1}' }).failure;
      assert.deepEqual(reached, [limit]);
      await closed(to.sockets.at(-1) ?? assert.fail());
      await wire.destroy();
    });
  }

  test(`${name}: destroy() fails requests in flight, and later ones fail as not sent`, LIMIT, async () => {
    const { promise: received, resolve } = Promise.withResolvers<void>();
    await using to = await line(() => resolve());
    const wire = connect(new URL(`http://127.0.0.1:${to.port}`));
    const asked = ask(wire);
    await received;
    await wire.destroy();
    await asked.failure;
    assert.deepEqual(asked.events, ['start', 'error']);
    const late = ask(wire);
    await late.failure;
    assert.deepEqual(late.events, ['error']);
    await closed(to.sockets[0] ?? assert.fail());
  });
}

wireContract('WirePool', (url, onLimit) => new WirePool(url, 2_000, onLimit));
// TlsWire supports plain HTTP as well, so this test needs no certificate.
wireContract('TlsWire', (url, onLimit = () => undefined) => new TlsWire(url, 2_000, { onLimit }));

const proxy = await startConnectProxy();
wireContract('tunnel', (url, onLimit = () => undefined) => {
  return new TlsWire(url, 2_000, { proxy: `http://127.0.0.1:${proxy.port}`, onLimit });
});
after(() => proxy[Symbol.asyncDispose]());
