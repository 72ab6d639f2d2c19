import assert from 'node:assert/strict';
import dns, { type LookupAddress } from 'node:dns';
import { syncBuiltinESMExports } from 'node:module';
import { test } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { guardedConnector } from '../../src/egress/guarded-connector.ts';
import { sharing } from '../../src/http1/lookup.ts';
import { WirePool } from '../../src/http1/pool.ts';
import { RequestHead } from '../../src/http1/request.ts';
import { TlsWire } from '../../src/http1/tls.ts';
import { openTunnel } from '../../src/http1/tunnel.ts';
import type { Wire } from '../../src/http1/wire.ts';
import { PATIENCE_MS } from '../support/patience.ts';

type Answer = PromiseWithResolvers<readonly LookupAddress[]>;

const ADDRESSES = [{ address: '192.0.2.1', family: 4 }];

/** A system whose answers the test gives. */
function system() {
  const asked: { readonly host: string; readonly answer: Answer }[] = [];
  const resolve = sharing((host) => {
    const answer: Answer = Promise.withResolvers();
    asked.push({ host, answer });
    return answer.promise;
  });
  return { resolve, asked, hosts: () => asked.map(({ host }) => host) };
}

test('a name without an answer is looked up once, however often it is needed', async () => {
  const { resolve, asked, hosts } = system();
  const waiting = [resolve('hangs.test'), resolve('hangs.test'), resolve('other.test'), resolve('hangs.test')];
  assert.deepEqual(hosts(), ['hangs.test', 'other.test']);
  for (const { answer } of asked) answer.resolve(ADDRESSES);
  assert.deepEqual(
    await Promise.all(waiting),
    Array.from(waiting, () => ADDRESSES),
  );
});

test('a name is looked up again after its answer', async () => {
  const { resolve, asked, hosts } = system();
  const failing = [resolve('moves.test'), resolve('moves.test')];
  asked[0]?.answer.reject(new Error('EAI_AGAIN'));
  for (const one of failing) await assert.rejects(one, /EAI_AGAIN/);
  const again = resolve('moves.test');
  asked[1]?.answer.resolve(ADDRESSES);
  assert.deepEqual(await again, ADDRESSES);
  void resolve('moves.test');
  assert.deepEqual(hosts(), ['moves.test', 'moves.test', 'moves.test']);
});

/** Sends one request. Resolves when it has failed. */
function failed(wire: Wire): Promise<void> {
  const head = new RequestHead('GET', 'a', '/', []);
  return new Promise((resolve) => {
    const ignore = () => undefined;
    const onResponseError = () => resolve();
    const handler = { onRequestStart: ignore, onResponseStart: ignore, onResponseData: ignore, onResponseEnd: ignore };
    wire.dispatch({ head, body: undefined, headersMs: 0, bodyMs: 0 }, { ...handler, onResponseError });
  });
}

const plain = new WirePool(new URL('http://plain.test'), PATIENCE_MS);
const secure = new TlsWire(new URL('https://secure.test'), PATIENCE_MS);
const guarded = guardedConnector('configured');

for (const [name, connect] of Object.entries({
  'plain.test': () => failed(plain),
  'secure.test': () => failed(secure),
  'proxy.test': () => openTunnel({ url: 'http://proxy.test', connectMs: PATIENCE_MS }, 'server.test', 443),
  'issuer.test': () => {
    const to = { hostname: 'issuer.test', host: 'issuer.test', protocol: 'https:', port: '' };
    return new Promise<void>((resolve) => guarded(to, () => resolve()));
  },
})) {
  test(`two connections to ${name} look its name up once`, { timeout: 120_000 }, async (t) => {
    const asked: string[] = [];
    const unanswered: ((error: Error) => void)[] = [];
    t.mock.method(dns, 'lookup', (host: string, _options: unknown, answer: (error: Error) => void) => {
      asked.push(host);
      unanswered.push(answer);
    });
    syncBuiltinESMExports();
    const connecting = [connect(), connect()];
    for (let turn = 0; turn < 10; turn++) await nextTurn();
    t.mock.reset();
    syncBuiltinESMExports();
    for (const answer of unanswered) answer(new Error('ENOTFOUND'));
    await Promise.allSettled(connecting);
    assert.deepEqual(asked, [name]);
  });
}
