import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { openRedisKeys } from '../../../src/compose/keys/open-redis-keys.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { runCli, type Ran } from '../../support/cli.ts';
import { type RunningGateway, startGateway } from '../../support/gateway.ts';
import { RedisServer } from '../../support/redis.ts';
import { waitUntil } from '../../support/wait-until.ts';

const SERVER = fileURLToPath(new URL('../../fixtures/servers/pid-stdio.ts', import.meta.url));
const BOUNDED = { timeout: 120_000 };

let gateway: RunningGateway;
let folder = '';

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'linkspan-explain-'));
  const local = { command: process.execPath, args: [SERVER], excludeTools: ['secret'] };
  const access = {
    claims: { roles: { path: 'realm_access.roles', type: 'list' } },
    groupClaims: ['roles'],
    roles: {
      dev: { upstreams: ['local'], tools: ['*'], deny: [{ tools: ['fail'] }] },
      odd: { upstreams: ['local'], tools: ['pid'], when: 'args.a == 1' },
    },
    grants: [
      { roles: ['dev'], groups: ['dev'] },
      { roles: ['odd'], keys: ['ci'] },
    ],
  };
  const apiKeys = [{ name: 'ci', sha256: 'a1'.repeat(32) }];
  const gatewayPart = { access, auth: { apiKeys } };
  gateway = await startGateway(
    { mcpServers: { local, other: { ...local }, broken: { command: '/does/not/exist' } }, gateway: gatewayPart },
    { args: ['--warm'] },
  );
});

after(async () => {
  await gateway.stop();
  await rm(folder, { recursive: true, force: true });
});

function on(...args: readonly string[]): Promise<Ran> {
  return runCli([...args, '--config', gateway.configFile], folder, { HOME: folder }, 30_000);
}

function diff(...files: readonly string[]): Promise<Ran> {
  return runCli(['policy', 'diff', ...files], folder, { HOME: folder }, 30_000);
}

const DEV = JSON.stringify({ claims: { realm_access: { roles: ['dev'] } } });

test('explain names the rule that denies, with its file and line', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('explain', 'tool', 'local__fail', '--as', DEV);
  assert.deepEqual([code, stderr], [1, '']);
  assert.match(stdout, /^tool "local__fail" at \/mcp for described: denied, not listed\n/);
  assert.match(stdout, /^ {2}upstream {2}upstream "local" is \w+/m);
  assert.match(stdout, /^ {2}rule {6}deny rule "dev deny 1" applies \(\S*config\.json:\d+\)$/m);
  assert.match(stdout, /^ {2}decision {2}rule "dev deny 1" denies it$/m);
});

test('explain answers for the payload of a token in a file, as JSON', BOUNDED, async () => {
  const file = join(folder, 'token.json');
  await writeFile(file, JSON.stringify({ iss: 'https://i', sub: 'ada', realm_access: { roles: ['dev'] } }));
  const { code, stdout } = await on('explain', 'tool', 'local__pid', '--as', file, '--json');
  const answer = JSON.parse(stdout);
  assert.deepEqual(
    [code, answer.principal, answer.effect, answer.isListed, answer.upstream, answer.upstreamName],
    [0, 'ada', 'allow', true, 'local', 'pid'],
  );
});

// P-007
test('explain shows the groups and the declared claims as the token has them', BOUNDED, async () => {
  const shown = async (payload: object) =>
    (await on('explain', 'tool', 'local__pid', '--as', JSON.stringify({ claims: payload }))).stdout;
  const read = await shown({ realm_access: { roles: ['dev', 'ops'] } });
  assert.match(read, /^ {2}groups {4}dev, ops$/m);
  assert.match(read, /^ {2}claim {5}roles: \["dev","ops"\]$/m);
  const odd = await shown({ realm_access: { roles: ['dev', 7] } });
  assert.match(odd, /^ {2}groups {4}none$/m);
  assert.match(odd, /^ {2}claim {5}roles: \["dev",7\], which is not of the declared type, so rules do not see it$/m);
  assert.match(await shown({}), /^ {2}claim {5}roles: absent$/m);
});

