import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type Claims, ENDPOINT, signingKey, TestIssuer } from '../auth/issuer.ts';
import { connect, type EitherClient, SDKS } from '../support/either-sdk.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { type HttpUpstream, legacyUpstream, modernUpstream, type ServerScript } from '../support/http-upstream.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';

const TIMEOUT = { timeout: 120_000 };
const READS = { annotations: { readOnlyHint: true } };

function tool(name: string, more: object = {}): Record<string, unknown> {
  return { name, inputSchema: { type: 'object' }, ...more };
}

function script(id: string, tools: readonly Record<string, unknown>[]): ServerScript {
  const answer = () => ({ content: [{ type: 'text', text: id }] });
  return { tools, answers: { 'tools/call': answer } };
}

/** The five servers of a company: some of them speak 2025-11-25, some 2026-07-28. */
const SERVERS = {
  github: () => legacyUpstream(script('github', [tool('get_issue', READS), tool('merge'), tool('delete_repo')])),
  jira: () => legacyUpstream(script('jira', [tool('list_tickets', READS), tool('comment'), tool('close')])),
  crm: () => modernScript('crm', [tool('get_account', READS), tool('update_account')]),
  payroll: () => legacyUpstream(script('payroll', [tool('pay')])),
  wiki: () => modernScript('wiki', [tool('search', READS), tool('edit')]),
};

function modernScript(id: string, tools: readonly Record<string, unknown>[]): Promise<HttpUpstream> {
  const { answers, ...rest } = script(id, tools);
  const call = answers?.['tools/call'];
  return modernUpstream({
    ...rest,
    answers: { 'tools/call': (served) => ({ resultType: 'complete', ...call?.(served) }) },
  });
}

const ENGINEERING = { upstreams: ['github', 'jira'], deny: [{ upstreams: ['github'], tools: ['delete_*'] }] };
const ACCESS = {
  claims: { roles: { path: 'realm_access.roles', type: 'list' } },
  groupClaims: ['roles'],
  roles: {
    everyone: { upstreams: ['wiki'], readOnly: true },
    engineer: ENGINEERING,
    support: { upstreams: ['jira', 'crm'], tools: ['get_*', 'list_*', 'comment'] },
    finance: { upstreams: ['payroll', 'crm'] },
  },
  grants: [
    { roles: ['everyone'], anyone: true },
    { roles: ['engineer'], groups: ['engineering'] },
    { roles: ['support'], groups: ['support'] },
    { roles: ['finance'], groups: ['finance'] },
  ],
};

const VISIBLE = {
  engineering: [
    'github__get_issue',
    'github__merge',
    'jira__close',
    'jira__comment',
    'jira__list_tickets',
    'wiki__search',
  ],
  support: ['crm__get_account', 'jira__comment', 'jira__list_tickets', 'wiki__search'],
  finance: ['crm__get_account', 'crm__update_account', 'payroll__pay', 'wiki__search'],
  nobody: ['wiki__search'],
};
type Group = keyof typeof VISIBLE;
const GROUPS: readonly Group[] = ['engineering', 'support', 'finance', 'nobody'];

let issuer: TestIssuer;
let gateway: RunningGateway;
let file: GatewayFile;
const upstreams = new Map<string, HttpUpstream>();

before(async () => {
  issuer = await TestIssuer.start(await signingKey('ES256', 'one'));
  for (const [id, start] of Object.entries(SERVERS)) upstreams.set(id, await start());
  const mcpServers = Object.fromEntries(
    [...upstreams].map(([id, { config }]) => [
      id,
      { type: 'http', url: 'url' in config.target ? config.target.url : '' },
    ]),
  );
  const jwt = [{ issuer: issuer.issuer, jwksUrl: issuer.jwksUrl, audiences: [ENDPOINT], algorithms: ['ES256'] }];
  file = { mcpServers, gateway: { auth: { jwt }, access: ACCESS } };
  gateway = await startGateway(file);
});

after(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await issuer?.[Symbol.asyncDispose]();
  for (const upstream of upstreams.values()) await upstream[Symbol.asyncDispose]();
});

/** Returns the headers of a user of this group. */
async function as(group: Group, subject = `a ${group} user`, more: Claims = {}): Promise<{ authorization: string }> {
  const roles = group === 'nobody' ? [] : [group];
  return { authorization: `Bearer ${await issuer.token({ sub: subject, realm_access: { roles }, ...more })}` };
}

async function namesOf(client: EitherClient): Promise<readonly string[]> {
  return (await client.tools()).map(({ name }) => name).toSorted();
}

/** Returns the answer to a modern request of this group. */
async function modern(group: Group, method: string, params: object = {}, endpoint?: string) {
  const headers = await as(group);
  return await modernPost(gateway.endpoint(endpoint), method, { ...params }, { headers });
}

for (const sdk of SDKS) {
  // SEC-07
  test(`each group lists its own tools and calls them (${sdk})`, TIMEOUT, async () => {
    for (const group of GROUPS) {
      await using client = await connect(sdk, gateway.endpoint(), { headers: await as(group) });
      assert.deepEqual(await namesOf(client), VISIBLE[group], group);
      for (const name of new Set(Object.values(VISIBLE).flat())) {
        const mayCall: boolean = VISIBLE[group].includes(name);
        if (mayCall) assert.equal((await client.call(name)).content[0]?.text, name.split('__')[0], name);
        else await assert.rejects(client.call(name), /Unknown tool/, `${group} ${name}`);
      }
    }
  });
}

