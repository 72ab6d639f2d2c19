import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { boundedSampling, isSafeUrl, unsafeReason } from '../../../src/gateway/questions/safe-question.ts';
import { RawObject } from '../../../src/json/json.ts';
import { asker } from '../../support/asker.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 20_000 };

const URLS: readonly (readonly [url: string, isSafe: boolean])[] = [
  ['https://example.org/in?x=1', true],
  ['http://localhost:8080/in', true],
  ['http://127.0.0.1/in', true],
  ['http://[::1]:1/in', true],
  ['http://example.org/in', false],
  ['http://localhost.example.org/in', false],
  ['https://user@example.org/', false],
  ['https://bank.example:pw@evil.example/', false],
  ['javascript:alert(1)', false],
  ['file:///etc/passwd', false],
  ['data:text/html,x', false],
  ['/in', false],
  ['', false],
];

for (const [url, isSafe] of URLS) {
  test(`N-28 a page at ${url === '' ? 'no URL' : url} is ${isSafe ? 'shown' : 'not shown'}`, () => {
    assert.equal(isSafeUrl(url), isSafe);
    const params = RawObject.of({ mode: 'url', url, message: 'm' });
    assert.equal(unsafeReason('elicitation/create', params) === undefined, isSafe);
  });
}

const SAMPLING = [
  { from: { maxTokens: 100 }, isOnlyServer: true, to: { maxTokens: 100 } },
  { from: { maxTokens: 1e8 }, isOnlyServer: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: 'all' }, isOnlyServer: true, to: { maxTokens: 32_768 } },
  { from: { includeContext: 'allServers' }, isOnlyServer: true, to: { includeContext: 'thisServer' } },
  { from: { includeContext: 'allServers' }, isOnlyServer: false, to: { includeContext: 'none' } },
  { from: { includeContext: 'thisServer' }, isOnlyServer: false, to: { includeContext: 'none' } },
  { from: { includeContext: 'none' }, isOnlyServer: false, to: { includeContext: 'none' } },
];

for (const { from, isOnlyServer, to } of SAMPLING) {
  const where = isOnlyServer ? 'alone' : 'among others';
  test(`N-28 sampling ${JSON.stringify(from)} of an upstream ${where} becomes ${JSON.stringify(to)}`, () => {
    assert.deepEqual(JSON.parse(boundedSampling(RawObject.of(from), isOnlyServer, () => undefined).toString()), to);
  });
}

suite('N-28 an unsafe page never reaches a client', () => {
  const page = { mode: 'url', message: 'Sign in', url: 'javascript:alert(1)', elicitationId: 'e' };
  const capabilities = { elicitation: { form: {}, url: {} } };

  test('as a question: the upstream gets the reason', TIMEOUT, async () => {
    const { memory, calls, call, ask, finish } = asker({ isAttributed: true, isQuiet: true });
    await using gateway = await testCore({ up: { memory } });
    const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), { capabilities });
    await memory.until(() => calls.get('n'));
    ask('n', 'q', 'elicitation/create', page);
    await memory.until(() => call('n').told.get('q'));
    finish('n');
    assert.match(JSON.stringify((await reply).result), /must be https/);
  });

  test('as an error that asks for it: the call fails with the reason', TIMEOUT, async () => {
    const error = { code: -32042, message: 'Sign in first', data: { elicitations: [page] } };
    const memory = memoryUpstream({
      capabilities: { tools: {} },
      lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
      request: (peer, request) =>
        peer.say(
          request.method === 'tools/call'
            ? `{"jsonrpc":"2.0","id":${request.id},"error":${JSON.stringify(error)}}`
            : result(request, {}),
        ),
    });
    await using gateway = await testCore({ up: { memory } });
    const { error: failure } = await modernRequest(gateway, 'tools/call', toolCall('up__t', {}), { capabilities })
      .reply;
    assert.equal(failure?.code, -31012);
    assert.match(failure?.message ?? '', /must be https/);
  });
});