test('explain says that arguments decide, and decides with them', BOUNDED, async () => {
  const asked = ['explain', 'tool', 'local__pid', '--as', 'ci'];
  assert.match((await on(...asked)).stdout, /allowed by some calls only, listed/);
  assert.match((await on(...asked, '--args', '{"a":1}')).stdout, /: allowed, listed/);
  const denied = await on(...asked, '--args', '{"a":2}');
  assert.match(denied.stdout, /: denied, listed/);
  assert.equal(denied.code, 1);
});

test('explain refuses arguments that it would read in another way than a call', BOUNDED, async () => {
  const asked = ['explain', 'tool', 'local__pid', '--as', 'ci', '--args'];
  const twice = await on(...asked, '{"a":2,"a":1}');
  assert.equal(twice.code, 2);
  assert.match(twice.stderr, /^linkspan: --args: a client that sends this is refused: .*twice/);
  const large = await on(...asked, '{"id":12345678901234567891,"a":1e400}');
  assert.match(large.stderr, /the number 1e400 is too large to be explained/);
});

test('explain tells filters, unknown items and endpoints apart', BOUNDED, async () => {
  const filtered = await on('explain', 'tool', 'local__secret', '--as', DEV);
  assert.match(filtered.stdout, /filtered: Left out by includeTools or excludeTools|: unknown\n/);
  const unknown = await on('explain', 'tool', 'local__nothing', '--as', DEV);
  assert.match(unknown.stdout, /: unknown\n[^]*^ {2}list {6}upstream "local" does not list it for all clients$/m);
  assert.doesNotMatch(unknown.stdout, /prefix/);
  const misspelled = await on('explain', 'tool', 'local__pidd', '--as', DEV);
  assert.match(misspelled.stdout, /does not list it for all clients \(did you mean "local__pid"\?\)$/m);
  const unlisted = await on('explain', 'tool', 'broken__any', '--as', DEV);
  assert.match(
    unlisted.stdout,
    /^ {2}upstream {2}it has the prefix of upstream "broken", which is failed \(.*\): its items may be unknown$/m,
  );
  const endpoint = await on('explain', 'tool', 'pid', '--as', DEV, '--view', 'other');
  assert.match(endpoint.stdout, /it may use nothing at \/mcp\/other, which answers 404/);
  const byPath = await on('explain', 'tool', 'pid', '--as', DEV, '--view', '/mcp/other');
  assert.equal(byPath.stdout, endpoint.stdout);
});

test('a wrong description of a principal is a wrong command line or request', BOUNDED, async () => {
  assert.equal((await on('explain', 'tool', 'local__pid', '--as', '{"a":')).code, 2);
  const missing = await on('explain', 'tool', 'local__pid', '--as', './missing.json');
  assert.deepEqual([missing.code, missing.stderr], [2, 'linkspan: --as: there is no file ./missing.json\n']);
  const here = await on('explain', 'tool', 'local__pid', '--as', 'missing.json');
  assert.deepEqual([here.code, here.stderr], [2, 'linkspan: --as: there is no file missing.json\n']);
  const key = await on('explain', 'tool', 'local__pid', '--as', 'nobody');
  assert.deepEqual([key.code, key.stderr], [1, 'linkspan: as: there is no API key "nobody"\n']);
  const wrong = await on('explain', 'tool', 'local__pid', '--as', '{"group":["x"]}');
  assert.equal(wrong.code, 1);
  assert.match(wrong.stderr, /^linkspan: as: .*"group" \(did you mean "groups"\?\)$/m);
});

test('an operator may call every tool, since the policy is for clients', BOUNDED, async () => {
  const { code, stderr } = await on('call', 'local__pid', 'a=2');
  assert.equal(code, 0, stderr);
});

