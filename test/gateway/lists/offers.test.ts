import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { EMPTY_OFFER, type Offer } from '../../../src/catalog/offer.ts';
import { viewsOf } from '../../../src/catalog/view.ts';
import type { Config } from '../../../src/config/config.ts';
import { Offers } from '../../../src/gateway/lists/offers.ts';
import { RawObject } from '../../../src/json/json.ts';
import { DiskOfferStore } from '../../../src/store/disk/offer-store.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { erasOver, recordFinding } from '../../../src/upstream/link/eras.ts';
import { UPSTREAM } from '../../support/core.ts';
import { configWith } from '../../downstream/edge.ts';

const tool = (name: string) => RawObject.of({ name, inputSchema: { type: 'object' } });
const LEGACY: Offer = { ...EMPTY_OFFER, revision: '2025-11-25', tools: [tool('old')] };
const MODERN: Offer = { ...EMPTY_OFFER, revision: '2026-07-28', tools: [tool('new')] };
const BOTH = erasOver(new Set(['legacy', 'modern']));

interface Place extends AsyncDisposable {
  open(): Promise<Offers>;
}

async function place(): Promise<Place> {
  const stateDir = await mkdtemp(join(tmpdir(), 'linkspan-offers-'));
  const upstreams = [{ ...UPSTREAM, id: 'up', title: 'up', prefix: '' }];
  const config: Config = configWith({ stateDir, upstreams });
  const opened: Offers[] = [];
  return {
    open: async () => {
      const store = new DiskOfferStore(stateDir, () => undefined);
      const offers = new Offers(config, viewsOf(config), store, pino({ level: 'silent' }), createMetrics('0'));
      await offers.restore();
      opened.push(offers);
      return offers;
    },
    [Symbol.asyncDispose]: async () => {
      // A write that is still under way would put a file into the directory that is being removed.
      await Promise.all(opened.map((offers) => offers.flush()));
      await rm(stateDir, { recursive: true, force: true });
    },
  };
}

function seen(offers: Offers): readonly string[][] {
  return (['legacy', 'modern'] as const).map((era) => [...offers.catalog('', era, '').tools.keys()]);
}

test('N-40 clients of each era get the offer of their era, also after a restart', async () => {
  await using at = await place();
  const before = await at.open();
  before.update('up', 'legacy', '', LEGACY);
  before.update('up', 'modern', '', MODERN);
  assert.deepEqual(seen(before), [['old'], ['new']]);
  await before.flush();
  assert.deepEqual(seen(await at.open()), [['old'], ['new']]);
});

test('N-40 an upstream of one era has one offer and one catalog for clients of both', async () => {
  await using at = await place();
  const offers = await at.open();
  offers.update('up', 'legacy', '', LEGACY);
  assert.deepEqual(seen(offers), [['old'], ['old']]);
  assert.equal(offers.catalog('', 'legacy', ''), offers.catalog('', 'modern', ''));
});

test('N-40 an offer of an era that the upstream no longer supports is not used', async () => {
  await using at = await place();
  const offers = await at.open();
  offers.update('up', 'legacy', '', LEGACY);
  offers.update('up', 'modern', '', MODERN);
  const refused = recordFinding(BOTH, { era: 'modern', speaks: 'no', evidence: 'refused' }, 0);
  assert.equal(offers.setEras('up', refused), true);
  assert.deepEqual(seen(offers), [['old'], ['old']]);
  assert.equal(offers.setEras('up', refused), false);
  assert.equal(offers.setEras('up', BOTH), true);
  assert.deepEqual(seen(offers), [['old'], ['new']]);
});