// SEC-07
test('each group lists its own tools and calls them (2026-07-28)', TIMEOUT, async () => {
  for (const group of GROUPS) {
    const listed = answerOf(await modern(group, 'tools/list')).result?.['tools'];
    assert.ok(Array.isArray(listed));
    const names = listed.map(({ name }: { name: string }) => name).toSorted();
    assert.deepEqual(names, VISIBLE[group], group);
    const denied = answerOf(await modern(group, 'tools/call', { name: 'github__delete_repo', arguments: {} }));
    const unknown = answerOf(await modern(group, 'tools/call', { name: 'github__delete_nine', arguments: {} }));
    const spelled = JSON.stringify({ ...denied, id: 0 }).replaceAll('delete_repo', 'delete_nine');
    assert.equal(spelled, JSON.stringify({ ...unknown, id: 0 }));
  }
  assert.deepEqual(
    upstreams
      .get('github')
      ?.requests('tools/call')
      .filter(({ params }) => JSON.stringify(params).includes('delete')),
    [],
  );
});

// SEC-07
test('the endpoint of a denied upstream answers like one that does not exist', TIMEOUT, async () => {
  const initialize = {
    protocolVersion: '2025-11-25',
    capabilities: {},
    clientInfo: { name: 'test', version: '1' },
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params: initialize });
  const accept = 'application/json, text/event-stream';
  const shown = async (endpoint: string, method: string, group: Group) => {
    const headers = { accept, 'content-type': 'application/json', ...(await as(group)) };
    const init = method === 'POST' ? { method, headers, body } : { method, headers };
    const response = await fetch(gateway.endpoint(endpoint), init);
    const kept = [...response.headers].filter(([name]) => name !== 'date');
    return JSON.stringify([response.status, kept, await response.text()]);
  };
  for (const method of ['POST', 'GET', 'DELETE']) {
    assert.equal(await shown('payroll', method, 'engineering'), await shown('absent', method, 'engineering'), method);
  }
  assert.match(await shown('payroll', 'POST', 'engineering'), /^\[404/);
  assert.match(await shown('payroll', 'POST', 'finance'), /^\[200/);
  const one = await modern('support', 'server/discover', {}, 'payroll');
  const other = await modern('support', 'server/discover', {}, 'absent');
  assert.deepEqual([one.status, one.text], [other.status, other.text]);
});

// SEC-10
test('a session of one user is none of another, whatever their rights', TIMEOUT, async () => {
  await using client = await connect('SDK v1', gateway.endpoint(), { headers: await as('engineering') });
  const headers = {
    accept: 'application/json, text/event-stream',
    'content-type': 'application/json',
    'mcp-session-id': client.sessionId,
    'mcp-protocol-version': '2025-11-25',
    ...(await as('finance')),
  };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/list' });
  assert.equal((await fetch(gateway.endpoint(), { method: 'POST', headers, body })).status, 404);
});

// SEC-08
test('a token with other claims has other rights in the same session', TIMEOUT, async () => {
  await using client = await connect('SDK v1', gateway.endpoint(), { headers: await as('engineering', 'ada') });
  const ask = async (group: Group) => {
    const headers = {
      accept: 'application/json, text/event-stream',
      'content-type': 'application/json',
      'mcp-session-id': client.sessionId,
      'mcp-protocol-version': '2025-11-25',
      ...(await as(group, 'ada')),
    };
    const call = { name: 'github__merge', arguments: {} };
    const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: call });
    return await (await fetch(gateway.endpoint(), { method: 'POST', headers, body })).text();
  };
  assert.match(await ask('engineering'), /"content"/);
  assert.match(await ask('support'), /Unknown tool/);
  assert.match(await ask('engineering'), /"content"/);
});

// SEC-08
test('a reload takes rights from open sessions, and says so to them alone', TIMEOUT, async () => {
  await using engineer = await connect('SDK v1', gateway.endpoint(), { headers: await as('engineering') });
  await using accountant = await connect('SDK v1', gateway.endpoint(), { headers: await as('finance') });
  assert.deepEqual(await namesOf(engineer), VISIBLE.engineering);
  assert.deepEqual(await namesOf(accountant), VISIBLE.finance);
  const roles = { ...ACCESS.roles, engineer: { upstreams: ['jira'] } };
  await gateway.configure({ ...file, gateway: { ...file.gateway, access: { ...ACCESS, roles } } });
  await engineer.waitForNotification('notifications/tools/list_changed');
  await assert.rejects(engineer.call('github__merge'), /Unknown tool/);
  assert.deepEqual(
    await namesOf(engineer),
    VISIBLE.engineering.filter((name) => !name.startsWith('github')),
  );
  assert.deepEqual(await namesOf(accountant), VISIBLE.finance);
  const changes = accountant.notifications.items.filter(({ method }) => method.endsWith('list_changed'));
  assert.deepEqual(changes, []);
});
