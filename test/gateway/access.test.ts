import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import type { Config } from '../../src/config/values/config.ts';
import { diffConfigs } from '../../src/config/changes/diff.ts';
import type { Principal } from '../../src/policy/principal.ts';
import { accessOf, keyOf, tokenOf } from '../policy/policies.ts';
import { loadText } from '../support/config-file.ts';
import { type TestClient, type TestCore, testCore, toolCall } from '../support/core.ts';
import { memoryUpstream, type MemoryUpstream, result } from '../support/memory-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';

const TIMEOUT = { timeout: 120_000 };

interface Lists {
  readonly tools?: readonly object[];
  readonly resources?: readonly object[];
  readonly prompts?: readonly object[];
  readonly resourceTemplates?: readonly object[];
}

function server(lists: Lists, instructions?: string): MemoryUpstream {
  const capabilities = { tools: { listChanged: true }, prompts: {}, resources: { subscribe: true }, completions: {} };
  return memoryUpstream({
    isRaw: true,
    lists,
    request: (peer, request) => {
      if (request.method === 'initialize') {
        const serverInfo = { name: 'memory', version: '1' };
        peer.send(result(request, { protocolVersion: '2025-11-25', capabilities, serverInfo, instructions }));
      } else {
        peer.send(result(request, request.method === 'tools/call' ? { content: [] } : {}));
      }
    },
  });
}

const TOOL = { inputSchema: { type: 'object' } };
const READS = { annotations: { readOnlyHint: true } };

/** Two upstreams: one of which engineers may use a part, and one of which they may use nothing. */
function servers() {
  return {
    repo: server(
      {
        tools: [
          { name: 'get', ...TOOL, ...READS },
          { name: 'delete', ...TOOL },
          { name: 'write', ...TOOL },
        ],
        prompts: [{ name: 'review' }, { name: 'fire' }],
        resources: [
          { uri: 'repo://public/a', name: 'a' },
          { uri: 'repo://secret/b', name: 'b' },
        ],
        resourceTemplates: [{ uriTemplate: 'repo://public/{name}', name: 'p' }],
      },
      'Use get first.',
    ),
    payroll: server({ tools: [{ name: 'pay', ...TOOL }] }, 'Pays salaries.'),
  };
}

const ROLES = {
  all: { upstreams: undefined },
  eng: {
    upstreams: ['repo'],
    tools: ['get', 'delete'],
    prompts: ['review'],
    resources: ['repo://*'],
    deny: [{ upstreams: ['repo'], tools: ['delete'] }, { resources: ['repo://secret/*'] }],
  },
  writer: { upstreams: ['repo'], tools: ['write'], when: 'args.path.startsWith("/pub/")' },
};
const ACCESS = accessOf(
  ROLES,
  [
    { roles: ['all'], keys: ['root'] },
    { roles: ['eng', 'writer'], groups: ['eng'] },
  ],
  { claims: [{ name: 'groups', path: 'groups', type: 'list' }], groupClaims: ['groups'] },
);

const ADA = keyOf('ada', ['eng']);
const ROOT = keyOf('root');
const NOBODY = keyOf('nobody');

async function company(access: Config['access'] = ACCESS) {
  const memories = servers();
  const upstreams = Object.fromEntries(Object.entries(memories).map(([id, memory]) => [id, { memory }]));
  const gateway = await testCore(upstreams, { access });
  await gateway.core.refresh();
  return { gateway, ...memories, [Symbol.asyncDispose]: () => gateway[Symbol.asyncDispose]() };
}

interface Reply {
  readonly result?: unknown;
  readonly error?: { readonly code: number; readonly message: string; readonly data?: unknown } | undefined;
}

/** A client of either era. */
interface Asker {
  readonly ask: (method: string, params?: object) => Promise<Reply>;
  readonly names: (method: string, list: string) => Promise<readonly unknown[]>;
}

function namesIn(answer: Reply, list: string): readonly unknown[] {
  const items: unknown = Object(answer.result)[list];
  assert.ok(Array.isArray(items), JSON.stringify(answer));
  return items.map(
    (item: { name?: unknown; uri?: unknown; uriTemplate?: unknown }) => item.uriTemplate ?? item.uri ?? item.name,
  );
}

async function legacy(gateway: TestCore, principal: Principal, view = ''): Promise<Asker & { client: TestClient }> {
  const client = await gateway.connect({ principal, view });
  const ask = async (method: string, params: object = {}): Promise<Reply> => {
    const { answer } = await client.request(method, params);
    return answer.kind === 'result' ? { result: JSON.parse(answer.result) } : { error: answer.error };
  };
  return { client, ask, names: async (method, list) => namesIn(await ask(method), list) };
}

