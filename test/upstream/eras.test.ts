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
} from '../../src/upstream/eras.ts';

const BOTH = erasOver(new Set(['legacy', 'modern']));
const LEGACY_ALONE = erasOver(new Set(['legacy']));
const MODERN_ALONE = erasOver(new Set(['modern']));

const yes = (era: Finding['era']): Finding => ({ era, speaks: 'yes', evidence: 'answered' });
const no = (era: Finding['era']): Finding => ({ era, speaks: 'no', evidence: 'refused' });
const after = (eras: Eras, ...findings: readonly Finding[]): Eras =>
  findings.reduce((before, finding) => recordFinding(before, finding, 1_000), eras);

suite('the handshakes that are tried, and the era that serves a client', () => {
  for (const { given, eras, legacy, modern, serves } of [
    {
      given: 'nothing is known',
      eras: BOTH,
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: [undefined, undefined],
    },
    {
      given: 'it speaks both',
      eras: after(BOTH, yes('legacy'), yes('modern')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: ['legacy', 'modern'],
    },
    {
      given: 'it speaks legacy and modern was never probed',
      eras: after(BOTH, yes('legacy')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: ['legacy', undefined],
    },
    {
      given: 'it speaks legacy alone',
      eras: after(BOTH, yes('legacy'), no('modern')),
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: ['legacy', 'legacy'],
    },
    {
      given: 'it speaks modern alone',
      eras: after(BOTH, no('legacy'), yes('modern')),
      legacy: ['modern'],
      modern: ['modern'],
      serves: ['modern', 'modern'],
    },
    {
      given: 'it was found to speak neither',
      eras: after(BOTH, no('legacy'), no('modern')),
      legacy: ['legacy', 'modern'],
      modern: ['modern', 'legacy'],
      serves: [undefined, undefined],
    },
    {
      given: 'the config says legacy',
      eras: LEGACY_ALONE,
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: [undefined, 'legacy'],
    },
    {
      given: 'the config says modern',
      eras: MODERN_ALONE,
      legacy: ['modern'],
      modern: ['modern'],
      serves: ['modern', undefined],
    },
    {
      given: 'the config says legacy and that was refused',
      eras: after(LEGACY_ALONE, no('legacy')),
      legacy: ['legacy'],
      modern: ['legacy'],
      serves: [undefined, undefined],
    },
  ] as const) {
    test(`N-40 where ${given}`, () => {
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

suite('how long a verdict lasts', () => {
  const doubtful: Finding = { ...no('modern'), isDoubtful: true };
  for (const { name, eras, speaks } of [
    {
      name: 'a refusal is believed for an hour',
      eras: dropExpired(after(BOTH, no('modern')), 999 + NO_MS),
      speaks: 'no',
    },
    { name: 'and not longer', eras: dropExpired(after(BOTH, no('modern')), 1_000 + NO_MS), speaks: 'unknown' },
    {
      name: 'a failure of an upstream in trouble is believed for a minute',
      eras: dropExpired(after(BOTH, doubtful), 1_000 + DOUBTFUL_NO_MS),
      speaks: 'unknown',
    },
    { name: 'an answer is believed without end', eras: dropExpired(after(BOTH, yes('modern')), 1e12), speaks: 'yes' },
    {
      name: 'after a failed start even an answer is doubted',
      eras: dropAfterFailure(after(BOTH, yes('modern')), 1_000 + REJUDGE_MS),
      speaks: 'unknown',
    },
    {
      name: 'unless it is less than a minute old',
      eras: dropAfterFailure(after(BOTH, yes('modern')), 999 + REJUDGE_MS),
      speaks: 'yes',
    },
    {
      name: 'the config is never doubted',
      eras: dropAfterFailure(dropExpired(LEGACY_ALONE, 1e12), 1e12),
      speaks: 'no',
    },
    {
      name: 'a server that was modern and refuses is modern no longer',
      eras: after(BOTH, yes('modern'), no('modern')),
      speaks: 'no',
    },
    { name: 'no finding overrules the config', eras: after(LEGACY_ALONE, yes('modern')), speaks: 'no' },
  ]) {
    test(`N-40 ${name}`, () => assert.equal(eras.modern.speaks, speaks));
  }
});
