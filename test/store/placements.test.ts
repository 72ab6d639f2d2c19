import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { GatewayError } from '../../src/errors.ts';
import type { RedisConfig } from '../../src/config/values/config.ts';
import { MemoryPlacementTable } from '../../src/store/memory/placement-table.ts';
import type { PlacementKey, PlacementTable } from '../../src/store/placement-table.ts';
import { Placements, type PlacementsParts } from '../../src/store/placements.ts';
import { type RedisPlacementTable, redisPlacementTable } from '../../src/store/redis/placement-table.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { openRedis, redisConfig, RedisServer } from '../support/redis.ts';
import { TcpRelay } from '../support/tcp-relay.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };

interface Replica {
  readonly placements: Placements;
  readonly lost: PlacementKey[];
  readonly trouble: string[];
}

/** Joins as a process that uses all its placements, and waits as long as a busy machine needs. */
async function join(table: PlacementTable, own: Partial<PlacementsParts> = {}): Promise<Replica> {
  const [lost, trouble]: [PlacementKey[], string[]] = [[], []];
  const process = randomUUID();
  const placements = await Placements.open({
    table,
    process,
    address: '127.0.0.1:1',
    version: '1',
    waitMs: PATIENCE_MS,
    isUsed: () => true,
    onLost: (key) => lost.push(key),
    onTrouble: (what) => trouble.push(what),
    ...own,
  });
  return { placements, lost, trouble };
}

/** Opens tables of that many processes in one Redis. */
async function tables(server: RedisServer, leaseMs: number, count: number): Promise<readonly RedisPlacementTable[]> {
  const config = redisConfig(server.url);
  return await Promise.all(Array.from({ length: count }, () => openTable(config, leaseMs)));
}

async function openTable(config: RedisConfig, leaseMs: number): Promise<RedisPlacementTable> {
  return redisPlacementTable(await openRedis(config), leaseMs);
}

const LONG_MS = 600_000;

/** Returns a table in memory, some of whose methods do something else first. */
function tableWith(before: {
  readonly claim?: () => Promise<void>;
  readonly confirm?: () => Promise<void>;
  readonly members?: () => Promise<void>;
  readonly release?: (key: PlacementKey) => Promise<void>;
}): {
  readonly table: PlacementTable;
  readonly memory: MemoryPlacementTable;
} {
  const memory = new MemoryPlacementTable(LONG_MS);
  const table: PlacementTable = {
    leaseMs: memory.leaseMs,
    join: (member) => memory.join(member),
    renew: (id) => memory.renew(id),
    leave: (id) => memory.leave(id),
    members: async () => {
      await before.members?.();
      return await memory.members();
    },
    claim: async (key, member, from) => {
      await before.claim?.();
      return await memory.claim(key, member, from);
    },
    confirm: async (key, placement) => {
      await before.confirm?.();
      return await memory.confirm(key, placement);
    },
    release: async (key, placement, formerMs) => {
      await before.release?.(key);
      await memory.release(key, placement, formerMs);
    },
    former: (key) => memory.former(key),
    revoke: (key) => memory.revoke(key),
    watch: (member, onRevoked) => memory.watch(member, onRevoked),
    unwatch: (member) => memory.unwatch(member),
  };
  return { table, memory };
}

const away = () => Promise.reject(new GatewayError('store-unavailable'));

const keyOf = (name: string): PlacementKey => ({ principal: 'anna', name });

test('a member that leaves claims for others, and is found while it works', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const [one, two] = await Promise.all((await tables(server, LONG_MS, 2)).map((table) => join(table)));
  assert.ok(one !== undefined && two !== undefined);
  const [key, other] = [keyOf('s.1'), keyOf('s.2')];
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' });
  await one.placements.leave();
  await two.placements.renew();
  assert.deepEqual(two.placements.others, [one.placements.self]);
  assert.equal(one.placements.self.isLeaving, true);
  const [successor] = one.placements.others;
  assert.deepEqual(await one.placements.claim(key, successor), { kind: 'here' }, 'what it has it keeps');
  await one.placements.release(key, true);
  assert.deepEqual(await one.placements.claim(key, successor), { kind: 'elsewhere', member: two.placements.self });
  assert.deepEqual(await two.placements.claim(key), { kind: 'here' });
  assert.deepEqual(await two.placements.formerOf(key), one.placements.self);
  assert.equal(await one.placements.formerOf(key), undefined, 'a member is not its own former one');
  assert.deepEqual(await one.placements.claim(other), { kind: 'here' });
  await one.placements.release(other);
  assert.equal(await two.placements.formerOf(other), undefined);
  await one.placements.close();
  await waitUntil(async () => {
    await two.placements.renew();
    return (await two.placements.formerOf(key)) === undefined;
  });
  await two.placements.close();
});

