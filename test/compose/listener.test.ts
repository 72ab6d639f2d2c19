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