test('explain --offline asks the config file and the last lists', BOUNDED, async () => {
  const { code, stdout, stderr } = await on('explain', 'tool', 'local__fail', '--as', DEV, '--offline');
  assert.deepEqual([code, stderr], [1, '']);
  assert.match(stdout, /^ {2}decision {2}rule "dev deny 1" denies it$/m);
  assert.doesNotMatch(stdout, /^ {2}upstream/m);
});

test('explain --offline gives as a reason that the lists of an upstream are not there', BOUNDED, async () => {
  const doubt = /has no lists for all clients of "broken"/;
  const asked = ['explain', 'tool', 'broken__any', '--as', DEV, '--offline'];
  const text = await on(...asked);
  assert.match(text.stdout, /^ {2}list {6}\S+ has no lists for all clients of "broken"/m);
  assert.equal(text.stderr, '');
  const { reasons }: { readonly reasons: readonly { readonly text: string }[] } = JSON.parse(
    (await on(...asked, '--json')).stdout,
  );
  assert.ok(reasons.some((one) => doubt.test(one.text)));
});

/** Writes a config with another access policy beside that of the gateway. */
async function configWith(name: string, change: (access: Access) => Access, own: object = {}): Promise<string> {
  const text = await readFile(gateway.configFile, 'utf8');
  const config: { gateway: { access: Access } } = JSON.parse(text);
  const file = join(folder, name);
  const next = { ...config, gateway: { ...config.gateway, ...own, access: change(config.gateway.access) } };
  await writeFile(file, JSON.stringify(next, undefined, 2));
  return file;
}

interface Access {
  readonly roles: Readonly<Record<string, object>>;
  readonly grants: readonly object[];
}

test('policy diff prints the items that principals lose or gain, and exits with 1', BOUNDED, async () => {
  const file = await configWith('next.json', ({ roles, grants, ...rest }) => ({
    ...rest,
    roles: { ...roles, dev: { upstreams: ['local', 'other'], tools: ['fail'] } },
    grants,
  }));
  const { code, stdout, stderr } = await diff(gateway.configFile, file);
  assert.equal(code, 1);
  assert.match(
    stderr,
    /^warning: \S+ has no lists for all clients of "broken"; .* "linkspan prefetch" stores them there\n$/,
  );
  assert.match(stdout, /^- group dev at \/mcp loses tool local__pid$/m);
  assert.match(stdout, /^\+ group dev at \/mcp gains tool local__fail \(all calls\)$/m);
  assert.match(stdout, /^\+ group dev at \/mcp gains tool other__fail \(all calls\)$/m);
  assert.doesNotMatch(stdout, /key ci/);
  assert.deepEqual(await diff(gateway.configFile, gateway.configFile), {
    code: 0,
    stdout: 'Nobody loses or gains anything that the last lists have.\n',
    stderr,
  });
});

test('policy diff takes the lists of either config, and says if there are none', BOUNDED, async () => {
  const none = { stateDir: join(folder, 'no-lists') };
  const copy = await configWith('copy.json', (access) => access, none);
  const changed = await configWith('changed.json', ({ roles, ...rest }) => ({
    ...rest,
    roles: { ...roles, dev: { upstreams: ['local'], tools: ['fail'] } },
  }));
  assert.match((await diff(copy, changed)).stdout, /^- group dev at \/mcp loses tool local__pid$/m);
  const { code, stdout, stderr } = await diff(copy, copy);
  assert.deepEqual([code, stdout], [1, '']);
  assert.match(stderr, /^Cannot say who loses or gains anything: no lists of the upstreams are stored\.$/m);
});

