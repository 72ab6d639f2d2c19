import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { boundedSampling, unsafeReason, visibleForm } from '../../../src/gateway/questions/safe-question.ts';
import { RawObject } from '../../../src/json/json.ts';
import { asker } from '../../support/asker.ts';
import { testCore, toolCall } from '../../support/core.ts';
import { memoryUpstream, result } from '../../support/memory-upstream.ts';
import { modernRequest } from '../../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };

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

/** URLs that some readers take for another address than the one that is judged. */
const AMBIGUOUS = [
  'https://example.org\\@evil.example/',
  'https:\\\\example.org/',
  'https:/example.org/',
  'https:example.org/',
  'https:///example.org/',
  ' https://example.org/',
  'https://example.org/ ',
  'https://exam\tple.org/',
  'https://example.org/a b',
  'https://example.org/a\u200bb',
  'https://example.org/\u202egnp',
  'https://example.org/\0',
  'https://example\u3002org/',
  'https://ex%61mple.org/',
  'http://2130706433/',
  'http://0x7f.1/',
  // With the sign of kelvin, whose lower case is k.
  'https://\u212aeycloak.example/',
];

for (const url of AMBIGUOUS) {
  // SEC-38
  test(`a page at ${JSON.stringify(url)} is not shown`, () => {
    const params = RawObject.of({ mode: 'url', url, message: 'm' });
    assert.match(unsafeReason('elicitation/create', params, ['example.org', '127.0.0.1']) ?? '', /spelled/);
  });
}

// SEC-38
test('the URL of a question of any mode is judged', () => {
  for (const mode of [undefined, 'form', 'URL', 1]) {
    const params = RawObject.of({ mode, url: 'http://evil.example/', message: 'm' });
    assert.match(unsafeReason('elicitation/create', params, undefined) ?? '', /must be https/);
  }
});

for (const [url, isSafe] of URLS) {
  // N-28
  test(`a page at ${url === '' ? 'no URL' : url} is ${isSafe ? 'shown' : 'not shown'}`, () => {
    const params = RawObject.of({ mode: 'url', url, message: 'm' });
    assert.equal(unsafeReason('elicitation/create', params, undefined) === undefined, isSafe);
  });
}

// SEC-38
test('a page at a host that is longer than a name of DNS is not shown', () => {
  for (const host of ['a'.repeat(254), '\u0301'.repeat(4_000)]) {
    const params = RawObject.of({ mode: 'url', url: `https://${host}/`, message: 'm' });
    assert.match(unsafeReason('elicitation/create', params, undefined) ?? '', /must be https/);
  }
});

const HOSTS = ['login.example.com', '*.example.org', 'localhost'];
const LISTED: readonly (readonly [url: string, isShown: boolean])[] = [
  ['https://login.example.com/in?to=https://evil.example', true],
  ['https://LOGIN.example.com:8443/', true],
  ['https://a.example.org/', true],
  ['https://b.a.example.org/', true],
  ['http://localhost:1/', true],
  ['https://example.org/', false],
  ['https://example.com/', false],
  ['https://a.login.example.com/', false],
  ['https://login.example.com./', false],
  ['https://login.example.com.evil.example/', false],
  ['https://evilexample.org/', false],
  ['https://evil.example/login.example.com', false],
  ['https://evil.example\\@login.example.com/', false],
  ['http://127.0.0.1/', false],
  ['http://login.example.com/', false],
  ['https://user@login.example.com/', false],
];

for (const [url, isShown] of LISTED) {
  // SEC-38
  test(`by a list, ${url} is ${isShown ? 'shown' : 'not shown'}`, () => {
    const params = RawObject.of({ mode: 'url', url, message: 'm' });
    assert.equal(unsafeReason('elicitation/create', params, HOSTS) === undefined, isShown);
  });
}

// SEC-38
test('an empty list of hosts shows no page, and forms have none', () => {
  const page = RawObject.of({ mode: 'url', url: 'https://example.org/', message: 'm' });
  assert.match(
    unsafeReason('elicitation/create', page, []) ?? '',
    /is at example\.org, which is none of the elicitationHosts/,
  );
  assert.equal(unsafeReason('elicitation/create', RawObject.of({ message: 'm' }), []), undefined);
});

