/**
 * A made-up legacy revision that is younger than the first modern one: an entry of the list, a row of the table of revisions and one of the
 * dialects are all that the gateway needs. They are added when the files are loaded.
 */

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { addToSources } from '../support/added-texts.ts';

const NEXT = '2026-11-01';

addToSources({
  '/src/protocol/revisions.ts': [
    [`'2025-06-18', '2025-11-25'`, `, '${NEXT}'`],
    [
      'const FEATURES: Readonly<Record<Revision, RevisionFeatures>> = {',
      `'${NEXT}': { ...BASE, priming: true, versionHeader: true, audio: true, resourceLinks: true, structuredContent: true,
        elicitation: true, completionContext: true, urlElicitation: true, samplingTools: true, coreTasks: true },`,
    ],
  ],
  '/src/gateway/dialects/client-dialect.ts': [[`'2025-11-25': legacy('2025-11-25'),`, `'${NEXT}': legacy('${NEXT}'),`]],
});

// Loaded after the hook is there.
const { initialize, messagesOf, post, rpc } = await import('../downstream/client.ts');
const { json } = await import('../fixtures/servers/http-harness.ts');
const { errorText, legacyUpstream, resultText } = await import('../support/http-upstream.ts');
const { modernResult } = await import('../support/modern-wire.ts');
const { openGateway } = await import('../support/open-gateway.ts');

const TIMEOUT = { timeout: 120_000 };
const CALL = { name: 'up__version', arguments: {} };

/** Starts a server of this revision alone, which refuses a modern request by an error that names it. */
async function serverOfNext() {
  const version = (headers: object) => ({
    content: [{ type: 'text', text: `${Reflect.get(headers, 'mcp-protocol-version')}` }],
  });
  return await legacyUpstream({
    tools: [{ name: 'version', inputSchema: { type: 'object' } }],
    answers: {
      'server/discover': ({ id, response }) => {
        const error = { code: -32_022, message: 'Unsupported protocol version', data: { supported: [NEXT] } };
        response.writeHead(400, { 'content-type': 'application/json' }).end(errorText(id, error));
        return undefined;
      },
      initialize: ({ id, params, response }) => {
        const serverInfo = { name: 'scripted', version: '1' };
        const protocolVersion = params['protocolVersion'];
        const answer =
          protocolVersion === NEXT
            ? resultText(id, { protocolVersion, capabilities: { tools: {} }, serverInfo })
            : errorText(id, { code: -32_602, message: `no ${String(protocolVersion)}` });
        json(response, answer);
        return undefined;
      },
      'tools/call': ({ headers }) => version(headers),
    },
  });
}

// L-002, L-010
test('clients and a server of a later legacy revision use it', TIMEOUT, async () => {
  await using upstream = await serverOfNext();
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const { content } = await modernResult(gateway.url, 'tools/call', CALL);
  assert.deepEqual(content, [{ type: 'text', text: NEXT }]);
  for (const revision of [NEXT, '2025-06-18', '2031-01-01']) {
    const session = await initialize(gateway.url, revision);
    const called = await post(gateway.url, rpc(2, 'tools/call', CALL), session);
    assert.deepEqual(messagesOf(called)[0]?.result, { content: [{ type: 'text', text: NEXT }] });
  }
});
