import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { testCore, type TestCore } from '../support/core.ts';
import { legacyUpstream, modernUpstream, refuseWith, type ServerScript } from '../support/http-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const INVALID_PARAMS = -32_602;

/** A server that answers every `prompts/get` with this error. */
function failing(error: object): ServerScript {
  return { prompts: [{ name: 'listed' }], answers: { 'prompts/get': refuseWith(error) } };
}

async function getAsModern(gateway: TestCore, name: string, view = 'up') {
  return (await modernRequest(gateway, 'prompts/get', { name }, { view }).reply).error;
}

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  // N-91
  suite(`a ${era} upstream that does not know a prompt`, () => {
    // Codes of the SDKs: Python 1, TypeScript, Kotlin; and one of a server without prompts.
    for (const code of [0, INVALID_PARAMS, -32_603, -32_601]) {
      test(`gives a modern client ${INVALID_PARAMS} where it says ${code}`, TIMEOUT, async () => {
        const error = { code, message: 'Unknown prompt: other', data: { hint: 'look elsewhere' } };
        await using up = await start(failing(error));
        await using gateway = await testCore({ up: up.config });
        assert.deepEqual(await getAsModern(gateway, 'other'), { ...error, code: INVALID_PARAMS });
      });
    }

    test('keeps its own code if the prompt is listed', TIMEOUT, async () => {
      const error = { code: 7, message: 'disk failure' };
      await using up = await start(failing(error));
      await using gateway = await testCore({ up: up.config });
      assert.deepEqual(await getAsModern(gateway, 'listed'), error);
      assert.deepEqual(await getAsModern(gateway, 'up__listed', ''), error);
    });

    test('keeps its own code for another failure', TIMEOUT, async () => {
      const error = { code: -32_000, message: 'Rate limited', data: { retryAfter: 7 } };
      await using up = await start(failing(error));
      await using gateway = await testCore({ up: up.config });
      assert.deepEqual(await getAsModern(gateway, 'other'), error);
    });

    test('keeps its own code for a legacy client', TIMEOUT, async () => {
      const error = { code: 0, message: 'Unknown prompt: other' };
      await using up = await start(failing(error));
      await using gateway = await testCore({ up: up.config });
      const client = await gateway.connect({ view: 'up' });
      const { answer } = await client.request('prompts/get', { name: 'other' });
      assert.deepEqual(answer, { kind: 'error', error });
    });
  });
}

// N-91
test('a missing capability of a modern upstream does not mean an unknown prompt', TIMEOUT, async () => {
  const data = { requiredCapabilities: { elicitation: {} } };
  await using up = await modernUpstream(failing({ code: -32_021, message: 'cannot ask', data }));
  await using gateway = await testCore({ up: up.config });
  assert.partialDeepStrictEqual(await getAsModern(gateway, 'other'), { code: -32_021, data });
});
