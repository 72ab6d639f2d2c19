import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Hono } from 'hono';
import { Agent } from 'undici';
import { Listener } from '../../src/compose/listener.ts';

const TIMEOUT = { timeout: 20_000 };

function answering(text: string) {
  return { app: new Hono().get('/', (c) => c.text(text)) };
}

test('a replaced handler gets no further request, even on an open connection', TIMEOUT, async () => {
  const listener = await Listener.open({ host: '127.0.0.1', port: 0 }, 'test', () => answering('first'));
  const agent = new Agent({ connections: 1 });
  const ask = async () => {
    const { body } = await agent.request({ origin: listener.origin, path: '/', method: 'GET' });
    return await body.text();
  };
  try {
    assert.equal(await ask(), 'first');
    listener.handler = answering('second');
    assert.equal(await ask(), 'second');
  } finally {
    await agent.destroy();
    await listener.close();
  }
});

test('a retired listener closes idle connections, and busy ones when the drain is over', TIMEOUT, async () => {
  const arrived = Promise.withResolvers<undefined>();
  const app = new Hono();
  app.get('/', (c) => c.text('done'));
  app.get('/never', () => {
    arrived.resolve(undefined);
    return new Promise<Response>(() => undefined);
  });
  const idle = new Agent({ connections: 1, keepAliveTimeout: 60_000 });
  const busy = new Agent({ connections: 1 });
  const [first, second] = [
    await Listener.open({ host: '127.0.0.1', port: 0 }, 'test', () => ({ app })),
    await Listener.open({ host: '127.0.0.1', port: 0 }, 'test', () => ({ app })),
  ];
  try {
    const { body } = await idle.request({ origin: first.origin, path: '/', method: 'GET' });
    await body.text();
    await first.retire(3_600_000);

    const refused = assert.rejects(busy.request({ origin: second.origin, path: '/never', method: 'GET' }));
    await arrived.promise;
    await second.retire(10);
    await refused;
  } finally {
    await Promise.all([idle.destroy(), busy.destroy()]);
  }
});
