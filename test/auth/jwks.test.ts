import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type ServerResponse } from 'node:http';
import { test } from 'node:test';
import { Jwks } from '../../src/auth/jwks.ts';
import { Egress } from '../../src/egress/egress.ts';
import { stopTime } from '../support/stopped-time.ts';
import { SILENT, signingKey, TestIssuer } from './issuer.ts';

const OPTIONS = { timeout: 120_000 };
const SECOND = 1_000;
const MINUTE = 60 * SECOND;

const first = await signingKey('ES256', 'first');
const second = await signingKey('ES256', 'second');
const rsa = await signingKey('RS256', 'rsa');

class Clock {
  nowMs = 5_000_000;
  readonly read = () => this.nowMs;
}

async function open() {
  const issuer = await TestIssuer.start(first);
  const clock = new Clock();
  const jwks = new Jwks(issuer.jwksUrl, { log: SILENT, egress: new Egress(), clock: clock.read });
  const kind = async (kid: string | undefined, alg = 'ES256') => (await jwks.find(alg, kid)).kind;
  return { issuer, clock, jwks, kind, [Symbol.asyncDispose]: () => issuer.stop() };
}

test('keys are fetched once for many tokens at once', OPTIONS, async () => {
  await using at = await open();
  const found = await Promise.all(Array.from({ length: 100 }, () => at.kind('first')));
  assert.deepEqual([...new Set(found)], ['keys']);
  assert.equal(at.issuer.fetches, 1);
});

test('a key id absent from keys fetched for it is not fetched again', OPTIONS, async () => {
  await using at = await open();
  assert.equal(await at.kind('made-up'), 'unknown');
  assert.equal(at.issuer.fetches, 1);
});

// R18
test('a set of keys is fetched again before it is ten minutes old', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.clock.nowMs += 8 * MINUTE;
  await at.kind('first');
  assert.equal(at.issuer.fetches, 1);
  at.clock.nowMs += 2 * MINUTE;
  await at.kind('first');
  assert.equal(at.issuer.fetches, 2);
});

// R18 REL-31
test('a new key is accepted at once', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.clock.nowMs += SECOND;
  at.issuer.keys = [first.jwk, second.jwk];
  assert.equal(await at.kind('second'), 'keys');
  assert.equal(at.issuer.fetches, 2);
});

// R18
test('a new key that many tokens name at once is accepted for all, with one fetch', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.clock.nowMs += SECOND;
  at.issuer.keys = [second.jwk];
  const found = await Promise.all(Array.from({ length: 100 }, () => at.kind('second')));
  assert.deepEqual([...new Set(found)], ['keys']);
  assert.equal(at.issuer.fetches, 2);
});

// R18
test('a withdrawn key is refused within ten minutes', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.issuer.keys = [second.jwk];
  at.clock.nowMs += 10 * MINUTE;
  assert.equal(await at.kind('first'), 'unknown');
});

// R18
test('a key that a later set does not have is unknown, and causes no fetch', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.issuer.keys = [second.jwk];
  at.clock.nowMs += 10 * MINUTE;
  assert.equal(await at.kind('second'), 'keys');
  at.clock.nowMs += SECOND;
  assert.equal(await at.kind('first'), 'unknown');
  assert.equal(at.issuer.fetches, 2);
});

// R18
test('a key that the issuer has added during a fetch is accepted', OPTIONS, async () => {
  await using at = await open();
  const before = [first.jwk];
  const held = Promise.withResolvers<ServerResponse>();
  at.issuer.answer = (_request, response) => held.resolve(response);
  const ofFirst = at.kind('first');
  const response = await held.promise;
  at.clock.nowMs += SECOND;
  const ofSecond = at.kind('second');
  at.issuer.answer = undefined;
  at.issuer.keys = [first.jwk, second.jwk];
  at.clock.nowMs += SECOND;
  response.end(JSON.stringify({ keys: before }));
  assert.deepEqual(await Promise.all([ofFirst, ofSecond]), ['keys', 'keys']);
  assert.equal(at.issuer.fetches, 2);
});

// R18 REL-31
test('ten thousand made-up key ids cost at most one fetch in thirty seconds', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  const found: string[] = [];
  for (let i = 0; i < 10_000; i++) {
    at.clock.nowMs += 5;
    found.push(await at.kind(`made-up-${i}`));
  }
  assert.equal(found.filter((kind) => kind === 'unknown').length, 2);
  assert.equal(found.filter((kind) => kind === 'withheld').length, 9_998);
  // Fetches within fifty seconds: the first, one at once, and one after thirty seconds.
  assert.equal(at.issuer.fetches, 3);
  assert.equal(await at.kind('first'), 'keys');
});

