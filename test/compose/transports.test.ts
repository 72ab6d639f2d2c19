import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { test } from 'node:test';
import { diffConfigs } from '../../src/config/changes/diff.ts';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import { type TestClient, testCore, toolCall } from '../support/core.ts';
import { legacyUpstream, modernUpstream } from '../support/http-upstream.ts';
import { listenLocally } from '../support/local-port.ts';

const TIMEOUT = { timeout: 120_000 };
const KIB = 1_024;
const TEXT = 'x'.repeat(20 * KIB);
const TOOLS = [{ name: 'large', inputSchema: { type: 'object' } }];
const SCRIPT = { tools: TOOLS, answers: { 'tools/call': () => ({ content: [{ type: 'text', text: TEXT }] }) } };

/** An upstream with a tool whose answer has 20 KiB. */
interface Large extends AsyncDisposable {
  readonly config: Partial<UpstreamConfig>;
}

/** A server whose requests need a token, and the endpoint that gives it out. */
async function withCredentials(): Promise<Large> {
  const upstream = await modernUpstream(SCRIPT);
  const token = JSON.stringify({ access_token: 'token', token_type: 'Bearer', expires_in: 3_600 });
  const endpoint = createServer((request, response) => {
    request.resume().on('end', () => response.writeHead(200, { 'content-type': 'application/json' }).end(token));
  });
  const auth = {
    kind: 'clientCredentials',
    tokenUrl: `http://127.0.0.1:${await listenLocally(endpoint)}/token`,
    clientId: 'linkspan',
    method: 'client_secret_basic',
    clientSecret: 'secret',
    scopes: [],
    stepUpScopes: [],
    parameters: {},
  } as const;
  return {
    config: { era: 'modern', target: { kind: 'http', url: upstream.url, headers: {}, auth } },
    [Symbol.asyncDispose]: async () => {
      endpoint.closeAllConnections();
      endpoint.close();
      await upstream[Symbol.asyncDispose]();
    },
  };
}

async function process(): Promise<Large> {
  const server = join(import.meta.dirname, '../fixtures/servers/large-stdio.ts');
  const env = { GATE: server };
  const command = globalThis.process.execPath;
  const config = { target: { kind: 'stdio', command, args: [server], env, cwd: undefined } } as const;
  return { config, [Symbol.asyncDispose]: () => Promise.resolve() };
}

const kinds: readonly (readonly [name: string, open: () => Promise<Large>])[] = [
  ['over HTTP, modern', () => modernUpstream(SCRIPT)],
  ['over HTTP, legacy', () => legacyUpstream(SCRIPT)],
  ['over HTTP with credentials', withCredentials],
  ['over stdio', process],
];

/** Calls the tool for a text of this length. Returns the code of the error, or `ok`. */
async function call(client: TestClient, chars: number): Promise<unknown> {
  const { answer } = await client.request('tools/call', toolCall('up__large', { text: 'x', times: chars }));
  return answer.kind === 'error' ? Object(answer.error.data).code : 'ok';
}

for (const [name, open] of kinds) {
  test(`another limits.message holds for connections that are open: ${name}`, TIMEOUT, async () => {
    await using up = await open();
    const isolation = 'shared';
    await using gateway = await testCore({ up: { ...up.config, isolation } }, { limits: { messageBytes: 30 * KIB } });
    const { core, config } = gateway;
    const client = await gateway.connect();
    assert.equal(await call(client, TEXT.length), 'ok');
    const smaller = { ...config, limits: { ...config.limits, messageBytes: 10 * KIB } };
    await core.apply(smaller, diffConfigs(config, smaller));
    assert.equal(await call(client, TEXT.length), 'too-large');
    await core.apply(config, diffConfigs(smaller, config));
    assert.equal(await call(client, TEXT.length), 'ok');
  });
}
