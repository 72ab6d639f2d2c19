import assert from 'node:assert/strict';
import { mkdtempDisposable } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { commonKey, EMPTY_OFFER, type Offer } from '../../../src/catalog/offer.ts';
import { StoredOffers } from '../../../src/gateway/lists/stored-offers.ts';
import { diskOfferStore } from '../../../src/store/disk/offer-store.ts';

const KEY = commonKey('legacy');
const OFFER: Offer = { ...EMPTY_OFFER, revision: '2025-11-25' };

async function open(): Promise<{ stored: StoredOffers } & AsyncDisposable> {
  const dir = await mkdtempDisposable(join(tmpdir(), 'linkspan-stored-offers-'));
  const stored = new StoredOffers(diskOfferStore(dir.path), pino({ level: 'silent' }));
  stored.setTarget('up', 'server');
  return {
    stored,
    [Symbol.asyncDispose]: async () => {
      await stored.flush();
      await dir.remove();
    },
  };
}

test('an offer read before a write of this process is not kept as that of another', async () => {
  await using at = await open();
  const { stored } = at;
  const record = stored.recorderOfOther('up', KEY);
  stored.write('up', KEY, OFFER);
  await stored.flush();
  record(OFFER);
  assert.equal(stored.isByOther('up', KEY, OFFER), false);

  stored.recorderOfOther('up', KEY)(OFFER);
  assert.equal(stored.isByOther('up', KEY, OFFER), true);
});

test('an offer that the store lacks is read again when another process has written it', async () => {
  await using at = await open();
  at.stored.setAbsent('up', KEY);
  assert.equal(at.stored.isAbsent('up', KEY), true);
  at.stored.onWrittenByOther('up', KEY);
  assert.equal(at.stored.isAbsent('up', KEY), false);
});

test('an offer is absent as soon as it is removed, and until it is written again', async () => {
  await using at = await open();
  const { stored } = at;
  stored.write('up', KEY, OFFER);
  await stored.flush();
  stored.remove('up', KEY);
  assert.equal(stored.isAbsent('up', KEY), true);
  stored.write('up', KEY, OFFER);
  assert.equal(stored.isAbsent('up', KEY), false);
  await stored.flush();
  assert.notEqual(await stored.read('up', KEY), undefined);
});

test('a forgotten upstream has its offers in the store, for the same server only', async () => {
  await using at = await open();
  const { stored } = at;
  stored.write('up', KEY, OFFER);
  await stored.flush();
  stored.setAbsent('up', commonKey('modern'));
  stored.forget('up');
  assert.deepEqual(stored.upstreamKeys(), []);
  assert.equal(stored.isAbsent('up', commonKey('modern')), false);

  stored.setTarget('up', 'other server');
  assert.equal(await stored.read('up', KEY), undefined);
  stored.setTarget('up', 'server');
  assert.equal((await stored.read('up', KEY))?.revision, OFFER.revision);
});