test('a living member keeps its sessions although its entry cannot be read', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const old = redisConfig(server.url);
  const wrappingKeys = [...redisConfig(server.url).wrappingKeys, ...old.wrappingKeys];
  const [newer, older] = [await openTable({ ...old, wrappingKeys }, LONG_MS), await openTable(old, LONG_MS)];
  const [one, two] = [await join(newer), await join(older)];
  const key = keyOf('s.1');
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' });
  const { id, process } = one.placements.self;
  const claim = await two.placements.claim(key);
  assert.ok(claim.kind === 'elsewhere');
  const { member } = claim;
  assert.deepEqual([member.id, member.process, member.address], [id, process, '']);
  assert.equal((await two.placements.memberOf(process))?.id, id, 'what a handle names is not gone');
  assert.equal(member.isLeaving, true, 'it gets nothing');
  assert.deepEqual(one.placements.others, []);
  await one.placements.renew();
  assert.deepEqual(one.placements.others, [two.placements.self]);
  await one.placements.close();
  assert.deepEqual(await two.placements.claim(key), { kind: 'here' });
  await two.placements.close();
});

test('a former owner is found that has joined just now', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const [first, second] = await tables(server, LONG_MS, 2);
  assert.ok(first !== undefined && second !== undefined);
  const two = await join(second);
  const one = await join(first);
  const key = keyOf('s.1');
  await one.placements.claim(key);
  await one.placements.release(key, true);
  assert.deepEqual(await two.placements.claim(key), { kind: 'here' });
  assert.deepEqual(await two.placements.formerOf(key), one.placements.self);
  await Promise.all([one, two].map(({ placements }) => placements.close()));
});

test('a living member keeps what it has claimed', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const [one, two] = await Promise.all((await tables(server, LONG_MS, 2)).map((table) => join(table)));
  assert.ok(one !== undefined && two !== undefined);
  const key = keyOf('s.1');
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' });
  assert.deepEqual(await two.placements.claim(key), { kind: 'elsewhere', member: one.placements.self });
  assert.deepEqual(await two.placements.memberOf(one.placements.self.process), one.placements.self);
  await one.placements.release(key);
  assert.deepEqual(await two.placements.claim(key), { kind: 'here' });
  await two.placements.close();
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' });
  await one.placements.close();
});

// REL-27
test('a member that was cut off is fenced, and keeps what nobody has claimed', OPTIONS, async () => {
  await using server = await RedisServer.start();
  await using relay = await TcpRelay.open(server.port);
  const config = redisConfig(server.url);
  const first = await openTable({ ...config, target: redisConfig(`redis://127.0.0.1:${relay.port}`).target }, 500);
  const second = await openTable(config, 500);
  const [one, two] = [await join(first), await join(second)];
  const [taken, kept] = [keyOf('s.1'), keyOf('s.2')];
  await one.placements.claim(taken);
  await one.placements.claim(kept);
  const before = [one.placements.held(taken), one.placements.held(kept)];
  const formerId = one.placements.self.id;

  relay.cut();
  await waitUntil(async () => (await two.placements.claim(taken)).kind === 'here');
  assert.equal(one.placements.isCurrent, false, 'it knows that its lease may have lapsed');
  assert.equal(await one.placements.isStillHeld(taken), true, 'it cannot ask, so it serves on');

  relay.restore();
  await waitUntil(async () => !(await one.placements.isStillHeld(taken)));
  assert.equal(await one.placements.isStillHeld(kept), true);
  assert.deepEqual(one.lost, [taken]);
  assert.ok(one.trouble.includes('lapsed') && one.trouble.includes('failed'));
  assert.notEqual(one.placements.self.id, formerId);
  assert.notDeepEqual(one.placements.held(kept), before[1]);
  for (const [n, key] of [taken, kept].entries()) {
    const placement = before[n];
    assert.ok(placement !== undefined);
    assert.equal(await second.confirm(key, placement), false, 'the token of the old member is worth nothing');
  }
  await one.placements.close();
  await two.placements.close();
});

