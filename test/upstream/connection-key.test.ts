import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import type { Isolation } from '../../src/config/config.ts';
import type { Era } from '../../src/protocol/revisions.ts';
import { connectionKey, type ConnectionUser, discoveryKey } from '../../src/upstream/connection-key.ts';

const USER: ConnectionUser = { key: 'u1', era: 'legacy', principal: 'anna', view: '', capabilityKey: 'c1' };
const MODERN: ConnectionUser = { ...USER, era: 'modern' };
const ISOLATIONS = ['session', 'principal', 'shared', 'call'] as const;

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
    test(`N-40 ${name}`, () => {
      const shared = ISOLATIONS.filter((isolation) => {
        const scope = { isolation, era, isProcess };
        return connectionKey(scope, a, 1) === connectionKey(scope, b, 2);
      });
      assert.deepEqual(
        shared,
        ISOLATIONS.filter((isolation) => together.includes(isolation)),
      );
    });
  }

  test('N-40 a connection of one era never serves the other', () => {
    for (const isolation of ISOLATIONS) {
      const keys = (['legacy', 'modern'] as const).map((era) =>
        connectionKey({ isolation, era, isProcess: true }, MODERN, 1),
      );
      assert.notEqual(keys[0], keys[1]);
    }
  });

  test('N-40 lists are read over a connection that belongs to no single client', () => {
    for (const era of ['legacy', 'modern'] as const) {
      for (const isolation of ['session', 'principal', 'call'] as const) {
        const scope = { isolation, era, isProcess: true };
        assert.notEqual(discoveryKey(scope, USER.capabilityKey), connectionKey(scope, { ...USER, era }, 1));
      }
    }
  });
});
