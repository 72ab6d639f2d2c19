import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import type { Owners } from '../../../src/gateway/exchange/owners.ts';
import type { ModernCaller, Owner } from '../../../src/gateway/front/front.ts';
import { RawObject } from '../../../src/json/json.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { LOCAL } from '../../../src/policy/principal.ts';

const OPTIONS = { timeout: 120_000 };
const REQUEST = { kind: 'request', id: '1', method: 'tasks/get', params: undefined } as const;
const CALLER: ModernCaller = {
  principal: LOCAL,
  view: '',
  revision: '2026-07-28',
  capabilities: RawObject.EMPTY,
  logLevel: undefined,
};
const SINK = { receivedMs: 0, send: () => true, answer: () => undefined };

function newSession() {
  return { kind: 'session', session: { principal: randomUUID(), serial: 1, expiresMs: Date.now() + 60_000 } } as const;
}

/** The contract of every implementation. `open` returns the owners of a new process, which is the only one of its gateway. */
export function ownersContract(name: string, open: () => Owners): void {
  test(`${name}: each process has a name of its own, which cannot be guessed`, OPTIONS, () => {
    const names = Array.from({ length: 8 }, () => open().name);
    assert.equal(new Set(names).size, 8);
    for (const one of names) assert.ok(one.length >= 32);
  });

  test(`${name}: a process owns the calls and tasks whose handles it sealed`, OPTIONS, async () => {
    const owners = open();
    for (const kind of ['parked-call', 'task'] as const) {
      assert.deepEqual(await owners.ownerOf({ kind, process: owners.name }), { kind: 'here' });
    }
  });

  test(`${name}: calls and tasks of an unknown process are gone`, OPTIONS, async () => {
    const owners = open();
    for (const process of [open().name, '', randomUUID()]) {
      for (const kind of ['parked-call', 'task'] as const) {
        assert.deepEqual(await owners.ownerOf({ kind, process }), { kind: 'gone' });
      }
    }
  });

  test(`${name}: a session without owner belongs to the first process that asks`, OPTIONS, async () => {
    const owners = open();
    for (const principal of [randomUUID(), '', '__proto__']) {
      const session = { principal, serial: 1, expiresMs: Date.now() + 60_000 };
      for (let n = 0; n < 2; n++)
        assert.deepEqual(await owners.ownerOf({ kind: 'session', session }), { kind: 'here' });
      assert.equal(owners.isCurrent, true);
      assert.equal(await owners.stillOwns(session), true);
      owners.release(session);
      assert.deepEqual(await owners.ownerOf({ kind: 'session', session }), { kind: 'here' });
    }
  });
}

/** One process of a gateway of several. */
export interface TestProcess {
  readonly owners: Owners;
  /** Sets what answers the requests that other processes pass on. */
  serve(owner: Owner): void;
  leave(): void;
}

/** The contract of every implementation for several processes. `open` returns a function that adds one to a new gateway. */
export function joinedOwnersContract(name: string, open: () => () => TestProcess): void {
  /** Adds two processes that answer requests. Returns them with the names of those that got one. */
  const two = () => {
    const join = open();
    const calls: string[] = [];
    const processes = [join(), join()] as const;
    for (const process of processes) {
      process.serve({
        forward: () => Promise.reject(new Error('there is no HTTP here')),
        handleMessage: () => Promise.resolve(),
        handleModernRequest: () => {
          calls.push(process.owners.name);
          return { cancel: () => undefined, close: () => undefined };
        },
      });
    }
    return { first: processes[0], second: processes[1], calls };
  };

  test(`${name}: a session belongs to one process, whichever asks`, OPTIONS, async () => {
    const { first, second } = two();
    const session = newSession();
    const answers = await Promise.all(
      [first, second, first, second].map(async ({ owners }) => await owners.ownerOf(session)),
    );
    const kinds = answers.map(({ kind }) => kind);
    assert.deepEqual(kinds.toSorted(), ['elsewhere', 'elsewhere', 'here', 'here']);
    assert.equal(kinds[0], kinds[2]);
  });

  test(`${name}: a request for another process’s task or call reaches it`, OPTIONS, async () => {
    const { first, second, calls } = two();
    for (const kind of ['parked-call', 'task'] as const) {
      const found = await second.owners.ownerOf({ kind, process: first.owners.name });
      assert.ok(found.kind === 'elsewhere');
      found.owner.handleModernRequest(REQUEST, CALLER, SINK, () => undefined);
    }
    assert.deepEqual(calls, [first.owners.name, first.owners.name]);
  });

  test(`${name}: calls of a process that left are gone, its sessions are free`, OPTIONS, async () => {
    const { first, second } = two();
    const session = newSession();
    assert.equal((await first.owners.ownerOf(session)).kind, 'here');
    assert.equal((await second.owners.ownerOf(session)).kind, 'elsewhere');
    first.leave();
    const parked = { kind: 'parked-call', process: first.owners.name } as const;
    assert.deepEqual(await second.owners.ownerOf(parked), { kind: 'gone' });
    assert.deepEqual(await second.owners.ownerOf(session), { kind: 'here' });
  });

  test(`${name}: a session that its process releases belongs to who asks next`, OPTIONS, async () => {
    const { first, second } = two();
    const owned = newSession();
    assert.equal((await first.owners.ownerOf(owned)).kind, 'here');
    first.owners.release(owned.session);
    await waitUntil(async () => (await second.owners.ownerOf(owned)).kind === 'here');
    assert.equal((await first.owners.ownerOf(owned)).kind, 'elsewhere');
    assert.equal(first.owners.isAlone, false);
  });
}
