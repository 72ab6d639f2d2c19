import assert from 'node:assert/strict';
import { test } from 'node:test';
import { namesItems } from '../../../src/compose/lists/names-items.ts';
import { loadText } from '../../support/config-file.ts';
import { shortened } from '../../support/test-name.ts';

const RATE = 'name: r, to: {anyone: true}, limit: 1, window: 1m';
const CONFIGS: readonly (readonly [own: string, gateway: string, isExpected: boolean])[] = [
  ['', `rates: [{${RATE}}], profiles: {p: {upstreams: [a]}}`, false],
  ['', `rates: [{${RATE}}, {${RATE.replace('r', 's')}, tools: [x]}]`, true],
  ['', 'repeats: {limit: 1, window: 1m, tools: [x]}', true],
  ['', 'access: {roles: {r: {tools: [x]}}, grants: [{anyone: true, roles: [r]}]}', true],
  ['', 'profiles: {p: {includeTools: []}}', true],
  ['', 'profiles: {p: {renames: {x: y}}}', true],
  [', excludeTools: [x]', '', true],
  [', includeTools: [x]', '', true],
];

for (const [own, gateway, isExpected] of CONFIGS) {
  test(`a config ${isExpected ? 'names' : 'does not name'} items: ${shortened(gateway + own, 40)}`, async () => {
    const { config } = await loadText(`mcpServers: {a: {command: x${own}}}\ngateway: {${gateway}}\n`);
    assert.equal(namesItems(config), isExpected);
  });
}