// R13
test('after a flush a member joins again, and claims what it has', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const [first, second] = await tables(server, LONG_MS, 2);
  assert.ok(first !== undefined && second !== undefined);
  const [one, two] = [await join(first), await join(second)];
  const key = keyOf('s.1');
  await one.placements.claim(key);
  const { connection } = await openRedis(redisConfig(server.url));
  await connection.command('FLUSHALL');
  await Promise.all([one.placements.renew(), two.placements.renew()]);
  assert.deepEqual([one.trouble, two.trouble], [['lapsed'], ['lapsed']]);
  await waitUntil(() => one.placements.isCurrent && two.placements.isCurrent);
  assert.deepEqual(await two.placements.claim(key), { kind: 'elsewhere', member: one.placements.self });
  assert.deepEqual(one.lost, []);
  await one.placements.close();
  await two.placements.close();
});

test('a placement that another process revokes is lost', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const [first, second] = await tables(server, LONG_MS, 2);
  assert.ok(first !== undefined && second !== undefined);
  const one = await join(first);
  const key = keyOf('s.1');
  await one.placements.claim(key);
  await second.revoke(key);
  await waitUntil(() => one.lost.length > 0);
  assert.deepEqual(one.lost, [key]);
  assert.equal(one.placements.held(key), undefined);
  await one.placements.close();
});

test('a placement that is lost without notice is noticed when it is confirmed', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const table = await openTable(config, LONG_MS);
  const one = await join(table, { confirmMs: 0 });
  const [taken, kept] = [keyOf('s.1'), keyOf('s.2')];
  await one.placements.claim(taken);
  await one.placements.claim(kept);
  // As after a failover that has lost the last second.
  const { connection, keys } = await openRedis(config);
  await connection.command('DEL', keys.placement(taken));
  await one.placements.renew();
  await waitUntil(() => one.lost.length > 0);
  assert.deepEqual(one.lost, [taken]);
  assert.notEqual(one.placements.held(kept), undefined);
  await one.placements.close();
});

// REL-27
test('a process is not current while others may claim what its old member has', OPTIONS, async () => {
  let isAway = false;
  const { table, memory } = tableWith({ claim: () => (isAway ? away() : Promise.resolve()) });
  const [one, two] = [await join(table), await join(memory)];
  const [taken, kept] = [keyOf('s.1'), keyOf('s.2')];
  await one.placements.claim(taken);
  await one.placements.claim(kept);
  await memory.leave(one.placements.self.id);
  isAway = true;
  await one.placements.renew();
  assert.deepEqual(one.trouble, ['lapsed']);
  await waitUntil(() => one.trouble.includes('failed'));
  await one.placements.renew();
  assert.equal(one.placements.isCurrent, false, 'it has joined again, and claimed nothing');
  await two.placements.renew();
  assert.deepEqual(await two.placements.claim(taken), { kind: 'here' });
  isAway = false;
  assert.equal(await one.placements.isStillHeld(taken), false);
  assert.equal(await one.placements.isStillHeld(kept), true);
  await one.placements.renew();
  await waitUntil(() => one.placements.isCurrent);
  assert.deepEqual(one.lost, [taken]);
  assert.equal(one.placements.held(kept)?.member, one.placements.self.id);
  await one.placements.close();
  await two.placements.close();
});

test('a claim that is under way while a process joins again is one of its new member', OPTIONS, async () => {
  const [sent, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { table, memory } = tableWith({
    claim: () => {
      sent.resolve();
      return gate.promise;
    },
  });
  const one = await join(table);
  const claiming = one.placements.claim(keyOf('s.1'));
  await sent.promise;
  await memory.leave(one.placements.self.id);
  await one.placements.renew();
  gate.resolve();
  assert.deepEqual(await claiming, { kind: 'here' });
  assert.equal(one.placements.held(keyOf('s.1'))?.member, one.placements.self.id);
  await one.placements.close();
});

test('a claim that its former member has made belongs to a process that joins again', OPTIONS, async () => {
  const [claimed, claimGate, listGate] = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
  assert.ok(claimed !== undefined && claimGate !== undefined && listGate !== undefined);
  let isGated = false;
  const { table, memory } = tableWith({ members: () => (isGated ? listGate.promise : Promise.resolve()) });
  const one = await join({
    ...table,
    claim: async (key, member, from) => {
      const placement = await memory.claim(key, member, from);
      claimed.resolve();
      await claimGate.promise;
      return placement;
    },
  });
  const claiming = one.placements.claim(keyOf('s.1'));
  await claimed.promise;
  const { id } = one.placements.self;
  await memory.leave(id);
  isGated = true;
  const renewed = one.placements.renew();
  await waitUntil(() => one.placements.self.id !== id);
  claimGate.resolve();
  assert.deepEqual(await claiming, { kind: 'here' });
  listGate.resolve();
  await renewed;
  await one.placements.close();
});

test('a member whose lease has lapsed leaves as another one', OPTIONS, async () => {
  const memory = new MemoryPlacementTable(1_000);
  const one = await join(memory);
  const key = keyOf('s.1');
  await one.placements.claim(key);
  const before = one.placements.self;
  // As a process that was stopped for so long, while others renewed their leases.
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_100);
  await memory.leave(before.id);
  await one.placements.leave();
  const [member] = await memory.members();
  assert.deepEqual(member, one.placements.self);
  assert.equal(member?.isLeaving, true);
  assert.notEqual(member.id, before.id);
  await waitUntil(() => one.placements.held(key)?.member === member.id);
  await one.placements.close();
});

