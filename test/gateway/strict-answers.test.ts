import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../support/core.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { ModernClient } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  // M-018
  test(`clients get at most 100 completion values of a ${era} upstream`, TIMEOUT, async () => {
    const values = Array.from({ length: 150 }, (_, i) => `v${i}`);
    await using up = await start({
      capabilities: { prompts: {}, completions: {} },
      prompts: [{ name: 'p' }],
      answers: { 'completion/complete': () => ({ completion: { values } }) },
    });
    await using gateway = await testCore({ up: up.config });
    const params = { ref: { type: 'ref/prompt', name: 'up__p' }, argument: { name: 'a', value: '' } };
    for (const client of [await gateway.connect(), new ModernClient(gateway)]) {
      const { completion } = await client.result('completion/complete', params);
      assert.deepEqual(completion, { values: values.slice(0, 100), total: 150, hasMore: true });
    }
  });
}
