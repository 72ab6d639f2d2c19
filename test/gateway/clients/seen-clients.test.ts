import assert from 'node:assert/strict';
import { test } from 'node:test';
import { SeenClients } from '../../../src/gateway/clients/seen-clients.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LIMITS } from '../../../src/limits.ts';
import { LOCAL } from '../../../src/policy/principal.ts';

function caller(capabilities: object = {}) {
  return { principal: LOCAL, view: '', revision: '2025-11-25', capabilities: RawObject.of(capabilities) } as const;
}

const INFO = RawObject.of({ name: 'editor', version: '1' });

test('clients with equal declarations are one entry, with first and last times', () => {
  const seen = new SeenClients(() => undefined);
  seen.record(caller({ roots: {} }), INFO, 1);
  seen.record(caller({ roots: {} }), INFO, 2);
  seen.record(caller({}), INFO, 3);
  const [latest, first] = seen.values();
  assert.deepEqual([latest?.capabilities, latest?.connections], [[], 1]);
  assert.deepEqual([first?.connections, first?.firstMs, first?.lastMs], [2, 1, 2]);
});

test('a repeated record of one caller changes only the time', () => {
  const seen = new SeenClients(() => undefined);
  const same = caller();
  seen.record(same, INFO, 1);
  seen.record(same, INFO, 5);
  assert.deepEqual([seen.find(same)?.connections, seen.find(same)?.lastMs], [1, 5]);
});

test('limit seenClients: the least recently recorded client is removed', () => {
  const limits: string[] = [];
  const seen = new SeenClients((limit) => limits.push(limit));
  for (let n = 0; n <= LIMITS.seenClients; n++) seen.record(caller(), RawObject.of({ name: `n${n}`, version: '' }), n);
  assert.deepEqual(limits, ['seenClients']);
  assert.equal(seen.values().length, LIMITS.seenClients);
  assert.ok(!seen.values().some(({ name }) => name === 'n0'));
});

test('limit seenClients: a client in use stays, and one that is back later is listed', () => {
  const seen = new SeenClients(() => undefined);
  const [busy, away] = [caller({ roots: {} }), caller({ sampling: {} })];
  seen.record(busy, INFO, 1);
  seen.record(away, INFO, 2);
  for (let n = 0; n < LIMITS.seenClients; n++) {
    seen.record(caller(), RawObject.of({ name: `n${n}`, version: '' }), 3 + n);
    seen.record(busy, INFO, 3 + n);
  }
  const listed = () =>
    seen
      .values()
      .flatMap(({ capabilities: [own], connections }) => (own === undefined ? [] : [`${own} ${connections}`]));
  assert.deepEqual(listed(), ['roots 1']);
  seen.record(away, INFO, 5_000);
  assert.deepEqual(listed(), ['roots 1'], 'each return searches the list');
  seen.record(away, INFO, 65_000);
  assert.deepEqual(listed(), ['sampling 1', 'roots 1']);
  assert.equal(seen.values().length, LIMITS.seenClients);
});

test('a client without a name, or with a long one, is listed', () => {
  const seen = new SeenClients(() => undefined);
  seen.record(caller(), undefined, 1);
  seen.record(caller(), RawObject.of({ name: 'x'.repeat(10_000), version: 7 }), 2);
  assert.deepEqual(
    seen.values().map(({ name }) => name.length),
    [100, 9],
  );
});
