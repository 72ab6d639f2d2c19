import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import {
  keyText,
  type PlacementKey,
  type PlacementTable,
  placementText,
  sessionKey,
} from '../../src/store/placement-table.ts';
import type { Fencing, SessionRef, SessionStore } from '../../src/store/session-store.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const HOUR = 3_600_000;

/** One process of a gateway, with the placements of its sessions. */
export class SessionProcess<Store extends SessionStore = SessionStore> {
  readonly store: Store;
  readonly table: PlacementTable;
  /** Sessions whose changes were refused. */
  readonly fenced: SessionRef[] = [];
  /** Checks whether a session whose change was refused belongs to this process. */
  onFenced: ((session: SessionRef) => Promise<void>) | undefined;
  readonly #placements = new Map<string, string>();

  constructor(table: PlacementTable, open: (fencing: Fencing) => Store) {
    this.table = table;
    this.store = open({
      fenceOf: (session) => this.#placements.get(keyText(sessionKey(session))),
      onFenced: async (session) => {
        this.fenced.push(session);
        await this.onFenced?.(session);
      },
    });
  }

  /** Claims a session as this member. @param from the member that has it. */
  async claim(session: Pick<SessionRef, 'principal' | 'serial'>, member = 'one', from?: string): Promise<void> {
    const key = sessionKey(session);
    this.#placements.set(keyText(key), placementText(await this.table.claim(key, member, from)));
  }

  /** Opens a session, and claims it. */
  async open(principal: string = randomUUID()): Promise<SessionRef> {
    const session = { principal, serial: await this.store.nextSerial(principal), expiresMs: Date.now() + HOUR };
    await this.claim(session);
    return session;
  }

  /** Returns the store for the contract of all stores, which knows no placements: each session is claimed when it is opened. */
  claiming(): SessionStore {
    const { store } = this;
    return {
      failure: undefined,
      nextSerial: async (principal) => (await this.open(principal)).serial,
      load: (session) => store.load(session),
      change: (session, change) => store.change(session, change),
      end: (session) => store.end(session),
      isEnded: (session) => store.isEnded(session),
      [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
    };
  }
}

/** The contract of every session store that several processes share. `open` opens two processes of one gateway. */
export function fencedSessionsContract(
  name: string,
  open: () => Promise<readonly [one: SessionProcess, two: SessionProcess]>,
): void {
  test(`${name}: processes see the changes, serial numbers and ends of each other`, OPTIONS, async () => {
    const [one, two] = await open();
    const session = await one.open();
    await one.store.change(session, { kind: 'use', upstream: 'files' });
    await two.claim(session, 'two', 'one');
    await two.store.change(session, { kind: 'subscribe', uri: 'a' });
    assert.deepEqual(await one.store.load(session), { subscriptions: ['a'], upstreams: ['files'] });
    const serials = await Promise.all(
      Array.from({ length: 20 }, (_, n) => (n % 2 === 0 ? one : two).store.nextSerial(session.principal)),
    );
    assert.deepEqual(
      serials.toSorted((a, b) => a - b),
      Array.from({ length: 20 }, (_, n) => session.serial + 1 + n),
    );
    assert.equal(await two.store.end(session), true);
    assert.equal(await one.store.isEnded(session), true);
    assert.equal(await one.store.load(session), undefined);
  });

  // REL-27
  test(`${name}: a change by a process that has lost the session is refused`, OPTIONS, async () => {
    const [one, two] = await open();
    const session = await one.open();
    assert.equal(await one.store.change(session, { kind: 'subscribe', uri: 'a' }), undefined);
    await two.claim(session, 'two', 'one');
    for (const change of [
      { kind: 'subscribe', uri: 'b' },
      { kind: 'unsubscribe', uri: 'a' },
      { kind: 'level', level: 'error' },
      { kind: 'use', upstream: 'x' },
      { kind: 'attach', upstream: 'x', text: 'y' },
    ] as const) {
      assert.equal(await one.store.change(session, change), 'fenced', change.kind);
    }
    assert.deepEqual(one.fenced, Array(5).fill(session), 'it checks whether it has the session');
    assert.equal(await two.store.change(session, { kind: 'level', level: 'debug' }), undefined);
    assert.deepEqual(await two.store.load(session), { subscriptions: ['a'], logLevel: 'debug' });
    assert.deepEqual(two.fenced, []);
  });

  // REL-27
  test(`${name}: a process that claims its session again writes with the new token alone`, OPTIONS, async () => {
    const [one, two] = await open();
    const session = await one.open();
    await two.claim(session, 'one');
    // Only this process has the new token of the member.
    await one.claim(session, 'one', 'one');
    assert.equal(await two.store.change(session, { kind: 'subscribe', uri: 'old' }), 'fenced');
    assert.equal(await one.store.change(session, { kind: 'subscribe', uri: 'new' }), undefined);
    assert.deepEqual(await two.store.load(session), { subscriptions: ['new'] });
  });

  // REL-27
  test(
    `${name}: a change that crosses a new claim of its own process is made with the new token`,
    OPTIONS,
    async () => {
      const [one] = await open();
      const session = await one.open();
      // The process learns of its new placement after the change was sent.
      const claimed = await one.table.claim(sessionKey(session), 'one again', 'one');
      one.onFenced = (each) => one.claim(each, claimed.member);
      assert.equal(await one.store.change(session, { kind: 'use', upstream: 'x' }), undefined);
      assert.deepEqual(one.fenced, [session]);
      assert.deepEqual(await one.store.load(session), { subscriptions: [], upstreams: ['x'] });
    },
  );

  // REL-27
  test(`${name}: a process without a placement changes nothing`, OPTIONS, async () => {
    const [one, two] = await open();
    const session = await one.open();
    assert.equal(await two.store.change(session, { kind: 'attach', upstream: 'x', text: 'y' }), 'fenced');
    assert.deepEqual(two.fenced, [session]);
    const nobodys = { ...session, serial: await one.store.nextSerial(session.principal) };
    assert.equal(await one.store.change(nobodys, { kind: 'use', upstream: 'x' }), 'fenced');
    for (const each of [session, nobodys]) assert.equal(await two.store.load(each), undefined);
  });

  test(`${name}: an end by any process frees the placement and reaches the owner`, OPTIONS, async () => {
    const [one, two] = await open();
    const session = await one.open();
    const key = sessionKey(session);
    const revoked: PlacementKey[] = [];
    await one.table.watch(
      'one',
      (each) => revoked.push(each),
      () => undefined,
    );
    const placement = await one.table.claim(key, 'one', undefined);
    assert.equal(await two.store.end(session), true);
    await waitUntil(() => revoked.length > 0);
    assert.deepEqual(revoked, [key]);
    assert.equal(await one.table.confirm(key, placement), false);
    assert.equal(await one.store.change(session, { kind: 'level', level: 'error' }), undefined, 'it has ended');
    assert.deepEqual([one.fenced, await one.store.load(session)], [[], undefined]);
  });
}
