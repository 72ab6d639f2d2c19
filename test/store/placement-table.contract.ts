import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Member, PlacementKey, PlacementTable } from '../../src/store/placement-table.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
/** Longer than any step of a test takes. */
const LONG_MS = 60_000;
const SHORT_MS = 30; // subject
const RENEWED_MS = 300; // subject

/** The contract of every placement table. `open` returns objects for one table, as that many processes have them. */
export function placementTableContract(
  name: string,
  open: (leaseMs: number, count: number) => Promise<readonly PlacementTable[]>,
): void {
  const newMember = (own: Partial<Member> = {}): Member => ({
    id: randomUUID(),
    process: randomUUID(),
    address: '127.0.0.1:1',
    version: '1.2.3',
    ...own,
  });
  const newKey = (own: Partial<PlacementKey> = {}): PlacementKey => ({ principal: randomUUID(), name: 's.1', ...own });
  const openTwo = async (leaseMs: number): Promise<readonly [PlacementTable, PlacementTable]> => {
    const [one, two] = await open(leaseMs, 2);
    assert.ok(one !== undefined && two !== undefined);
    return [one, two];
  };

  test(`${name}: members see each other until they leave`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const [a, b] = [newMember(), newMember({ address: '[::1]:2', version: 'ü' })];
    await one.join(a);
    await two.join(b);
    const byId = (members: readonly Member[] = []) => members.toSorted((x, y) => x.id.localeCompare(y.id));
    assert.deepEqual(byId(await one.renew(a.id)), byId([a, b]));
    assert.deepEqual(byId(await two.members()), byId([a, b]));
    await two.leave(b.id);
    assert.deepEqual(await one.renew(a.id), [a]);
    assert.equal(await two.renew(b.id), undefined, 'a member that has left does not come back');
  });

  test(`${name}: a lapsed lease does not come back, and its member is gone`, OPTIONS, async () => {
    const [one, two] = await openTwo(SHORT_MS);
    const [a, b] = [newMember(), newMember()];
    await one.join(a);
    await waitUntil(async () => (await two.members()).length === 0);
    assert.equal(await one.renew(a.id), undefined);
    assert.equal(await one.renew(newMember().id), undefined);
    let members: readonly Member[] | undefined;
    await waitUntil(async () => {
      await two.join(b);
      members = await two.renew(b.id);
      return members !== undefined;
    });
    assert.deepEqual(members, [b]);
  });

  test(`${name}: a renewed lease lasts`, OPTIONS, async () => {
    const [one] = await openTwo(RENEWED_MS);
    const a = newMember();
    let [joinedMs, sentMs] = [0, -Infinity];
    await waitUntil(async () => {
      const beforeMs = sentMs;
      sentMs = performance.now();
      if ((await one.renew(a.id)) === undefined) {
        // The first time, or the machine has stood for longer than the lease.
        assert.ok(
          performance.now() - beforeMs > 0.9 * RENEWED_MS,
          'the lease has lapsed though it was renewed in time',
        );
        joinedMs = sentMs;
        await one.join(a);
      }
      return sentMs - joinedMs > 3 * RENEWED_MS;
    });
  });

  test(`${name}: of many claims at once exactly one wins`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const key = newKey();
    const members = Array.from({ length: 40 }, (): string => randomUUID());
    const claims = await Promise.all(members.map((id, n) => (n % 2 === 0 ? one : two).claim(key, id, undefined)));
    const [winner] = claims;
    for (const claim of claims) assert.deepEqual(claim, winner);
    assert.ok(members.includes(winner?.member ?? ''));
  });

  test(`${name}: a claim of the owner keeps its token`, OPTIONS, async () => {
    const [one] = await openTwo(LONG_MS);
    const [key, id] = [newKey(), randomUUID()];
    const first = await one.claim(key, id, undefined);
    assert.deepEqual(await one.claim(key, id, undefined), first);
    assert.deepEqual(await one.claim(key, id, 'nobody'), first);
    assert.equal(await one.confirm(key, first), true);
  });

  test(`${name}: a claim of the owner from itself gets a new token, once for each`, OPTIONS, async () => {
    const [one] = await openTwo(LONG_MS);
    const [key, id] = [newKey(), randomUUID()];
    const first = await one.claim(key, id, id);
    const second = await one.claim(key, id, id);
    assert.notEqual(second.token, first.token);
    await one.release(key, first);
    assert.equal(await one.confirm(key, second), true, 'a late release of the first does not free it');
  });

  test(`${name}: of many takeovers from one member exactly one wins, with a new token`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const [key, dead] = [newKey(), randomUUID()];
    const before = await one.claim(key, dead, undefined);
    assert.deepEqual(await two.claim(key, randomUUID(), randomUUID()), before, 'another member has it');
    const members = Array.from({ length: 40 }, (): string => randomUUID());
    const claims = await Promise.all(members.map((id, n) => (n % 2 === 0 ? one : two).claim(key, id, dead)));
    const [winner] = claims;
    for (const claim of claims) assert.deepEqual(claim, winner);
    assert.ok(members.includes(winner?.member ?? ''));
    assert.notEqual(winner?.token, before.token);
    assert.equal(await one.confirm(key, before), false, 'the old owner is fenced');
    await one.release(key, before);
    assert.equal(await two.confirm(key, winner ?? before), true, 'the old owner cannot free it');
  });

  test(`${name}: a token of an earlier ownership of the same member is not valid`, OPTIONS, async () => {
    const [one] = await openTwo(LONG_MS);
    const [key, a] = [newKey(), randomUUID()];
    const first = await one.claim(key, a, undefined);
    await one.release(key, first);
    assert.equal(await one.confirm(key, first), false);
    const second = await one.claim(key, a, undefined);
    assert.notEqual(second.token, first.token);
    assert.equal(await one.confirm(key, first), false);
  });

  test(`${name}: a member can be described anew, such as before it leaves`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const member = newMember();
    await one.join(member);
    await one.join({ ...member, isLeaving: true });
    assert.deepEqual(await two.members(), [{ ...member, isLeaving: true }]);
  });

  test(`${name}: a member that frees a placement can be found while it works on it`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const [key, other, a] = [newKey(), newKey(), randomUUID()];
    const first = await one.claim(key, a, undefined);
    assert.equal(await two.former(key), undefined);
    await one.release(key, { ...first, token: 'x' }, LONG_MS);
    assert.equal(await two.former(key), undefined, 'it was not freed');
    await one.release(key, first, LONG_MS);
    assert.equal(await two.former(key), a);
    assert.equal((await two.claim(key, 'b', undefined)).member, 'b');
    assert.equal(await two.former(key), a);
    await one.release(other, await one.claim(other, a, undefined), SHORT_MS);
    await waitUntil(async () => (await two.former(other)) === undefined);
    await one.release(other, await one.claim(other, a, undefined));
    assert.equal(await two.former(other), undefined);
  });

  test(`${name}: principals and names are told apart`, OPTIONS, async () => {
    const [one] = await openTwo(LONG_MS);
    const key = newKey();
    const others = [
      { ...key, name: 's.2' },
      { ...key, principal: `${key.principal}x` },
      { ...key, name: '' },
    ];
    const first = await one.claim(key, 'a', undefined);
    for (const other of others) assert.equal((await one.claim(other, 'b', undefined)).member, 'b');
    assert.equal(await one.confirm(key, first), true);
  });

  test(`${name}: a revoked placement is free, and its owner hears of it`, OPTIONS, async () => {
    const [one, two] = await openTwo(LONG_MS);
    const [a, b] = [randomUUID(), randomUUID()];
    const [key, other] = [newKey({ principal: 'ü/x' + randomUUID() }), newKey()];
    const [seenByOne, seenByTwo]: [PlacementKey[], PlacementKey[]] = [[], []];
    const onMissed = () => undefined;
    await one.watch(a, (each) => seenByOne.push(each), onMissed);
    await two.watch(b, (each) => seenByTwo.push(each), onMissed);
    const held = await one.claim(key, a, undefined);
    await two.claim(other, b, undefined);
    await two.revoke(newKey());
    await two.revoke(key);
    await waitUntil(() => seenByOne.length > 0);
    assert.deepEqual(seenByOne, [key]);
    assert.deepEqual(seenByTwo, []);
    assert.equal(await one.confirm(key, held), false);
    assert.equal((await two.claim(key, b, undefined)).member, b);
    await one.unwatch(a);
    await two.unwatch(b);
  });
}