// R18
test('repeated use of one retired key id does not block a new key', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.clock.nowMs += SECOND;
  assert.equal(await at.kind('retired'), 'unknown');
  at.clock.nowMs += 30 * SECOND;
  assert.equal(await at.kind('retired'), 'unknown');
  assert.equal(at.issuer.fetches, 2, 'what is known to be absent is not asked for again so soon');
  at.issuer.keys = [first.jwk, second.jwk];
  assert.equal(await at.kind('second'), 'keys');
});

// R18
test('a new key is undecided until the fetch limit allows a fetch for it', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.clock.nowMs += SECOND;
  await at.kind('made-up');
  at.issuer.keys = [first.jwk, second.jwk];
  at.clock.nowMs += SECOND;
  assert.equal(await at.kind('second'), 'withheld');
  assert.equal(await at.kind('made-up'), 'unknown');
  at.clock.nowMs += 30 * SECOND;
  assert.equal(await at.kind('second'), 'keys');
});

// R18 REL-31
test('with the issuer down, known keys work for an hour, others are undecided', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  await at.issuer.stop();

  at.clock.nowMs += SECOND;
  assert.equal(await at.kind('second'), 'unreachable');
  assert.equal(await at.kind('first'), 'keys');
  at.clock.nowMs += 50 * MINUTE;
  assert.equal(await at.kind('first'), 'keys');
  assert.equal(await at.kind('second'), 'unreachable');
  at.clock.nowMs += 10 * MINUTE;
  assert.equal(await at.kind('first'), 'unreachable');
});

// R18
test('a failing issuer is asked ever less often, and used once it answers', OPTIONS, async () => {
  await using at = await open();
  at.issuer.answer = (_request, response) => response.writeHead(500).end('no');
  for (let i = 0; i < 600; i++) {
    assert.equal(await at.kind('first'), 'unreachable');
    at.clock.nowMs += 100;
  }
  // Fetches within one minute: after 0, 1, 3, 7, 15 and 31 seconds.
  assert.equal(at.issuer.fetches, 6);

  at.issuer.answer = undefined;
  at.clock.nowMs += 30 * SECOND;
  assert.equal(await at.kind('first'), 'keys');
  assert.equal(await at.kind('second'), 'unknown');
});

test('while the issuer hangs, known keys cause no wait', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  at.issuer.answer = (_request, response) => response.writeHead(500).end();
  at.clock.nowMs += 10 * MINUTE;
  assert.equal(await at.kind('first'), 'keys');

  const asked = Promise.withResolvers<void>();
  at.issuer.answer = () => asked.resolve();
  at.clock.nowMs += MINUTE;
  assert.equal(await at.kind('first'), 'keys', 'answered although the endpoint never does');
  await asked.promise;
});

test('a key for another algorithm is unknown, and causes no fetch', OPTIONS, async () => {
  await using at = await open();
  at.issuer.keys = [first.jwk, rsa.jwk];
  assert.equal(await at.kind('first'), 'keys');
  at.clock.nowMs += MINUTE;
  assert.equal(await at.kind('rsa', 'ES256'), 'unknown');
  assert.equal(await at.kind('first', 'RS256'), 'unknown');
  assert.equal(await at.kind('rsa', 'PS256'), 'keys');
  assert.equal(at.issuer.fetches, 1);
});

// R18 REL-31
test('a new key without an id is accepted at once, also of another algorithm', OPTIONS, async () => {
  await using at = await open();
  const [{ kid: _first, ...old }, { kid: _rsa, ...next }] = [first.jwk, rsa.jwk];
  at.issuer.keys = [old];
  assert.equal(await at.kind(undefined), 'keys');
  at.clock.nowMs += MINUTE;
  at.issuer.keys = [next];
  at.issuer.answer = (_request, response) => response.writeHead(500).end();
  assert.equal(await at.kind(undefined, 'RS256'), 'unreachable');
  at.issuer.answer = undefined;
  at.clock.nowMs += MINUTE;
  assert.equal(await at.kind(undefined, 'RS256'), 'keys');
  assert.equal(await at.kind(undefined, 'ES256'), 'unknown');
  assert.equal(at.issuer.fetches, 3);
});

