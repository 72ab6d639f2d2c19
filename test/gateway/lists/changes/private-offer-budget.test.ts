import assert from 'node:assert/strict';
import { test } from 'node:test';
import { EMPTY_OFFER, type Offer } from '../../../../src/catalog/offer.ts';
import { PrivateOfferBudget } from '../../../../src/gateway/lists/changes/private-offer-budget.ts';
import { RawObject } from '../../../../src/json/json.ts';

/** Each offer takes a bit more than 32 MiB by the estimate. */
const TEXT = 'x'.repeat(8 * 1_048_576);

function largeOffer(): Offer {
  return { ...EMPTY_OFFER, tools: [RawObject.of({ name: 'large', description: TEXT })] };
}

const link = (upstream: string) => ({ upstream });

// N-21 N-63
test('limit privateListBytesPerUpstream: lists of connections have a bound', () => {
  const budget = new PrivateOfferBudget();
  const links = [link('up'), link('up'), link('up')] as const;
  const offers = links.map(() => largeOffer());
  for (const [at, one] of links.entries()) assert.equal(budget.keep(one, '', offers[at] ?? EMPTY_OFFER), undefined);
  assert.equal(budget.keep(link('up'), '', largeOffer()), 'privateListBytesPerUpstream');
  assert.equal(budget.keep(link('other'), '', largeOffer()), undefined);
  // Equal lists are the same object, which counts once.
  const equal = link('up');
  assert.equal(budget.keep(equal, '', offers[0] ?? EMPTY_OFFER), undefined);
  budget.removeAll(links[0]);
  assert.equal(budget.keep(link('up'), '', largeOffer()), 'privateListBytesPerUpstream', 'still used by the equal one');
  budget.removeAll(equal);
  assert.equal(budget.keep(link('up'), '', largeOffer()), undefined);
});

// N-21 N-63
test('limit privateListBytes: so have those of all upstreams together', () => {
  const budget = new PrivateOfferBudget();
  const links = Array.from({ length: 7 }, (_, n) => link(`up${n}`));
  for (const one of links) assert.equal(budget.keep(one, '', largeOffer()), undefined);
  assert.equal(budget.keep(link('next'), '', largeOffer()), 'privateListBytes');
  const [first = link('up0')] = links;
  // New lists of the same connection replace the earlier ones.
  for (let n = 0; n < 3; n++) assert.equal(budget.keep(first, '', largeOffer()), undefined);
  assert.equal(budget.keep(first, 'other capabilities', largeOffer()), 'privateListBytes');
  budget.remove(first, '');
  assert.equal(budget.keep(link('next'), '', largeOffer()), undefined);
});

test('equal lists of two upstreams are those of both', () => {
  const budget = new PrivateOfferBudget();
  const [one, other, offer] = [link('up'), link('other'), { ...EMPTY_OFFER }];
  const owners = () => ['up', 'other'].filter((upstream) => budget.offersOf(upstream).has(offer));
  for (const owner of [one, other]) budget.keep(owner, '', offer);
  assert.deepEqual(owners(), ['up', 'other']);
  budget.removeAll(one);
  assert.deepEqual(owners(), ['other']);
  budget.removeAll(other);
  assert.deepEqual(owners(), []);
});
