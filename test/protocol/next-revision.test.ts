/**
 * A made-up modern revision that follows 2026-07-28: its row in the table of revisions is all that the gateway needs. The row is added to the
 * text of the table when it is loaded, so everything else is the program as it is.
 */

import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { addToSources } from '../support/added-texts.ts';

const NEXT = '2027-01-01';
const NOW = '2026-07-28';

/** It differs from 2026-07-28 in one column. */
const ROW = `'${NEXT}': { ...BASE, versionHeader: true, audio: true, resourceLinks: true, structuredContent: true, elicitation: true,
  urlElicitation: true, completionContext: true, samplingTools: true, tasksExtension: true, anyUris: false },`;

addToSources({
  '/src/protocol/revisions.ts': [
    ['MODERN_REVISIONS = [', `'${NEXT}', `],
    ['const FEATURES: Readonly<Record<Revision, RevisionFeatures>> = {', ROW],
  ],
});

// Loaded after the hook is there.
const { initialize, post, rpc, messagesOf } = await import('../downstream/client.ts');
const { modernUpstream } = await import('../support/http-upstream.ts');
const { answerOf, modernPost, modernResult } = await import('../support/modern-wire.ts');
const { openGateway } = await import('../support/open-gateway.ts');

const TIMEOUT = { timeout: 120_000 };
const VERSION = 'io.modelcontextprotocol/protocolVersion';
const CALL = { name: 'up__version', arguments: {} };

/** Returns the options of a request in this revision. */
const of = (revision: string) => ({ meta: { [VERSION]: revision }, headers: { 'mcp-protocol-version': revision } });

/** Starts a server whose tool returns the revisions of its call: that of the header, and that of the envelope. */
function serverOf(...supported: string[]) {
  return modernUpstream({
    tools: [{ name: 'version', inputSchema: { type: 'object' } }],
    resources: [
      { uri: 'file:///a', name: 'url' },
      { uri: 'no url', name: 'other' },
    ],
    answers: {
      'server/discover': (served) => {
        const requested = String(served.meta[VERSION]);
        if (supported.includes(requested)) {
          return { resultType: 'complete', supportedVersions: supported, capabilities: { tools: {}, resources: {} } };
        }
        served.error(-32_022, 'Unsupported protocol version', { supported, requested });
        return undefined;
      },
      'tools/call': ({ headers, meta }) => {
        const text = [headers['mcp-protocol-version'], meta[VERSION]].join(' ');
        return { resultType: 'complete', content: [{ type: 'text', text }] };
      },
    },
  });
}

/** A gateway before one server of these revisions, whose lists it has read. */
async function gatewayBefore(...supported: string[]) {
  const upstream = await serverOf(...supported);
  const gateway = await openGateway({ up: { url: upstream.url } });
  await modernResult(gateway.url, 'tools/list');
  return {
    url: gateway.url,
    [Symbol.asyncDispose]: async () => {
      await gateway[Symbol.asyncDispose]();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

for (const { supported, used } of [
  { supported: [NOW], used: NOW },
  { supported: [NEXT], used: NEXT },
  { supported: [NOW, NEXT], used: NEXT },
  { supported: [NEXT, NOW, '2031-01-01'], used: NEXT },
]) {
  // L-010
  test(`an upstream of ${supported.join(', ')} is used in ${used}`, TIMEOUT, async () => {
    await using gateway = await gatewayBefore(...supported);
    for (const client of [NOW, NEXT]) {
      const { content } = await modernResult(gateway.url, 'tools/call', CALL, of(client));
      assert.deepEqual(content, [{ type: 'text', text: `${used} ${used}` }]);
    }
    const session = await initialize(gateway.url);
    const called = await post(gateway.url, rpc(2, 'tools/call', CALL), session);
    assert.match(JSON.stringify(messagesOf(called)), new RegExp(`${used} ${used}`));
  });
}

// L-010
test('an upstream of later revisions alone is not used', TIMEOUT, async () => {
  await using gateway = await gatewayBefore('2031-01-01');
  const { error } = answerOf(await modernPost(gateway.url, 'tools/call', CALL, of(NEXT)));
  assert.match(error?.message ?? '', /supports only protocol revision 2031-01-01/);
});

suite('a client', () => {
  test('of either revision discovers both', TIMEOUT, async () => {
    await using gateway = await gatewayBefore(NOW);
    for (const client of [NOW, NEXT]) {
      const { supportedVersions } = await modernResult(gateway.url, 'server/discover', {}, of(client));
      assert.deepEqual(supportedVersions, [NEXT, NOW]);
    }
  });

  test('of another revision gets an error that lists both', TIMEOUT, async () => {
    await using gateway = await gatewayBefore(NOW);
    const { error } = answerOf(await modernPost(gateway.url, 'tools/list', {}, of('2031-01-01')));
    assert.equal(error?.code, -32_022);
    assert.deepEqual(error.data, { code: 'unsupported-revision', supported: [NEXT, NOW], requested: '2031-01-01' });
  });

  test('whose header and body name two revisions is refused', TIMEOUT, async () => {
    await using gateway = await gatewayBefore(NOW);
    const options = { ...of(NOW), headers: { 'mcp-protocol-version': NEXT } };
    assert.equal(answerOf(await modernPost(gateway.url, 'tools/list', {}, options)).error?.code, -32_020);
  });

  test('gets lists in the form of its own revision', TIMEOUT, async () => {
    await using gateway = await gatewayBefore(NOW);
    for (const { client, count } of [
      { client: NOW, count: 2 },
      { client: NEXT, count: 1 },
    ]) {
      const { resources } = await modernResult(gateway.url, 'resources/list', {}, of(client));
      assert.ok(Array.isArray(resources));
      assert.equal(resources.length, count);
    }
  });
});