test('a token without a key id is checked with every key', OPTIONS, async () => {
  await using at = await open();
  at.issuer.keys = [first.jwk, second.jwk, rsa.jwk];
  const found = await at.jwks.find('ES256', undefined);
  assert.equal(found.kind === 'keys' && found.keys.length, 2);
});

test('an unreadable key does not affect the other keys', OPTIONS, async () => {
  await using at = await open();
  const strange = [{ kty: 'XYZ', kid: 'strange' }, { kid: 'none' }, 'text', null, 7];
  at.issuer.answer = (_request, response) => response.end(JSON.stringify({ keys: [...strange, first.jwk] }));
  assert.equal(await at.kind('first'), 'keys');
  assert.equal(await at.kind('strange'), 'unknown');
});

const UNUSABLE = [
  { name: 'an error', status: 500, text: '{"keys":[]}' },
  { name: 'not found', status: 404, text: '' },
  { name: 'a set of no page', status: 404, text: '{"keys":[]}' },
  { name: 'text that is not JSON', status: 200, text: '<html>' },
  { name: 'no set', status: 200, text: '[]' },
  { name: 'null', status: 200, text: 'null' },
  { name: 'a set whose keys are no list', status: 200, text: '{"keys":{}}' },
  { name: 'nothing', status: 200, text: '' },
  { name: 'more than 256 KiB', status: 200, text: JSON.stringify({ keys: [], padding: 'x'.repeat(256 * 1024) }) },
];

for (const { name, status, text } of UNUSABLE) {
  test(`an endpoint that answers with ${name} counts as unreachable`, OPTIONS, async () => {
    await using at = await open();
    at.issuer.answer = (_request, response) => response.writeHead(status).end(text);
    assert.equal(await at.kind('first'), 'unreachable');
  });
}

test('an endless JWK Set is aborted at the size limit', OPTIONS, async () => {
  await using at = await open();
  const cut = Promise.withResolvers<void>();
  at.issuer.answer = (_request, response) => {
    const more = () => {
      while (response.write('x'.repeat(16 * 1024)));
    };
    response.on('drain', more).on('close', cut.resolve);
    more();
  };
  assert.equal(await at.kind('first'), 'unreachable');
  await cut.promise;
});

test('a JWK Set that never ends is aborted after the timeout', OPTIONS, async (t) => {
  const time = stopTime(t);
  await using at = await open();
  const begun = Promise.withResolvers<void>();
  at.issuer.answer = (_request, response) => {
    response.write('{"keys":');
    begun.resolve();
  };
  const found = at.kind('first');
  await begun.promise;
  assert.equal(await time.passUntil(found, 500), 'unreachable');
});

test('a redirect is not followed', OPTIONS, async () => {
  await using at = await open();
  let followed = 0;
  const other = createServer((_request, response) => {
    followed++;
    response.end(JSON.stringify({ keys: [first.jwk] }));
  }).listen(0, '127.0.0.1');
  await once(other, 'listening');
  const address = other.address();
  assert.ok(address !== null && typeof address === 'object');
  const location = `http://127.0.0.1:${address.port}/jwks`;
  for (const status of [301, 302, 303, 307, 308]) {
    at.issuer.answer = (_request, response) => response.writeHead(status, { location }).end();
    assert.equal(await at.kind('first'), 'unreachable');
    at.clock.nowMs += MINUTE;
  }
  assert.equal(followed, 0);
  other.close();
  other.closeAllConnections();
  await once(other, 'close');
});

test('a failure to fetch keys is told until a minute without tokens has passed', OPTIONS, async () => {
  await using at = await open();
  await at.kind('first');
  assert.equal(at.jwks.failure, undefined);
  at.issuer.answer = (_, response) => void response.writeHead(503).end();
  at.clock.nowMs += 10 * MINUTE;
  assert.equal(await at.kind('first'), 'keys');
  assert.match(
    at.jwks.failure ?? '',
    /^the keys of an issuer cannot be fetched from http:\/\/127\.0\.0\.1:\d+\/…; .* older keys, for an hour/,
  );
  at.clock.nowMs += MINUTE + SECOND;
  assert.equal(at.jwks.failure, undefined, 'nobody knows');
  at.clock.nowMs += 60 * MINUTE;
  assert.equal(await at.kind('first'), 'unreachable');
  assert.match(at.jwks.failure ?? '', /its tokens are refused$/);
  at.issuer.answer = undefined;
  at.clock.nowMs += 30 * SECOND;
  assert.equal(await at.kind('first'), 'keys');
  assert.equal(at.jwks.failure, undefined);
});
