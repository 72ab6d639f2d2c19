import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Isolation } from '../../src/config/values/upstream-config.ts';
import type { Era } from '../../src/protocol/revisions.ts';
import {
  audienceOf,
  connectionPlace,
  type ConnectionScope,
  type ConnectionUser,
  discoveryPlace,
  EVERYBODY,
} from '../../src/upstream/connection-key.ts';

const connectionKey = (...args: Parameters<typeof connectionPlace>) => connectionPlace(...args).key;
const discoveryKey = (...args: Parameters<typeof discoveryPlace>) => discoveryPlace(...args).key;

const USER: ConnectionUser = { key: 'u1', era: 'legacy', principal: 'anna', view: '', capabilityKey: 'c1' };
const MODERN: ConnectionUser = { ...USER, era: 'modern' };
const ISOLATIONS = ['session', 'principal', 'shared', 'call'] as const;

const PLACES = (['legacy', 'modern'] as const).flatMap((era) =>
  [true, false].flatMap((isProcess) => ISOLATIONS.map((isolation) => ({ era, isProcess, isolation }))),
);

interface Case {
  readonly name: string;
  readonly era: Era;
  readonly isProcess?: boolean;
  readonly a: ConnectionUser;
  readonly b: ConnectionUser;
  /** The isolations under which both are served by one connection. */
  readonly together: readonly Isolation[];
}

const CASES: readonly Case[] = [
  { name: 'two calls of one session', era: 'legacy', a: USER, b: USER, together: ['session', 'principal', 'shared'] },
  {
    name: 'two sessions of one principal',
    era: 'legacy',
    a: USER,
    b: { ...USER, key: 'u2' },
    together: ['principal', 'shared'],
  },
  {
    name: 'two sessions of one principal with different capabilities',
    era: 'legacy',
    a: USER,
    b: { ...USER, key: 'u2', capabilityKey: 'c2' },
    together: ['shared'],
  },
  {
    name: 'sessions of two principals',
    era: 'legacy',
    a: USER,
    b: { ...USER, key: 'u2', principal: 'bert' },
    together: ['shared'],
  },
  {
    name: 'modern requests of one principal with different capabilities',
    era: 'modern',
    a: MODERN,
    b: { ...MODERN, key: 'u2', capabilityKey: 'c2' },
    together: ['session', 'principal', 'shared'],
  },
  {
    name: 'modern requests of one principal at two endpoints',
    era: 'modern',
    a: MODERN,
    b: { ...MODERN, key: 'u2', view: 'work' },
    together: ['principal', 'shared'],
  },
  {
    name: 'modern requests of two principals',
    era: 'modern',
    a: MODERN,
    b: { ...MODERN, key: 'u2', principal: 'bert' },
    together: ['shared'],
  },
  {
    name: 'two sessions of one principal at a modern upstream',
    era: 'modern',
    a: USER,
    b: { ...USER, key: 'u2' },
    together: ['principal', 'shared'],
  },
  {
    name: 'modern requests of two principals over HTTP',
    era: 'modern',
    isProcess: false,
    a: MODERN,
    b: { ...MODERN, key: 'u2', principal: 'bert' },
    together: ['session', 'principal', 'shared', 'call'],
  },
  {
    name: 'two views and principals with the same concatenated text',
    era: 'modern',
    a: { ...MODERN, view: 'a', principal: 'b c' },
    b: { ...MODERN, view: 'a b', principal: 'c' },
    together: ['shared'],
  },
];

suite('users that share a connection', () => {
  for (const { name, era, isProcess = true, a, b, together } of CASES) {
    // N-40
    test(name, () => {
      const shared = ISOLATIONS.filter((isolation) => {
        const scope: ConnectionScope = { isolation, era, isProcess, credentials: 'gateway' };
        return connectionKey(scope, a, 1) === connectionKey(scope, b, 2);
      });
      assert.deepEqual(
        shared,
        ISOLATIONS.filter((isolation) => together.includes(isolation)),
      );
    });
  }

  // N-40
  test('a connection of one era never serves the other', () => {
    for (const isolation of ISOLATIONS) {
      const keys = (['legacy', 'modern'] as const).map((era) =>
        connectionKey({ isolation, era, isProcess: true, credentials: 'gateway' }, MODERN, 1),
      );
      assert.notEqual(keys[0], keys[1]);
    }
  });

  // N-40
  test('lists are read over a connection that belongs to no single client', () => {
    for (const era of ['legacy', 'modern'] as const) {
      for (const isolation of ['session', 'principal', 'call'] as const) {
        const scope = { isolation, era, isProcess: true, credentials: 'gateway' } as const;
        assert.notEqual(discoveryKey(scope, USER.capabilityKey, ''), connectionKey(scope, { ...USER, era }, 1));
      }
    }
  });

  test('with credentials of the gateway everything is for everybody', () => {
    assert.equal(audienceOf('gateway', 'anna'), EVERYBODY);
    assert.equal(audienceOf('principal', 'anna'), 'anna');
  });

  for (const place of PLACES) {
    const scope: ConnectionScope = { ...place, credentials: 'principal' };
    const { era, isProcess, isolation } = place;
    const users: readonly ConnectionUser[] = (['legacy', 'modern'] as const).flatMap((client) =>
      ['', 'work'].map((view) => ({ ...USER, era: client, view })),
    );
    const keysOf = (principal: string): readonly string[] => [
      ...users.map((user) => connectionKey(scope, { ...user, principal }, 1)),
      ...['', 'c1'].map((capabilityKey) => discoveryKey(scope, capabilityKey, audienceOf('principal', principal))),
    ];

    test(`two principals with own credentials share nothing: ${era}, ${isProcess ? 'stdio' : 'HTTP'}, ${isolation}`, () => {
      // One principal contains the parts of the keys of another.
      const principals = ['anna', 'bert', 'anna"]', '","anna', 'anna c1', '', '\\'];
      const owners = new Map<string, string>();
      for (const principal of principals) {
        for (const key of new Set(keysOf(principal))) {
          assert.equal(owners.get(key), undefined, key);
          owners.set(key, principal);
        }
      }
    });

    test(`credentials change no sharing of one principal: ${era}, ${isProcess ? 'stdio' : 'HTTP'}, ${isolation}`, () => {
      const sharingOf = (credentials: ConnectionScope['credentials']) => {
        const keys = users.map((user, n) => connectionKey({ ...place, credentials }, user, n));
        return keys.map((key) => keys.indexOf(key));
      };
      assert.deepEqual(sharingOf('principal'), sharingOf('gateway'));
    });
  }

  test('the place of a connection has its purpose, whatever its user is called', () => {
    const names = ['call x', 'discovery ', 'shared ["legacy",""]'];
    for (const place of PLACES) {
      for (const credentials of ['gateway', 'principal'] as const) {
        const scope: ConnectionScope = { ...place, credentials };
        for (const name of names) {
          const user = { ...USER, key: name, principal: name, view: name };
          const found = connectionPlace(scope, user, 1);
          const isShared = place.isolation === 'shared' || (place.era === 'modern' && !place.isProcess);
          const ofClients = place.isolation === 'call' ? 'call' : 'clients';
          assert.equal(found.purpose, isShared ? 'all' : ofClients);
          const discovery = discoveryPlace(scope, 'c1', audienceOf(credentials, name));
          assert.equal(discovery.purpose, isShared ? 'all' : 'discovery');
        }
      }
    }
  });
});
