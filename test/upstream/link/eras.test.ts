import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import {
  dropExpired,
  DOUBTFUL_NO_MS,
  dropAfterFailure,
  type Eras,
  erasOver,
  type Finding,
  recordFinding,
  NO_MS,
  planHandshakes,
  REJUDGE_MS,
  servingEra,
} from '../../../src/upstream/link/eras.ts';

const BOTH = erasOver(new Set(['legacy', 'modern']));
const LEGACY_ALONE = erasOver(new Set(['legacy']));
const MODERN_ALONE = erasOver(new Set(['modern']));

const yes = (era: Finding['era']): Finding => ({ era, speaks: 'yes', evidence: 'answered' });
const no = (era: Finding['era']): Finding => ({ era, speaks: 'no', evidence: 'refused' });
const after = (eras: Eras, ...findings: readonly Finding[]): Eras =>
  findings.reduce((before, finding) => recordFinding(before, finding, 1_000), eras);

suite('handshake plan and serving era', () => {
  for (const { given, eras, legacy, modern, serves } of [
    {
      given: 'both eras are unknown',
      eras: BOTH,
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: [undefined, undefined],
    },
    {
      given: 'both eras are supported',
      eras: after(BOTH, yes('legacy'), yes('modern')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: ['legacy', 'modern'],
    },
    {
      given: 'legacy is yes and modern was never probed',
      eras: after(BOTH, yes('legacy')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: ['legacy', undefined],
    },
    {
      given: 'legacy is yes and modern is no',
      eras: after(BOTH, yes('legacy'), no('modern')),
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: ['legacy', 'legacy'],
    },
    {
      given: 'legacy is no and modern is yes',
      eras: after(BOTH, no('legacy'), yes('modern')),
      legacy: ['modern'],
      modern: ['modern'],
      serves: ['modern', 'modern'],
    },
    {
      given: 'no era is supported',
      eras: after(BOTH, no('legacy'), no('modern')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: [undefined, undefined],
    },
    {
      given: 'the config allows only legacy',
      eras: LEGACY_ALONE,
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: [undefined, 'legacy'],
    },
    {
      given: 'the config allows only modern',
      eras: MODERN_ALONE,
      legacy: ['modern'],
      modern: ['modern'],
      serves: ['modern', undefined],
    },
    {
      given: 'the config allows only legacy, which was refused',
      eras: after(LEGACY_ALONE, no('legacy')),
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: [undefined, undefined],
    },
  ] as const) {
    // N-40
    test(`if ${given}`, () => {
      assert.deepEqual(
        [
          planHandshakes(eras, 'legacy'),
          planHandshakes(eras, 'modern'),
          servingEra(eras, 'legacy'),
          servingEra(eras, 'modern'),
        ],
        [legacy, modern, ...serves],
      );
    });
  }
});

suite('validity of findings', () => {
  const doubtful: Finding = { ...no('modern'), isDoubtful: true };
  for (const { name, eras, speaks } of [
    {
      name: 'a refusal is valid for an hour',
      eras: dropExpired(after(BOTH, no('modern')), 999 + NO_MS),
      speaks: 'no',
    },
    {
      name: 'a refusal expires after an hour',
      eras: dropExpired(after(BOTH, no('modern')), 1_000 + NO_MS),
      speaks: 'unknown',
    },
    {
      name: 'a transient failure is valid for a minute',
      eras: dropExpired(after(BOTH, doubtful), 1_000 + DOUBTFUL_NO_MS),
      speaks: 'unknown',
    },
    { name: 'an answer never expires', eras: dropExpired(after(BOTH, yes('modern')), 1e12), speaks: 'yes' },
    {
      name: 'a failed start drops an old answer',
      eras: dropAfterFailure(after(BOTH, yes('modern')), 1_000 + REJUDGE_MS),
      speaks: 'unknown',
    },
    {
      name: 'a failed start keeps an answer of less than a minute',
      eras: dropAfterFailure(after(BOTH, yes('modern')), 999 + REJUDGE_MS),
      speaks: 'yes',
    },
    {
      name: 'an exclusion by the config never expires',
      eras: dropAfterFailure(dropExpired(LEGACY_ALONE, 1e12), 1e12),
      speaks: 'no',
    },
    {
      name: 'a later refusal replaces an answer',
      eras: after(BOTH, yes('modern'), no('modern')),
      speaks: 'no',
    },
    { name: 'no finding changes an exclusion by the config', eras: after(LEGACY_ALONE, yes('modern')), speaks: 'no' },
  ]) {
    // N-40
    test(name, () => assert.equal(eras.modern.speaks, speaks));
  }
});