test('policy diff says that it does not compare what scopes on demand show', BOUNDED, async () => {
  const issuer = {
    issuer: 'https://issuer.test',
    jwksUrl: 'https://issuer.test/jwks',
    audiences: ['https://gateway.test/mcp'],
  };
  const apiKeys = [{ name: 'ci', sha256: 'a1'.repeat(32) }];
  const auth = (...scopesOnDemand: readonly string[]) => ({ auth: { apiKeys, jwt: [{ ...issuer, scopesOnDemand }] } });
  const files = [
    await configWith('no-scopes.json', (access) => access, auth()),
    await configWith('scopes.json', (access) => access, auth('w')),
  ];
  const [without = '', withScope = ''] = files;
  const note =
    /^warning: scopesOnDemand differs; only what principals may use is compared, not what these scopes show$/m;
  const { code, stdout, stderr } = await diff(without, withScope);
  assert.match(stderr, note);
  assert.deepEqual([code, stdout], [0, 'Nobody loses or gains anything that the last lists have.\n']);
  assert.doesNotMatch((await diff(withScope, withScope)).stderr, note);
});

test('policy diff prints items of which other calls are allowed', BOUNDED, async () => {
  const file = await configWith('when.json', ({ roles, ...rest }) => ({
    ...rest,
    roles: { ...roles, odd: { ...roles['odd'], when: 'args.a == 1 || args.a == 2' } },
  }));
  const { code, stdout } = await diff(gateway.configFile, file);
  assert.equal(code, 1);
  assert.match(stdout, /^~ key ci at \/mcp: tool local__pid, some calls by other conditions$/m);
});

test('policy diff compares each API key of a name by its own groups', BOUNDED, async () => {
  const withBots = (...keys: readonly (readonly string[])[]) => {
    const apiKeys = keys.map((groups, n) => ({ name: 'bot', sha256: `a${n}`.repeat(32), groups }));
    const next = ({ roles, grants: [dev = {}], ...rest }: Access) => ({
      ...rest,
      roles: { ...roles, out: { deny: [{ tools: ['pid'] }] } },
      grants: [dev, { roles: ['out'], groups: ['out'] }],
    });
    return configWith(`bots-${keys.join('-')}.json`, next, { auth: { apiKeys } });
  };
  const dev = await withBots(['dev']);
  const { stdout } = await diff(await withBots([]), dev);
  assert.match(stdout, /^\+ key bot at \/mcp gains tool local__pid \(all calls\)$/m);
  assert.doesNotMatch(stdout, /group dev/);
  assert.equal((await diff(dev, await withBots(['dev'], ['dev']))).code, 0);
  const lost = (await diff(dev, await withBots(['dev'], ['dev', 'out']))).stdout;
  assert.match(lost, /^(- key bot \(groups dev → dev, out\) at \S+ loses tool (local__)?pid\n){2}$/);
});

test('policy diff says that it compares neither claims nor an external decision', BOUNDED, async () => {
  const other = await configWith('claims.json', (access) => ({
    ...access,
    claims: { roles: { path: 'roles', type: 'list' } },
    external: { url: 'https://pdp.test/x' },
  }));
  const { stderr } = await diff(gateway.configFile, other);
  assert.match(stderr, /^warning: claims or groupClaims differs; principals are compared by their groups/m);
  assert.match(stderr, /^warning: external differs; only what the rules allow is compared/m);
});

test('policy diff says that it compares neither keys outside the config nor issuers', BOUNDED, async () => {
  const apiKeys = [{ name: 'ci', sha256: 'a1'.repeat(32) }];
  const jwt = [{ issuer: 'https://issuer.test', jwksUrl: 'https://issuer.test/jwks', audiences: ['a'] }];
  const auth = { apiKeys, jwt, keyFile: 'other-keys.json' };
  const other = await configWith('other-auth.json', (access) => access, { auth });
  const { stderr } = await diff(gateway.configFile, other);
  assert.match(stderr, /^warning: keyFile or keysInRedis differs; the keys there are not compared/m);
  assert.match(stderr, /^warning: the list of issuers differs; /m);
});

