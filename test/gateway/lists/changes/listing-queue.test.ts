import assert from 'node:assert/strict';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { test } from 'node:test';
import { ListingQueue } from '../../../../src/gateway/lists/changes/listing-queue.ts';
import { LIMITS } from '../../../../src/limits.ts';

/** Runs listings that end when the test says so. */
class Listings {
  readonly started: string[] = [];
  readonly waits: string[] = [];
  readonly all: Promise<void>[] = [];
  readonly #queue = new ListingQueue((limit) => this.waits.push(limit));
  readonly #ends = new Map<string, ((error?: Error) => void)[]>();

  begin(upstream: string): void {
    const listing = this.#queue.run(upstream, () => {
      this.started.push(upstream);
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      const end = (error?: Error) => (error === undefined ? resolve() : reject(error));
      this.#ends.set(upstream, [...(this.#ends.get(upstream) ?? []), end]);
      return promise;
    });
    this.all.push(listing);
  }

  async end(upstream: string, error?: Error): Promise<void> {
    this.#ends.get(upstream)?.shift()?.(error);
    await nextTurn();
  }
}

test('listings of one upstream run up to its limit, and others wait for their end', async () => {
  const listings = new Listings();
  for (let n = 0; n <= LIMITS.privateListingsPerUpstream; n++) listings.begin('a');
  assert.equal(listings.started.length, LIMITS.privateListingsPerUpstream);
  assert.deepEqual(listings.waits, ['privateListingsPerUpstream']);
  await listings.end('a');
  assert.equal(listings.started.length, LIMITS.privateListingsPerUpstream + 1);
});

test('upstreams with waiting listings take turns', async () => {
  const listings = new Listings();
  const upstreams = Math.ceil(LIMITS.privateListings / LIMITS.privateListingsPerUpstream);
  for (let n = 0; n < LIMITS.privateListings; n++) listings.begin(`u${n % upstreams}`);
  for (const upstream of ['a', 'a', 'b']) listings.begin(upstream);
  const before = listings.started.length;
  for (let n = 0; n < 3; n++) await listings.end(`u${n % upstreams}`);
  assert.deepEqual(listings.started.slice(before), ['a', 'b', 'a']);
});

test('a listing that fails frees its place, and its caller gets the error', async () => {
  const listings = new Listings();
  for (let n = 0; n <= LIMITS.privateListingsPerUpstream; n++) listings.begin('a');
  const [first] = listings.all;
  assert.ok(first !== undefined);
  const failed = assert.rejects(first, /no lists/);
  await listings.end('a', new Error('no lists'));
  await failed;
  assert.equal(listings.started.length, LIMITS.privateListingsPerUpstream + 1);
});