function modern(gateway: TestCore, principal: Principal, view = ''): Asker {
  const ask = async (method: string, params: object = {}): Promise<Reply> =>
    await modernRequest(gateway, method, params, { principal, view }).reply;
  return { ask, names: async (method, list) => namesIn(await ask(method), list) };
}

const ERAS = {
  legacy: (gateway: TestCore, principal: Principal, view?: string): Promise<Asker> => legacy(gateway, principal, view),
  modern: (gateway: TestCore, principal: Principal, view?: string): Promise<Asker> =>
    Promise.resolve(modern(gateway, principal, view)),
};

async function change(gateway: TestCore, running: Config, changed: Partial<Config>): Promise<Config> {
  const next = { ...running, ...changed };
  await gateway.core.apply(next, diffConfigs(running, next));
  return next;
}

for (const [era, connect] of Object.entries(ERAS)) {
  // SEC-07
  test(`lists contain only permitted items (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const ada = await connect(place.gateway, ADA);
    assert.deepEqual(await ada.names('tools/list', 'tools'), ['repo__get', 'repo__write']);
    assert.deepEqual(await ada.names('prompts/list', 'prompts'), ['repo__review']);
    assert.deepEqual(await ada.names('resources/list', 'resources'), ['repo+repo://public/a']);
    const templates = await ada.names('resources/templates/list', 'resourceTemplates');
    assert.deepEqual(templates, ['repo+repo://public/{name}']);
    const root = await connect(place.gateway, ROOT);
    const all = await root.names('tools/list', 'tools');
    assert.deepEqual(all, ['repo__get', 'repo__delete', 'repo__write', 'payroll__pay']);
    const nobody = await connect(place.gateway, NOBODY);
    assert.deepEqual(await nobody.names('tools/list', 'tools'), []);
  });

  // SEC-07
  test(`a denied item has the answer of an unknown one, byte for byte (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const pairs = [
      ['tools/call', 'repo__delete', 'repo__absent', (name: string) => toolCall(name)],
      ['tools/call', 'payroll__pay', 'payroll__nil', (name: string) => toolCall(name)],
      ['tools/call', 'payroll__pay', 'nowhere__pay', (name: string) => toolCall(name)],
      ['prompts/get', 'repo__fire', 'repo__none', (name: string) => ({ name })],
      ['resources/read', 'repo+repo://secret/b', 'repo+repo://secret/x', (uri: string) => ({ uri })],
      ['resources/read', 'payroll+pay://secret', 'nowhere+pay://secret', (uri: string) => ({ uri })],
      ['completion/complete', 'repo__fire', 'repo__none', (name: string) => completion({ type: 'ref/prompt', name })],
    ] as const;
    const ada = await connect(place.gateway, ADA);
    for (const [method, denied, unknown, params] of pairs) {
      const [one, other] = [await ada.ask(method, params(denied)), await ada.ask(method, params(unknown))];
      const spelled = JSON.stringify(one).replaceAll(denied, unknown);
      assert.equal(spelled, JSON.stringify(other), method);
      assert.ok(one.error !== undefined, method);
    }
    const sent = [place.repo, place.payroll].flatMap((memory) =>
      pairs.flatMap(([method]) => memory.requests(method)).map(({ params }) => params?.toString()),
    );
    assert.deepEqual(sent, []);
  });

  // SEC-07
  test(`a listed template is completed, and a denied one is unknown (${era})`, TIMEOUT, async () => {
    const docs = { docs: { upstreams: ['repo'], resources: ['repo://public/docs/*'] } };
    await using place = await company(accessOf(docs, [{ roles: ['docs'], anyone: true }]));
    const ada = await connect(place.gateway, ADA);
    const templates = await ada.names('resources/templates/list', 'resourceTemplates');
    assert.deepEqual(templates, ['repo+repo://public/{name}']);
    for (const uri of [...templates, 'repo://public/{name}']) {
      const { error } = await ada.ask('completion/complete', completion({ type: 'ref/resource', uri }));
      assert.equal(error, undefined, uri);
    }
    const sent = place.repo.requests('completion/complete').map(({ params }) => params?.object('ref')?.string('uri'));
    assert.deepEqual(sent, ['repo://public/{name}', 'repo://public/{name}']);
    const denied = await ada.ask(
      'completion/complete',
      completion({ type: 'ref/resource', uri: 'repo+repo://secret/{name}' }),
    );
    assert.equal(denied.error?.code, -32602);
  });

  // SEC-09
  test(`arguments decide at the call, and only one reading is sent (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const ada = await connect(place.gateway, ADA);
    assert.equal((await ada.ask('tools/call', toolCall('repo__write', { path: '/pub/x' }))).error, undefined);
    for (const args of [{ path: '/etc' }, {}, { path: '/pub/x', PATH: '/etc' }, { Path: '/etc' }]) {
      const denied = await ada.ask('tools/call', toolCall('repo__write', args));
      const unknown = await ada.ask('tools/call', toolCall('repo__never', args));
      assert.equal(JSON.stringify(denied).replaceAll('repo__write', 'repo__never'), JSON.stringify(unknown));
    }
    const odd = await ada.ask('tools/call', { ...toolCall('repo__get'), Name: 'delete' });
    assert.ok(odd.error !== undefined);
    assert.equal(place.repo.requests('tools/call').length, 1);
  });

  // SEC-09
  test(`odd spellings of a denied URI reach no upstream (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const ada = await connect(place.gateway, ADA);
    const spellings = [
      'secret/b',
      'public/../secret/b',
      'public/%2e%2e/secret/b',
      'secret%2Fb',
      '/secret/b',
      'Secret/b',
    ];
    for (const spelling of spellings) {
      const { error } = await ada.ask('resources/read', { uri: `repo+repo://${spelling}` });
      assert.ok(error !== undefined, spelling);
    }
    assert.equal(place.repo.requests('resources/read').length, 0);
    assert.equal((await ada.ask('resources/read', { uri: 'repo+repo://public/a' })).error, undefined);
  });

  // SEC-09
  test(`an argument of another type slips past no rule (${era})`, TIMEOUT, async () => {
    const deny = [{ tools: ['write'], when: 'args.force == true || has(args.opts.admin)' }];
    await using place = await company(
      accessOf({ all: { upstreams: ['repo'], deny } }, [{ roles: ['all'], anyone: true }]),
    );
    const ada = await connect(place.gateway, ADA);
    const write = (args: object) => ada.ask('tools/call', { name: 'repo__write', arguments: args });
    for (const force of [true, 'true', 1, 'yes', null, [true]])
      assert.ok((await write({ force, opts: {} })).error !== undefined, JSON.stringify(force));
    for (const opts of [{ admin: true }, '{"admin":true}', null])
      assert.ok((await write({ force: false, opts })).error !== undefined, JSON.stringify(opts));
    assert.equal(place.repo.requests('tools/call').length, 0);
    assert.equal((await write({ force: false, opts: { a: 1 } })).error, undefined);
  });

  // SEC-08
  test(`a reload that narrows rules holds at once (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const { gateway } = place;
    const ada = await connect(gateway, ADA);
    assert.equal((await ada.names('tools/list', 'tools')).length, 2);
    const narrowed = accessOf({ eng: { upstreams: ['repo'], tools: ['write'] } }, [
      { roles: ['eng'], groups: ['eng'] },
    ]);
    const applying = change(gateway, gateway.config, { access: narrowed });
    const early = ada.ask('tools/call', toolCall('repo__get'));
    await applying;
    assert.ok((await early).error !== undefined || place.repo.requests('tools/call').length === 1);
    const before = place.repo.requests('tools/call').length;
    assert.ok((await ada.ask('tools/call', toolCall('repo__get'))).error !== undefined);
    assert.deepEqual(await ada.names('tools/list', 'tools'), ['repo__write']);
    assert.equal(place.repo.requests('tools/call').length, before);
  });

  // SEC-08
  test(`the rights follow the claims of the current request (${era})`, TIMEOUT, async () => {
    await using place = await company();
    const { gateway } = place;
    const [wide, narrow] = [tokenOf('ada', { groups: ['eng'] }), tokenOf('ada', { groups: [] })];
    if (era === 'modern') {
      assert.equal((await modern(gateway, wide).names('tools/list', 'tools')).length, 2);
      assert.equal((await modern(gateway, narrow).names('tools/list', 'tools')).length, 0);
      assert.ok((await modern(gateway, narrow).ask('tools/call', toolCall('repo__get'))).error !== undefined);
      return;
    }
    const { client, ask, names } = await legacy(gateway, wide);
    assert.equal((await names('tools/list', 'tools')).length, 2);
    await gateway.core.gateway.findSession(client.session.id, narrow, '');
    assert.equal((await names('tools/list', 'tools')).length, 0);
    assert.ok((await ask('tools/call', toolCall('repo__get'))).error !== undefined);
    await gateway.core.gateway.findSession(client.session.id, wide, '');
    assert.equal((await ask('tools/call', toolCall('repo__get'))).error, undefined);
  });
}

function completion(ref: object): object {
  return { ref, argument: { name: 'a', value: 'b' } };
}

// SEC-08
test('after a reload, clients with other rights than before share nothing', TIMEOUT, async () => {
  const claims = { claims: [{ name: 'groups', path: 'groups', type: 'list' } as const], groupClaims: ['groups'] };
  const get = { get: { upstreams: ['repo'], tools: ['get'] } };
  const all = { roles: ['get'], anyone: true } as const;
  await using place = await company(accessOf(get, [all], claims));
  const { gateway } = place;
  const [wide, narrow] = [tokenOf('ada', { groups: ['eng'] }), tokenOf('ada', { groups: [] })];
  const namesOf = async (principal: Principal) => await modern(gateway, principal).names('tools/list', 'tools');
  assert.deepEqual([await namesOf(wide), await namesOf(narrow)], [['repo__get'], ['repo__get']]);

  const roles = { ...get, write: { upstreams: ['repo'], tools: ['write'] } };
  await change(gateway, gateway.config, {
    access: accessOf(roles, [all, { roles: ['write'], groups: ['eng'] }], claims),
  });
  assert.deepEqual([await namesOf(wide), await namesOf(narrow)], [['repo__get', 'repo__write'], ['repo__get']]);
});

// SEC-07
test('instructions and capabilities are those of the permitted upstreams', TIMEOUT, async () => {
  await using place = await company();
  const { client } = await legacy(place.gateway, ADA);
  const text = client.initialized.toString();
  assert.match(text, /Use get first/);
  assert.doesNotMatch(text, /salaries|payroll/);
  const nobody = await legacy(place.gateway, NOBODY);
  assert.doesNotMatch(nobody.client.initialized.toString(), /get first|salaries|payroll|repo/);
  const discovered = await modern(place.gateway, ADA).ask('server/discover');
  assert.doesNotMatch(JSON.stringify(discovered), /salaries|payroll/);
});

// SEC-07
test('the endpoint of a wholly denied upstream does not exist for its principal', TIMEOUT, async () => {
  await using place = await company();
  const { gateway } = place.gateway.core;
  assert.equal(gateway.hasView('payroll', ADA), false);
  assert.equal(gateway.hasView('repo', ADA), true);
  assert.equal(gateway.hasView('repo', NOBODY), false);
  assert.equal(gateway.hasView('', NOBODY), true);
  assert.equal(gateway.hasView('payroll', ROOT), true);
});

// SEC-07
test('at the endpoint of one upstream a denied tool is like an unknown one', TIMEOUT, async () => {
  await using place = await company();
  const ada = await legacy(place.gateway, ADA, 'repo');
  assert.deepEqual(await ada.names('tools/list', 'tools'), ['get', 'write']);
  const denied = await ada.ask('tools/call', toolCall('delete'));
  const unknown = await ada.ask('tools/call', toolCall('absent'));
  assert.equal(JSON.stringify(denied).replaceAll('delete', 'absent'), JSON.stringify(unknown));
  assert.equal(place.repo.requests('tools/call').length, 0);
});

// SEC-07
test('an upstream that is down is not named to a principal that may use nothing of it', TIMEOUT, async () => {
  const down = memoryUpstream({ start: () => Promise.reject(new Error('no disk')) });
  const { repo } = servers();
  await using gateway = await testCore({ repo: { memory: repo }, payroll: { memory: down } }, { access: ACCESS });
  await gateway.core.refresh();
  const ada = await legacy(gateway, ADA);
  const root = await legacy(gateway, ROOT);
  assert.match(JSON.stringify(await root.ask('tools/call', toolCall('payroll__pay'))), /payroll.*down/);
  const denied = await ada.ask('tools/call', toolCall('payroll__pay'));
  const unknown = await ada.ask('tools/call', toolCall('nowhere__pay'));
  assert.equal(JSON.stringify(denied).replaceAll('payroll__pay', 'nowhere__pay'), JSON.stringify(unknown));
});

test('list_changed goes only to clients whose visible lists change', TIMEOUT, async () => {
  await using place = await company();
  const { gateway } = place;
  const [ada, root] = [await legacy(gateway, ADA), await legacy(gateway, ROOT)];
  for (const one of [ada, root]) await one.names('tools/list', 'tools');
  const roles = { ...ROLES, all: { upstreams: ['repo'], tools: ['get'] } };
  const access = { ...ACCESS, roles: accessOf(roles, []).roles };
  await change(gateway, gateway.config, { access });
  await root.client.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(ada.client.listened, []);
});

// SEC-07
test('the change of a hidden item is not announced', TIMEOUT, async () => {
  let more: readonly object[] = [];
  const memory = memoryUpstream({
    listsOf: () => ({ tools: [{ name: 'get', ...TOOL }, ...more] }),
    request: (peer, request) => peer.send(result(request, { content: [] })),
  });
  const access = accessOf({ all: { upstreams: undefined }, eng: { tools: ['get'] } }, [
    { roles: ['all'], keys: ['root'] },
    { roles: ['eng'], groups: ['eng'] },
  ]);
  await using gateway = await testCore({ repo: { memory, isolation: 'shared' } }, { access });
  const [ada, root] = [await legacy(gateway, ADA), await legacy(gateway, ROOT)];
  for (const one of [ada, root]) await one.ask('tools/call', toolCall('repo__get'));
  more = [{ name: 'secret', ...TOOL }];
  for (const peer of memory.open) peer.send('{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}');
  await root.client.waitForMessage('notifications/tools/list_changed');
  assert.deepEqual(await root.names('tools/list', 'tools'), ['repo__get', 'repo__secret']);
  assert.deepEqual(ada.client.listened, []);
});

// SEC-08
test('a subscription ends with the right to its resource', TIMEOUT, async () => {
  await using place = await company();
  const { gateway, repo } = place;
  const ada = await legacy(gateway, ADA);
  const uri = 'repo+repo://public/a';
  assert.equal((await ada.ask('resources/subscribe', { uri })).error, undefined);
  assert.ok((await ada.ask('resources/subscribe', { uri: 'repo+repo://secret/b' })).error !== undefined);
  const denied = accessOf({ eng: { upstreams: ['repo'], tools: ['*'] } }, [{ roles: ['eng'], groups: ['eng'] }]);
  await change(gateway, gateway.config, { access: denied });
  await repo.until(() => repo.requests('resources/unsubscribe')[0]);
  for (const peer of repo.open) {
    peer.send('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"repo://public/a"}}');
  }
  await ada.names('tools/list', 'tools');
  const updates = ada.client.listened.filter((message) => 'method' in message && message.method.endsWith('updated'));
  assert.deepEqual(updates, []);
});

// SEC-08
test('a subscription brings no updates outside of the hours of its rule', TIMEOUT, async (t) => {
  t.mock.timers.enable({ apis: ['Date'], now: Date.parse('2026-01-30T09:00:00Z') });
  const access = accessOf({ all: { upstreams: undefined }, eng: { when: 'now.getHours() < 18' } }, [
    { roles: ['all'], keys: ['root'] },
    { roles: ['eng'], groups: ['eng'] },
  ]);
  await using place = await company(access);
  const { gateway, repo } = place;
  const [ada, root] = [await legacy(gateway, ADA), await legacy(gateway, ROOT)];
  for (const one of [ada, root]) {
    const { error } = await one.ask('resources/subscribe', { uri: 'repo+repo://public/a' });
    assert.equal(error, undefined);
  }
  const update = async () => {
    for (const peer of repo.open)
      peer.send('{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"repo://public/a"}}');
    await root.client.waitForMessage('notifications/resources/updated');
  };
  t.mock.timers.setTime(Date.parse('2026-01-30T19:00:00Z'));
  await update();
  assert.deepEqual(ada.client.listened, []);
  t.mock.timers.setTime(Date.parse('2026-01-31T09:00:00Z'));
  await update();
  await ada.client.waitForMessage('notifications/resources/updated');
});

test('a denied request is counted by its upstream', TIMEOUT, async () => {
  await using place = await company();
  const ada = await legacy(place.gateway, ADA);
  await ada.ask('tools/call', toolCall('repo__delete'));
  await ada.ask('tools/call', toolCall('repo__absent'));
  await ada.ask('tools/call', toolCall('repo__write', { path: 1 }));
  const text = await place.gateway.metrics.text();
  assert.match(text, /linkspan_access_denied_total\{upstream="repo"\} 2/);
  assert.match(text, /linkspan_access_rule_failures_total\{rule="writer"\} 1/);
});

// P-004
test('a condition that cannot be evaluated denies, and is logged with its line', TIMEOUT, async () => {
  const { config } = await loadText(
    JSON.stringify(
      {
        mcpServers: { repo: { url: 'https://repo.test' } },
        gateway: {
          access: {
            roles: { writer: { upstreams: ['repo'], tools: ['write'], when: 'args.path.startsWith("src/")' } },
            grants: [{ roles: ['writer'], anyone: true }],
          },
        },
      },
      undefined,
      2,
    ),
  );
  const written: unknown[] = [];
  const log = pino({ level: 'warn' }, { write: (line) => written.push(JSON.parse(line)) });
  const { repo } = servers();
  await using gateway = await testCore(
    { repo: { memory: repo } },
    { access: config.access },
    undefined,
    undefined,
    log,
  );
  await gateway.core.refresh();
  const ada = await legacy(gateway, ADA);
  const { error } = await ada.ask('tools/call', toolCall('repo__write', { path: 1 }));
  assert.match(error?.message ?? '', /^Unknown tool/);
  assert.equal(repo.requests('tools/call').length, 0);
  const text = await gateway.metrics.text();
  assert.match(text, /linkspan_access_denied_total\{upstream="repo"\} 1/);
  assert.match(text, /linkspan_access_rule_failures_total\{rule="writer"\} 1/);
  const { place } = config.access?.roles[0]?.allow ?? {};
  assert.equal(place?.line, 10);
  assert.partialDeepStrictEqual(written, [
    { rule: 'writer', place: `${place.file}:10`, msg: 'the condition of an access rule failed' },
  ]);
});

// P-004 P-008
test('a condition that fails in a list is counted once for each set of rights', TIMEOUT, async () => {
  const claims = { claims: [{ name: 'dept', path: 'dept', type: 'string' } as const] };
  const access = accessOf(
    {
      all: { upstreams: ['repo'], deny: [{ tools: ['write'], when: 'claims.dept != "eng"' }] },
      hr: { upstreams: ['payroll'], when: 'claims.dept == "hr"' },
    },
    [{ roles: ['all', 'hr'], anyone: true }],
    claims,
  );
  await using place = await company(access);
  const ada = await legacy(place.gateway, ADA);
  for (let times = 0; times < 3; times++) {
    assert.ok(!(await ada.names('tools/list', 'tools')).includes('repo__write'));
  }
  const text = await place.gateway.metrics.text();
  assert.match(text, /linkspan_access_rule_failures_total\{rule="all deny 1"\} 1/);
  assert.match(text, /linkspan_access_rule_failures_total\{rule="hr"\} 1/);
});

// SEC-07
test('unlisted names reach no upstream without a prefix if something of it is denied', TIMEOUT, async () => {
  const access = accessOf({ most: { upstreams: ['repo'], deny: [{ tools: ['delete'] }] }, all: ROLES.all }, [
    { roles: ['most'], groups: ['eng'] },
    { roles: ['all'], keys: ['root'] },
  ]);
  await using place = await company(access);
  const ada = await legacy(place.gateway, ADA, 'repo');
  const denied = await ada.ask('tools/call', toolCall('delete'));
  const unknown = await ada.ask('tools/call', toolCall('absent'));
  assert.equal(JSON.stringify(denied).replaceAll('delete', 'absent'), JSON.stringify(unknown));
  assert.equal(place.repo.requests('tools/call').length, 0);
  const root = await legacy(place.gateway, ROOT, 'repo');
  assert.equal((await root.ask('tools/call', toolCall('absent'))).error, undefined);
});

// SEC-08
test('a restored session gets only subscriptions that its principal may have now', TIMEOUT, async () => {
  await using place = await company();
  const { gateway } = place;
  const [wide, narrow] = [tokenOf('ada', { groups: ['eng'] }), tokenOf('ada', { groups: [] })];
  const { client } = await legacy(gateway, wide);
  const uri = 'repo+repo://public/a';
  await client.result('resources/subscribe', { uri });
  for (const [principal, expected] of [
    [narrow, []],
    [wide, [uri]],
  ] as const) {
    await gateway.restart();
    const found = await gateway.core.gateway.findSession(client.session.id, principal, '');
    assert.ok(found !== undefined);
    const [session] = [...gateway.core.sessions];
    assert.deepEqual([...(session?.subscriptions.keys() ?? [])], expected);
  }
});