test('a member gets nothing before it serves, also if that could not be told at once', OPTIONS, async () => {
  let isAway = false;
  const { table, memory } = tableWith({});
  const { placements } = await join({ ...table, join: (member) => (isAway ? away() : memory.join(member)) });
  const isTaking = async () => (await memory.members()).every(({ isLeaving = false }) => !isLeaving);
  assert.equal(await isTaking(), false);
  isAway = true;
  await placements.announce();
  assert.equal(await isTaking(), false);
  isAway = false;
  await placements.renew();
  assert.equal(await isTaking(), true);
  await placements.leave();
  assert.equal(await isTaking(), false);
  await placements.close();
});

test('a process hears that it has joined again, though members could not be listed', OPTIONS, async () => {
  let isAway = false;
  let joined = 0;
  const { table, memory } = tableWith({ members: () => (isAway ? away() : Promise.resolve()) });
  const { placements, trouble } = await join(table, { onRejoined: () => joined++ });
  await memory.leave(placements.self.id);
  isAway = true;
  await placements.renew();
  assert.deepEqual(trouble, ['lapsed', 'failed']);
  isAway = false;
  await placements.renew();
  assert.equal(joined, 1);
  assert.deepEqual(await memory.members(), [placements.self]);
  await placements.close();
});

test('a lease is renewed while many placements are confirmed', OPTIONS, async () => {
  const [sent, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  const { table } = tableWith({
    confirm: () => {
      sent.resolve();
      return gate.promise;
    },
  });
  const one = await join(table, { confirmMs: 0 });
  await one.placements.claim(keyOf('s.1'));
  await one.placements.renew();
  await sent.promise;
  await one.placements.renew();
  gate.resolve();
  await one.placements.close();
});

test('a placement that stands for nothing here is freed after a while', OPTIONS, async () => {
  const [used, unused] = [keyOf('s.1'), keyOf('s.2')];
  const { memory } = tableWith({});
  const one = await join(memory, { confirmMs: 0, isUsed: ({ name }) => name === used.name });
  const two = await join(memory);
  await one.placements.claim(used);
  await one.placements.claim(unused);
  await one.placements.renew();
  await waitUntil(async () => (await two.placements.claim(unused)).kind === 'here');
  assert.equal((await two.placements.claim(used)).kind, 'elsewhere');
  assert.deepEqual(one.lost, []);
  await one.placements.close();
  await two.placements.close();
});

test('a claim after a release is not freed by it, though its script is not known', OPTIONS, async () => {
  await using server = await RedisServer.start();
  const config = redisConfig(server.url);
  const { connection, keys, box } = await openRedis(config);
  const table = redisPlacementTable({ connection, keys, box }, LONG_MS);
  const one = await join(table);
  const key = keyOf('s.1');
  await one.placements.claim(key);
  await connection.command('SCRIPT', 'FLUSH');
  await one.placements.claim(keyOf('s.2'));
  const released = one.placements.release(key);
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' });
  await released;
  const placement = one.placements.held(key);
  assert.ok(placement !== undefined);
  assert.equal(await table.confirm(key, placement), true);
  await one.placements.close();
});

test('a claim that was answered before a release is made again', OPTIONS, async () => {
  const [claimed, claimGate, releaseGate] = Array.from({ length: 3 }, () => Promise.withResolvers<void>());
  assert.ok(claimed !== undefined && claimGate !== undefined && releaseGate !== undefined);
  const { table, memory } = tableWith({});
  const one = await join({
    ...table,
    claim: async (key, member, from) => {
      const placement = await table.claim(key, member, from);
      claimed.resolve();
      await claimGate.promise;
      return placement;
    },
    release: async (key, placement) => {
      await table.release(key, placement);
      await releaseGate.promise;
    },
  });
  const key = keyOf('s.1');
  claimGate.resolve();
  await one.placements.claim(key);
  const claiming = one.placements.claim(key);
  const releasing = one.placements.release(key);
  // The answers come in the order of the commands.
  await new Promise((resolve) => setImmediate(resolve));
  releaseGate.resolve();
  await Promise.all([claiming, releasing]);
  const placement = one.placements.held(key);
  assert.ok(placement !== undefined);
  assert.equal(await memory.confirm(key, placement), true);
  await one.placements.close();
});

// R12
test('a request waits for its owner for a bounded time in all', OPTIONS, async () => {
  const gate = Promise.withResolvers<void>();
  let isSlow = false;
  const { table, memory } = tableWith({ members: () => (isSlow ? gate.promise : Promise.resolve()) });
  const one = await join(table, { waitMs: 50 });
  const key = keyOf('s.1');
  await memory.claim(key, 'unknown', undefined);
  isSlow = true;
  await assert.rejects(one.placements.claim(key), { code: 'store-unavailable' });
  gate.resolve();
  await waitUntil(() => one.placements.held(key) !== undefined);
  assert.deepEqual(await one.placements.claim(key), { kind: 'here' }, 'the next request finds what was claimed');
  await one.placements.close();
});

test('placements that were revoked while Redis was away are noticed at once', OPTIONS, async () => {
  await using server = await RedisServer.start();
  await using relay = await TcpRelay.open(server.port);
  const config = redisConfig(server.url);
  const target = redisConfig(`redis://127.0.0.1:${relay.port}`).target;
  const [first, second] = [await openTable({ ...config, target }, LONG_MS), await openTable(config, LONG_MS)];
  const one = await join(first);
  const [ended, kept] = [keyOf('s.1'), keyOf('s.2')];
  await one.placements.claim(ended);
  await one.placements.claim(kept);
  relay.cut();
  await second.revoke(ended);
  relay.restore();
  await waitUntil(() => one.lost.length > 0);
  assert.deepEqual(one.lost, [ended]);
  await one.placements.close();
});

test('placements that cannot be confirmed after missed revocations are tried again', OPTIONS, async () => {
  const failures = [away, away];
  const { table, memory } = tableWith({ confirm: () => failures.pop()?.() ?? Promise.resolve() });
  let onMissed: (() => void) | undefined;
  const one = await join({
    ...table,
    watch: async (_member, _onRevoked, missed) => {
      onMissed = missed;
    },
  });
  const key = keyOf('s.1');
  await one.placements.claim(key);
  await memory.revoke(key);
  onMissed?.();
  await waitUntil(() => one.lost.length > 0);
  assert.deepEqual(one.lost, [key]);
  assert.deepEqual(failures, []);
  await one.placements.close();
});

test('a placement that is not held is reported as lost when it is checked', OPTIONS, async () => {
  const { memory } = tableWith({});
  const one = await join(memory);
  await one.placements.recheck(keyOf('s.1'));
  assert.deepEqual(one.lost, [keyOf('s.1')]);
  await one.placements.close();
});

// REL-27
test('a placement is not lost while the process claims it again', OPTIONS, async () => {
  const { memory } = tableWith({});
  const [asked, gate] = [Promise.withResolvers<void>(), Promise.withResolvers<boolean>()];
  const isEnded = () => {
    asked.resolve();
    return gate.promise;
  };
  const one = await join(memory, { isEnded });
  const key = keyOf('s.1');
  await one.placements.claim(key);
  await memory.leave(one.placements.self.id);
  await one.placements.renew();
  await asked.promise;
  const rechecked = one.placements.recheck(key);
  await turn();
  gate.resolve(false);
  await rechecked;
  assert.deepEqual(one.lost, []);
  assert.equal(one.placements.held(key)?.member, one.placements.self.id);
  await one.placements.close();
});

test('many placements are freed in groups, and those that a claim waits for at once', OPTIONS, async () => {
  const gate = Promise.withResolvers<void>();
  const [last, begun] = [keyOf('s.last'), new Array<string>()];
  const { table, memory } = tableWith({
    release: async ({ name }) => {
      begun.push(name);
      if (name !== last.name) await gate.promise;
    },
  });
  const { placements } = await join(table);
  const keys = [...Array.from({ length: 500 }, (_, index) => keyOf(`s.${index}`)), last];
  for (const key of keys) await placements.claim(key);
  for (const key of keys) void placements.release(key);
  await turn();
  assert.ok(begun.length > 0 && begun.length <= 64, `${begun.length} at once`);
  assert.deepEqual(await placements.claim(last), { kind: 'here' });
  assert.equal(begun.at(-1), last.name);
  gate.resolve();
  await placements.close();
  assert.deepEqual(new Set(begun), new Set(keys.map(({ name }) => name)));
  for (const key of keys) assert.equal((await memory.claim(key, 'other', undefined)).member, 'other');
});