const SAMPLING = [
  { from: { maxTokens: 1 }, mayHaveContext: true, to: { maxTokens: 1 } },
  { from: { maxTokens: 32_768 }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: 1e8 }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: 'all' }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: null }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: 0 }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: -1 }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: { maxTokens: 1.5 }, mayHaveContext: true, to: { maxTokens: 32_768 } },
  { from: {}, mayHaveContext: true, to: { maxTokens: 32_768 } },
  {
    from: { maxTokens: 1, includeContext: 'allServers' },
    mayHaveContext: true,
    to: { maxTokens: 1, includeContext: 'thisServer' },
  },
  {
    from: { maxTokens: 1, includeContext: 'allServers' },
    mayHaveContext: false,
    to: { maxTokens: 1, includeContext: 'none' },
  },
  {
    from: { maxTokens: 1, includeContext: 'thisServer' },
    mayHaveContext: false,
    to: { maxTokens: 1, includeContext: 'none' },
  },
  {
    from: { maxTokens: 1, includeContext: 'none' },
    mayHaveContext: false,
    to: { maxTokens: 1, includeContext: 'none' },
  },
];

for (const { from, mayHaveContext, to } of SAMPLING) {
  const where = mayHaveContext ? 'alone' : 'among others';
  // N-28 SEC-37
  test(`${JSON.stringify(from)} ${where} becomes ${Object.values(to).join()}`, () => {
    assert.deepEqual(JSON.parse(boundedSampling(RawObject.of(from), mayHaveContext, () => undefined).toString()), to);
  });
}

const REFUSED_PAGES = [
  // N-28
  { kind: 'unsafe', page: 'javascript:alert(1)', hosts: {}, reason: /must be https/ },
  // SEC-38
  {
    kind: 'foreign',
    page: 'https://evil.example/',
    hosts: { elicitationHosts: ['login.example.com'] },
    reason: /is at evil\.example, which is none of the elicitationHosts/,
  },
  // SEC-38
  {
    kind: 'ambiguous',
    page: 'https://login.example.com\\@evil.example/',
    hosts: { elicitationHosts: ['login.example.com'] },
    reason: /spelled/,
  },
] as const;

for (const { kind, page: url, hosts, reason } of REFUSED_PAGES) {
  suite(`the page at the ${kind} URL never reaches a client`, () => {
    const page = { mode: 'url', message: 'Sign in', url, elicitationId: 'e' };
    const capabilities = { elicitation: { form: {}, url: {} } };

    test('as a question: the upstream gets the reason', TIMEOUT, async () => {
      const { memory, calls, call, ask, finish } = asker({ isAttributed: true, isQuiet: true });
      await using gateway = await testCore({ up: { memory, ...hosts } });
      const { reply } = modernRequest(gateway, 'tools/call', toolCall('up__ask', { nonce: 'n' }), { capabilities });
      await memory.until(() => calls.get('n'));
      ask('n', 'q', 'elicitation/create', page);
      await memory.until(() => call('n').answers.get('q'));
      finish('n');
      assert.match(JSON.stringify((await reply).result), reason);
    });

    test('as an error that asks for it: the call fails with the reason', TIMEOUT, async () => {
      const error = { code: -32042, message: 'Sign in first', data: { elicitations: [page] } };
      const memory = memoryUpstream({
        capabilities: { tools: {} },
        lists: { tools: [{ name: 't', inputSchema: { type: 'object' } }] },
        request: (peer, request) =>
          peer.send(
            request.method === 'tools/call'
              ? `{"jsonrpc":"2.0","id":${request.id},"error":${JSON.stringify(error)}}`
              : result(request, {}),
          ),
      });
      await using gateway = await testCore({ up: { memory, ...hosts } });
      const { error: failure } = await modernRequest(gateway, 'tools/call', toolCall('up__t', {}), { capabilities })
        .reply;
      assert.equal(failure?.code, -31012);
      assert.match(failure?.message ?? '', reason);

      const legacy = await gateway.connect({ capabilities });
      const refused = await legacy
        .request('tools/call', toolCall('up__t', {}))
        .then(({ answer }) => JSON.stringify(answer), String);
      assert.match(refused, reason);
    });
  });
}

// N-28
test('the texts of a form have no characters that people cannot see; its data stays', () => {
  const odd = 'a\u001b[2Jb\u{e0041}';
  const schema = {
    type: 'object',
    properties: { [odd]: { type: 'string', title: odd, description: odd, default: odd } },
  };
  const cleaned = visibleForm(RawObject.of({ message: odd, requestedSchema: schema, other: odd }));
  assert.deepEqual(JSON.parse(cleaned.toString()), {
    message: 'ab',
    requestedSchema: {
      type: 'object',
      properties: { [odd]: { type: 'string', title: 'ab', description: 'ab', default: odd } },
    },
    other: odd,
  });
  const plain = RawObject.of({ message: 'a' });
  assert.equal(visibleForm(plain), plain);
});
