import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Gate } from '../../../src/gateway/exchange/gate.ts';
import { PrincipalShares } from '../../../src/gateway/exchange/principal-shares.ts';
import { LIMITS } from '../../../src/limits.ts';
import { operatorPrincipal } from '../../../src/policy/principal.ts';
import { accessOf, keyOf } from '../../policy/policies.ts';

const OPEN = { auth: { jwt: [], apiKeys: [] } };
const CLOSED = { auth: { jwt: [], apiKeys: [{ name: 'ann', sha256: '00' }] } };

function sharesOf(config: typeof OPEN | typeof CLOSED = CLOSED) {
  const reached: string[] = [];
  const shares = new PrincipalShares({
    config,
    onRefused: () => undefined,
    onLimit: (limit) => reached.push(limit),
  });
  return { shares, reached };
}

test('principals share only if clients need credentials, also after a reload', () => {
  const { shares } = sharesOf(OPEN);
  assert.equal(shares.isOn, false);
  shares.setConfig(CLOSED);
  assert.equal(shares.isOn, true);
});

test('the greatest weight of the roles of a principal holds, at any endpoint', () => {
  const { shares } = sharesOf();
  const roles = { all: { tools: ['*'] }, some: { weight: 2 }, heavy: { weight: 5 } };
  const grants = [
    { roles: ['all'], anyone: true },
    { roles: ['some', 'heavy'], groups: ['ops'], endpoints: ['github'] },
    { roles: ['some'], keys: ['bob'] },
  ];
  const gate = new Gate(accessOf(roles, grants), [], shares);
  for (const principal of [keyOf('ann', ['ops']), keyOf('bob'), keyOf('cy')]) gate.rightsOf(principal, '');
  gate.rightsOf(operatorPrincipal('root'), '');
  const weights = ['key:ann', 'key:bob', 'key:cy', '', 'operator:root'].map((key) => shares.weightOf(key));
  assert.deepEqual(weights, [5, 2, 1, 1, 1]);
  gate.rightsOf(keyOf('ann'), '');
  assert.equal(shares.weightOf('key:ann'), 1, 'the latest request decides');
});

test('a reload takes weights back until the next request', () => {
  const { shares } = sharesOf();
  const access = (weight: number) => accessOf({ all: { tools: ['*'], weight } }, [{ roles: ['all'], anyone: true }]);
  const gate = new Gate(access(4), [], shares);
  gate.rightsOf(keyOf('ann'), '');
  shares.setConfig(CLOSED);
  gate.setConfig(access(6));
  assert.equal(shares.weightOf('key:ann'), 1);
  gate.rightsOf(keyOf('ann'), '');
  assert.equal(shares.weightOf('key:ann'), 6);
});

test('limit principalWeights: beyond it the oldest principal has weight 1', () => {
  const { shares, reached } = sharesOf();
  for (let i = 0; i < LIMITS.principalWeights; i++) shares.setWeight(`p${i}`, 2);
  shares.setWeight('p0', 3);
  assert.deepEqual(reached, []);
  shares.setWeight('new', 2);
  assert.deepEqual(
    ['p0', 'p1', 'p2', 'new'].map((key) => shares.weightOf(key)),
    [3, 1, 2, 2],
  );
  assert.deepEqual(reached, ['principalWeights']);
});
