import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { commonKey, EMPTY_OFFER, type Offer } from '../../../src/catalog/offer.ts';
import { viewsOf } from '../../../src/catalog/view.ts';
import type { Config } from '../../../src/config/values/config.ts';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { Offers } from '../../../src/gateway/lists/offers.ts';
import { LIMITS } from '../../../src/limits.ts';
import { RawObject } from '../../../src/json/json.ts';
import { diskOfferStore } from '../../../src/store/disk/offer-store.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { erasOver, recordFinding } from '../../../src/upstream/link/eras.ts';
import { UPSTREAM } from '../../support/core.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { configWith } from '../../downstream/edge.ts';

const tool = (name: string) => RawObject.of({ name, inputSchema: { type: 'object' } });
const LEGACY: Offer = { ...EMPTY_OFFER, revision: '2025-11-25', tools: [tool('old')] };
const MODERN: Offer = { ...EMPTY_OFFER, revision: '2026-07-28', tools: [tool('new')] };
const BOTH = erasOver(new Set(['legacy', 'modern']));

/** The pseudonym of the merged endpoint. */
const OWN = 'o'.repeat(16);

interface Place extends AsyncDisposable {
  metrics(): Promise<string>;
  open(): Promise<Offers>;
}

/** @param personal upstream whose lists differ by principal. */
async function place(personal = ''): Promise<Place> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-offers-'));
  const upstreams = ['up', 'other'].map((id) => ({ ...UPSTREAM, id, title: id, prefix: '' }));
  const config: Config = configWith({ stateDir, upstreams });
  const opened: Offers[] = [];
  const metrics = createMetrics('0');
  return {
    metrics: () => metrics.text(),
    open: async () => {
      const store = diskOfferStore(stateDir);
      const offers = new Offers({
        config,
        views: viewsOf(config),
        gate: new Gate(undefined, []),
        pseudonymsOf: (path) => [path === '/mcp' ? OWN : 'x'.repeat(16)],
        audienceOf: (id, principal) => (id === personal ? principal : ''),
        store,
        log: pino({ level: 'silent' }),
        metrics,
      });
      await offers.restore();
      opened.push(offers);
      return offers;
    },
    [Symbol.asyncDispose]: async () => {
      // A write that is still under way would put a file into the directory that is being removed.
      await Promise.all(opened.map((offers) => offers.stored.flush()));
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

function seen(offers: Offers): readonly string[][] {
  return (['legacy', 'modern'] as const).map((era) => [...offers.catalog('', commonKey(era)).tools.keys()]);
}

// N-93
test('a long list is prepared in several turns of the event loop', async (t) => {
  await using at = await place();
  const offers = await at.open();
  // A turn is over after some ms, too.
  stopTime(t);
  let turns = 0;
  let counter = setImmediate(function count() {
    turns++;
    counter = setImmediate(count);
  });
  const tools = Array.from({ length: 2_000 }, (_, n) => tool(`t${n}`));
  await offers.prepare('up', { ...LEGACY, tools });
  clearImmediate(counter);
  assert.ok(turns >= 5, `${turns} turns for 20 parts, of which 4 fit into a turn`);
});

// N-40
test('clients of each era get the offer of their era, also after a restart', async () => {
  await using at = await place();
  const before = await at.open();
  before.update('up', commonKey('legacy'), LEGACY);
  before.update('up', commonKey('modern'), MODERN);
  assert.deepEqual(seen(before), [['old'], ['new']]);
  await before.stored.flush();
  assert.deepEqual(seen(await at.open()), [['old'], ['new']]);
});

// N-40
test('an upstream of one era has one offer and one catalog for clients of both', async () => {
  await using at = await place();
  const offers = await at.open();
  offers.update('up', commonKey('legacy'), LEGACY);
  assert.deepEqual(seen(offers), [['old'], ['old']]);
  assert.equal(offers.catalog('', commonKey('legacy')), offers.catalog('', commonKey('modern')));
});

// N-40
test('an offer of an era that the upstream no longer supports is not used', async () => {
  await using at = await place();
  const offers = await at.open();
  offers.update('up', commonKey('legacy'), LEGACY);
  offers.update('up', commonKey('modern'), MODERN);
  const refused = recordFinding(BOTH, { era: 'modern', speaks: 'no', evidence: 'refused' }, 0);
  assert.equal(offers.setEras('up', refused), true);
  assert.deepEqual(seen(offers), [['old'], ['old']]);
  assert.equal(offers.setEras('up', refused), false);
  assert.equal(offers.setEras('up', BOTH), true);
  assert.deepEqual(seen(offers), [['old'], ['new']]);
});

test('after a restart a principal still has its own offer and the common ones', async () => {
  await using at = await place('up');
  const before = await at.open();
  const anna = { ...commonKey('legacy'), audience: 'anna' };
  before.update('up', anna, LEGACY);
  before.update('other', commonKey('legacy'), { ...LEGACY, tools: [tool('common')] });
  const toolsOf = (offers: Offers, audience: string) => [
    ...offers.catalog('', { ...commonKey('modern'), audience }).tools.keys(),
  ];
  assert.deepEqual(toolsOf(before, 'anna'), ['old', 'common']);
  assert.deepEqual(toolsOf(before, 'bert'), ['common']);
  assert.deepEqual(toolsOf(before, ''), ['common']);
  await before.stored.flush();
  const after = await at.open();
  assert.deepEqual(toolsOf(after, 'anna'), ['common'], 'not read yet');
  assert.equal(await after.load('up', { ...anna, audience: 'bert' }), false);
  assert.equal(await after.load('up', anna), true);
  assert.deepEqual(toolsOf(after, 'anna'), ['old', 'common']);
  assert.deepEqual(toolsOf(after, 'bert'), ['common']);
});

test('limit offersPerUpstream: the oldest is replaced by that for all clients', async () => {
  await using at = await place();
  const offers = await at.open();
  offers.update('up', commonKey('legacy'), LEGACY);
  const keyOf = (n: number) => ({ ...commonKey('legacy'), capabilityKey: `c${n}` });
  for (let n = 1; n <= LIMITS.offersPerUpstream + 1; n++) {
    offers.update('up', keyOf(n), { ...LEGACY, tools: [tool(`t${n}`)] });
  }
  const toolsOf = (n: number) => [...offers.catalog('', keyOf(n)).tools.keys()];
  assert.deepEqual([toolsOf(1), toolsOf(2)], [['old'], ['t2']]);
  assert.deepEqual(seen(offers), [['old'], ['old']]);
  assert.match(await at.metrics(), /limit_reached_total\{limit="offersPerUpstream"\} 1\n/);
});

test('a problem in lists for several capabilities is reported once', async () => {
  await using at = await place('other');
  const offers = await at.open();
  const broken = (n: number) => RawObject.of({ name: `t${n}` });
  const list = (capabilityKey: string, ...tools: readonly RawObject[]) => {
    offers.update('up', { ...commonKey('legacy'), capabilityKey }, { ...LEGACY, tools });
    offers.reportProblems('up', 'legacy');
    return offers.problemsOf('up', 'legacy').map(({ name }) => name);
  };
  assert.deepEqual(list('c1', broken(1)), ['t1']);
  assert.deepEqual(list('c2', broken(1), broken(2)), ['t1', 't2']);
  assert.deepEqual(list('c1', tool('good'), broken(1)), ['t1', 't2']);
  assert.deepEqual(list('c1', broken(1)), ['t1', 't2']);
  assert.match(await at.metrics(), /list_repairs_total\{repair="item left out"\} 2\n/);
  // Those of one principal are left to it.
  offers.update('other', { ...commonKey('legacy'), audience: 'anna' }, { ...LEGACY, tools: [broken(3)] });
  assert.deepEqual(offers.problemsOf('other', 'legacy'), []);
});

test('lists that another process has stored do not replace its newer ones', async () => {
  await using at = await place();
  const [first, second] = [await at.open(), await at.open()];
  const key = commonKey('legacy');
  const GROWN: Offer = { ...LEGACY, tools: [tool('old'), tool('grown')] };
  for (const offers of [first, second]) {
    offers.update('up', key, LEGACY);
    await offers.stored.flush();
  }
  first.update('up', key, GROWN);
  await first.stored.flush();
  assert.equal(await second.readStored('up', key, false), true);
  first.update('up', key, LEGACY);
  await first.stored.flush();
  // The second one has read the lists between the two changes.
  assert.equal(second.update('up', key, GROWN), true);
  await second.stored.flush();
  assert.deepEqual(seen(await at.open())[0], ['old']);

  assert.equal(await second.readStored('up', key, false), true);
  second.update('up', key, { ...LEGACY, tools: [tool('third')] });
  await second.stored.flush();
  assert.deepEqual(seen(await at.open())[0], ['third']);
});

test('lists are served when the upstream that led back is restarted, also equal ones', async () => {
  await using at = await place();
  const offers = await at.open();
  const key = commonKey('legacy');
  const namedBy = (...endpoints: string[]): Offer => ({ ...LEGACY, tools: [tool('old')], endpoints });
  const names = () => [...offers.catalog('', key).tools.keys()];
  offers.setEras('up', BOTH);
  offers.update('up', key, namedBy(OWN));
  offers.update('up', key, namedBy());
  assert.deepEqual(names(), []);
  offers.onReplaced('up');
  offers.update('up', key, namedBy());
  assert.deepEqual(names(), ['old']);
});