test('policy diff compares the endpoints of upstreams and profiles', BOUNDED, async () => {
  const profiles = (excludeTools: readonly string[]) => ({ profiles: { few: { upstreams: ['local'], excludeTools } } });
  const files = [
    await configWith('all.json', (access) => access, profiles([])),
    await configWith('fewer.json', (access) => access, profiles(['local__pid'])),
    await configWith(
      'none.json',
      ({ roles, ...rest }) => ({ ...rest, roles: { ...roles, dev: { upstreams: ['other'] } } }),
      profiles([]),
    ),
  ];
  const [all = '', fewer = '', none = ''] = files;
  assert.equal(
    (await diff(all, fewer)).stdout,
    '- group dev at /mcp/few loses tool local__pid\n- key ci at /mcp/few loses tool local__pid\n',
  );
  const lost = (await diff(all, none)).stdout;
  assert.match(lost, /^- group dev at \/mcp, \/mcp\/few loses tool local__pid$/m);
  assert.match(lost, /^- group dev at \/mcp\/local loses tool pid$/m);
});

test('commands that read the last lists say that those of replicas are in Redis', BOUNDED, async () => {
  const { mcpServers, gateway: own }: { mcpServers: object; gateway: object } = JSON.parse(
    await readFile(gateway.configFile, 'utf8'),
  );
  const redis = { url: 'redis://127.0.0.1:9/0', wrappingKeys: [randomBytes(32).toString('base64')] };
  const file = join(folder, 'replica.json');
  await writeFile(file, JSON.stringify({ mcpServers, gateway: { ...own, redis, stateDir: join(folder, 'none') } }));
  const doubt =
    /^(warning:| {2}list {5}) with gateway\.redis the last lists are in Redis; this command reads only those in \S+none$/m;
  for (const command of [
    ['policy', 'diff', file, file],
    ['explain', 'tool', 'local__pid', '--as', DEV, '--offline', '--config', file],
  ]) {
    const { stdout, stderr } = await runCli(command, folder, { HOME: folder }, 30_000);
    assert.match(`${stdout}${stderr}`, doubt, command.join(' '));
  }
});

// N-89
test('validate warns of a glob or name that matches nothing in the last lists', BOUNDED, async () => {
  const file = await configWith('glob.json', ({ roles, ...rest }) => ({
    ...rest,
    roles: { ...roles, late: { upstreams: ['local'], tools: ['pid', 'pdi*'], when: 'tool.name in ["pid", "pdi"]' } },
  }));
  const { stderr } = await runCli(['validate', '--config', file], folder, { HOME: folder }, 30_000);
  assert.match(stderr, /glob\.json:\d+: rule "late": tools "pdi\*" matches nothing in the last lists/);
  assert.match(
    stderr,
    /glob\.json:\d+: rule "late": the text that its condition compares tool\.name with matches nothing in the last lists.* \(at character 22\)/,
  );
  assert.doesNotMatch(stderr, /"pid"/);
});

// N-89
test('validate warns of a test of the policy about a name that the last lists lack', BOUNDED, async () => {
  const of = (upstream: string, tool: string) => ({ as: { key: 'ci' }, upstream, tool, expect: 'hidden' });
  const tests = [of('local', 'fail'), of('local', 'fial'), of('broken', 'any')];
  const file = await configWith('tests.json', (access) => ({ ...access, tests }));
  const { code, stderr } = await runCli(['validate', '--config', file], folder, { HOME: folder }, 30_000);
  const warnings = stderr.split('\n').filter((line) => line.includes('this test of the access policy'));
  assert.deepEqual([code, warnings.length], [0, 1], stderr);
  assert.match(
    warnings[0] ?? '',
    /tests\.json:\d+: .* the tool "fial", .* upstream "local" lack \(did you mean "fail"\?\)$/,
  );
});

