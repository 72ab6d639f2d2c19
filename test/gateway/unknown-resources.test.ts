import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { testCore, type TestCore } from '../support/core.ts';
import { legacyUpstream, modernUpstream, refuseWith, type ServerScript } from '../support/http-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };
const INVALID_PARAMS = -32_602;

/** A server that answers every read with this error. */
function failing(error: object): ServerScript {
  return {
    resources: [{ uri: 'test://listed', name: 'listed' }],
    resourceTemplates: [{ uriTemplate: 'test://made/{id}', name: 'made' }],
    answers: { 'resources/read': refuseWith(error) },
  };
}

interface ReadError {
  readonly code: number;
  readonly message: string;
  readonly data?: unknown;
}

async function readAsModern(gateway: TestCore, uri: string, view = ''): Promise<ReadError | undefined> {
  return (await modernRequest(gateway, 'resources/read', { uri }, { view }).reply).error;
}

async function readAsLegacy(gateway: TestCore, uri: string): Promise<ReadError | undefined> {
  const client = await gateway.connect();
  const { answer } = await client.request('resources/read', { uri });
  return answer.kind === 'error' ? answer.error : undefined;
}

for (const [era, start] of [
  ['legacy', legacyUpstream],
  ['modern', modernUpstream],
] as const) {
  // N-46
  suite(`a ${era} upstream that does not know a resource`, () => {
    // Codes of the SDKs: Python, most others, Kotlin; and one of a server without resources.
    for (const code of [0, -32_002, -32_603, -32_601]) {
      test(`gives a modern client ${INVALID_PARAMS} instead of ${code}`, TIMEOUT, async () => {
        await using up = await start(failing({ code, message: 'Unknown resource' }));
        await using gateway = await testCore({ up: up.config });
        assert.deepEqual(await readAsModern(gateway, 'up+test://other'), {
          code: INVALID_PARAMS,
          message: 'Unknown resource',
          data: { uri: 'up+test://other' },
        });
        const alone = await readAsModern(gateway, 'test://other', 'up');
        assert.partialDeepStrictEqual(alone, { code: INVALID_PARAMS, data: { uri: 'test://other' } });
      });
    }

    test('keeps the other members of data', TIMEOUT, async () => {
      await using up = await start(failing({ code: 0, message: 'no', data: { hint: 'look elsewhere' } }));
      await using gateway = await testCore({ up: up.config });
      const error = await readAsModern(gateway, 'up+test://other');
      assert.deepEqual(error?.data, { hint: 'look elsewhere', uri: 'up+test://other' });
    });

    for (const uri of ['up+test://listed', 'up+test://made/7']) {
      test(`keeps its own code if ${uri} is listed`, TIMEOUT, async () => {
        await using up = await start(failing({ code: 7, message: 'disk failure' }));
        await using gateway = await testCore({ up: up.config });
        assert.deepEqual(await readAsModern(gateway, uri), { code: 7, message: 'disk failure' });
      });
    }

    test('keeps its own code for another failure', TIMEOUT, async () => {
      const error = { code: -32_000, message: 'Rate limited', data: { retryAfter: 7 } };
      await using up = await start(failing(error));
      await using gateway = await testCore({ up: up.config });
      assert.deepEqual(await readAsModern(gateway, 'up+test://other'), error);
    });

    test('keeps its own code for a legacy client', TIMEOUT, async () => {
      await using up = await start(failing({ code: 7, message: 'Unknown resource' }));
      await using gateway = await testCore({ up: up.config });
      assert.deepEqual(await readAsLegacy(gateway, 'up+test://other'), { code: 7, message: 'Unknown resource' });
    });
  });
}

// N-46
test('a missing capability of a modern upstream does not mean an unknown resource', TIMEOUT, async () => {
  const data = { requiredCapabilities: { elicitation: {} } };
  await using up = await modernUpstream(failing({ code: -32_021, message: 'cannot ask', data }));
  await using gateway = await testCore({ up: up.config });
  assert.partialDeepStrictEqual(await readAsModern(gateway, 'up+test://other'), { code: -32_021, data });
});