// N-89
test('validate takes no tool that the lock withholds for unknown', BOUNDED, async () => {
  const lock = { file: 'withheld.lock', onChange: 'quarantine' };
  const tests = ['fail', 'fial'].map((tool) => ({ as: { key: 'ci' }, upstream: 'local', tool, expect: 'hidden' }));
  const file = await configWith('withheld.json', (access) => ({ ...access, tests }), { lock });
  const run = (...args: string[]) => runCli([...args, '--config', file], folder, { HOME: folder }, 30_000);
  await run('lock');
  const path = join(folder, 'withheld.lock');
  await writeFile(path, (await readFile(path, 'utf8')).replaceAll('"fail"', '"failed"'));
  const { stderr } = await run('validate');
  assert.deepEqual(stderr.match(/(?<=about the tool )"\w+"/g), ['"fial"'], stderr);
});

// N-89
test('validate warns of a rate for a tool that the last lists lack', BOUNDED, async () => {
  const rate = { to: { anyone: true }, upstreams: ['local'], limit: 1, window: '1m' };
  const rates = [
    { ...rate, name: 'right', tools: ['local__p*'] },
    { ...rate, name: 'own', tools: ['pid', 'pdi'] },
    { ...rate, name: 'merged', tools: ['pid', 'local__pdi'], endpoints: ['/mcp'] },
    { ...rate, name: 'unlisted', tools: ['nosuch'], upstreams: ['broken'] },
  ];
  const file = await configWith('rates.json', (access) => access, { rates });
  const { stderr } = await runCli(['validate', '--config', file], folder, { HOME: folder }, 30_000);
  const warnings = stderr.split('\n').filter((line) => line.includes('rate "'));
  assert.equal(warnings.length, 2, stderr);
  assert.match(
    warnings[0] ?? '',
    /warning: rate "own": tools "pdi" matches no tool in the last lists; a published name is local__/,
  );
  assert.match(warnings[1] ?? '', /warning: rate "merged": tools "local__pdi" matches no tool in the last lists/);
});

interface KeyCase {
  readonly as: string | object;
  readonly expected: RegExp;
}

/** The same cases for the running gateway and for the config file alone. */
const KEY_CASES: readonly KeyCase[] = [
  { as: 'dev-key', expected: /: allowed, listed/ },
  { as: { key: 'dev-key', groups: [] }, expected: /: denied, not listed/ },
  { as: { key: 'other-key' }, expected: /: denied, not listed/ },
  { as: 'old-key', expected: /the API key "old-key" has expired/ },
  { as: 'nobody', expected: /there is no API key "nobody"/ },
  { as: 'twice', expected: /the API keys "twice" have different groups/ },
];

const storedKeys = [
  { name: 'dev-key', sha256: 'b1'.repeat(32), groups: ['dev'] },
  { name: 'other-key', sha256: 'b2'.repeat(32), groups: ['other'] },
  { name: 'old-key', sha256: 'b3'.repeat(32), groups: ['dev'], expiresAt: '2020-01-01T00:00:00Z' },
  { name: 'twice', sha256: 'b4'.repeat(32), groups: ['dev'] },
  { name: 'twice', sha256: 'b5'.repeat(32), groups: ['other'] },
];

/** @param hasLists true if the last lists are on disk, not in Redis. */
async function assertKeyGroups(running: RunningGateway, hasLists: boolean): Promise<void> {
  for (const { as, expected } of hasLists ? KEY_CASES : KEY_CASES.slice(0, 1)) {
    const who = typeof as === 'string' ? as : JSON.stringify(as);
    for (const how of [[], ['--offline']]) {
      const asked = ['explain', 'tool', 'local__pid', '--as', who, ...how, '--config', running.configFile];
      const { stdout, stderr } = await runCli(asked, folder, { HOME: folder }, 30_000);
      const isUnknown = how.length > 0 && !hasLists && stdout !== '';
      assert.match(`${stdout}${stderr}`, isUnknown ? /: unknown\n/ : expected, `${who} ${how.join()}`);
    }
  }
}

/** Returns a config with these settings for its API keys. */
function configWithKeys(auth: object, own: object = {}) {
  const access = {
    roles: { dev: { upstreams: ['local'] } },
    grants: [{ roles: ['dev'], groups: ['dev'] }],
  };
  return {
    mcpServers: { local: { command: process.execPath, args: [SERVER] } },
    gateway: { access, auth, ...own },
  };
}

test('explain knows the groups of keys in the config', BOUNDED, async () => {
  const apiKeys = storedKeys
    .filter(({ name }) => name !== 'old-key')
    .map(({ name, sha256, groups }) => ({ name, sha256, groups }));
  await using running = await startGateway(configWithKeys({ apiKeys }), { args: ['--warm'] });
  const asked = ['explain', 'tool', 'local__pid', '--as', 'dev-key', '--config', running.configFile];
  for (const how of [[], ['--offline']]) {
    const { stdout, stderr } = await runCli([...asked, ...how], folder, { HOME: folder }, 30_000);
    assert.match(`${stdout}${stderr}`, /: allowed, listed/);
  }
});

// N-89
test('validate warns of a grant for a key that the key file lacks', BOUNDED, async () => {
  const keyFile = join(folder, 'validated.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: storedKeys }), { mode: 0o600 });
  const grantTo = (access: Access) => ({ ...access, grants: [{ roles: ['dev'], keys: ['dev-key', 'dev-kye'] }] });
  const warningsOf = async (auth: object) => {
    const file = await configWith('key-names.json', grantTo, { auth });
    const { stderr } = await runCli(['validate', '--config', file], folder, { HOME: folder }, 30_000);
    return stderr.split('\n').filter((line) => line.includes('grants'));
  };
  const [warning, ...others] = await warningsOf({ keyFile });
  assert.match(
    warning ?? '',
    /^warning: \S*key-names\.json:\d+:\d+ gateway\.access\.grants\[0\]\.keys\[1\]: no such API key/,
  );
  assert.deepEqual(others, []);
  assert.deepEqual(await warningsOf({ keyFile: join(folder, 'nosuch.json') }), [], 'no key is known');
});

test('explain knows the groups of keys in a key file, as the gateway does', BOUNDED, async () => {
  const keyFile = join(folder, 'keys.json');
  await writeFile(keyFile, JSON.stringify({ version: 1, keys: storedKeys }), { mode: 0o600 });
  await using running = await startGateway(configWithKeys({ keyFile }), { args: ['--warm'] });
  await assertKeyGroups(running, true);
});

test('explain knows the groups of keys in Redis, as the gateway does', BOUNDED, async () => {
  await using redis = await RedisServer.start();
  const settings = { url: redis.url, wrappingKeys: [randomBytes(32).toString('base64')] };
  const file = configWithKeys({ keysInRedis: true }, { redis: settings });
  await using running = await startGateway(file, { args: ['--warm'] });
  const { config } = await loadConfig(running.configFile, { env: process.env });
  assert.ok(config.redis !== undefined);
  {
    await using shared = await openRedisKeys(config.redis);
    await shared.store.change(() => ({ add: storedKeys }));
  }
  const asked = ['explain', 'tool', 'local__pid', '--as', 'dev-key', '--config', running.configFile];
  await waitUntil(async () => (await runCli(asked, folder, { HOME: folder }, 30_000)).stdout.includes(': allowed'));
  await assertKeyGroups(running, false);
});

test('validate warns of a resources glob that matches no resource and no template', BOUNDED, async () => {
  const resources = ['file:///a', 'file:///folder/*', 'FILE:///%61', 'fil:///a', 'https://*'];
  const file = await configWith('resources.json', ({ roles, ...rest }) => ({
    ...rest,
    roles: { ...roles, late: { upstreams: ['local'], resources, deny: [{ resources: ['file:///a/../a'] }] } },
  }));
  const { stderr } = await runCli(['validate', '--config', file], folder, { HOME: folder }, 30_000);
  const warned = [...stderr.matchAll(/rules? "[^"]*": resources "([^"]*)" matches nothing/g)].map(([, glob]) => glob);
  assert.deepEqual(warned, ['fil:///a', 'https://*'], stderr);
});
