import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { Reloader } from '../../../src/compose/reload/reload.ts';
import type { Config } from '../../../src/config/values/config.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { waitUntil } from '../../support/wait-until.ts';

interface Tried extends AsyncDisposable {
  readonly reloader: Reloader;
  /** The configs that were applied. */
  readonly applied: readonly Config[];
  /** The cause and outcome of each attempt. */
  readonly attempts: readonly string[];
  /** The messages in the log. */
  readonly lines: readonly string[];
  /** The number of attempts to apply a config. */
  readonly tries: () => number;
  /** Lets each attempt to apply a config fail while this returns true. */
  readonly refuses: (when: () => boolean) => void;
  readonly metrics: () => Promise<string>;
  write(text: string): Promise<void>;
}

/** The steps of a reload at which a test does something else. */
interface Steps {
  isStopping?(): boolean;
  load?(): Promise<void>;
  apply?(): Promise<void>;
}

/** Returns a reloader of a real file. Applying a config with the name `refused` fails. */
async function reloaderOf(text: string, steps: Steps = {}): Promise<Tried> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-reloader-'));
  const file = join(dir, 'linkspan.yaml');
  const write = (next: string) => writeFile(file, next);
  await write(text);
  const load = () => loadConfig(file, { env: {} });
  const attempts: string[] = [];
  const lines: string[] = [];
  let [tries, isRefused] = [0, () => false];
  const applied: Config[] = [];
  const metrics = createMetrics('test');
  const reloader = new Reloader({
    loaded: await load(),
    load: async () => {
      await steps.load?.();
      return await load();
    },
    isStopping: () => steps.isStopping?.() ?? false,
    preview: load,
    change: {
      apply: async (next) => {
        tries += 1;
        if (isRefused() || next.upstreams.some(({ id }) => id === 'refused')) throw new Error('cannot listen');
        await steps.apply?.();
        applied.push(next);
      },
      setFiles: async () => undefined,
    },
    metrics,
    log: pino({ level: 'info' }, { write: (line) => void lines.push(String(Object(JSON.parse(line)).msg)) }),
    onReloaded: (cause, outcome) => attempts.push(`${cause} ${outcome}`),
  });
  const remove = () => rm(dir, { recursive: true, force: true });
  return {
    reloader,
    applied,
    attempts,
    lines,
    tries: () => tries,
    refuses: (when) => void (isRefused = when),
    metrics: () => metrics.text(),
    write,
    [Symbol.asyncDispose]: remove,
  };
}

const A = 'mcpServers: {a: {command: node}}\n';
const AB = 'mcpServers: {a: {command: node}, b: {command: node}}\n';

test('the difference to the file is shown and changes nothing', async () => {
  await using tried = await reloaderOf(A);
  assert.deepEqual(await tried.reloader.difference(), { lines: [] });
  const { hash } = tried.reloader.state;
  await tried.write(AB);
  assert.deepEqual(await tried.reloader.difference(), { lines: ['+ mcpServers.b (stdio)'] });
  assert.deepEqual([tried.applied, tried.reloader.state.hash], [[], hash]);
  await tried.write('mcpServers: [');
  const difference = await tried.reloader.difference();
  assert.match('problem' in difference ? difference.problem : '', /linkspan\.yaml:1/);
  assert.equal(tried.reloader.state.rejected, undefined, 'only a reload rejects');
});

test('a rejected file is the state until one is accepted, also if it cannot be applied', async () => {
  await using tried = await reloaderOf(A);
  const { hash } = tried.reloader.state;
  for (const [text, reason] of [
    ['mcpServers: [', /linkspan\.yaml:1/],
    ['mcpServers: {a: {command: node}, refused: {command: node}}', /cannot listen/],
  ] as const) {
    await tried.write(text);
    assert.equal((await tried.reloader.reload('operator')).outcome, 'rejected');
    assert.match(tried.reloader.state.rejected?.reason ?? '', reason);
    assert.equal(tried.reloader.state.hash, hash);
  }
  await tried.write(A);
  assert.deepEqual(await tried.reloader.reload('operator'), { outcome: 'unchanged' });
  assert.equal(tried.reloader.state.rejected, undefined);
  const metrics = await tried.metrics();
  assert.match(metrics, /^linkspan_config_reloads_total\{outcome="rejected"\} 2$/m);
  assert.match(metrics, /^linkspan_config_last_reload_successful 1$/m);
});

test('reloads run one after another, and the last file wins', async () => {
  await using tried = await reloaderOf(A);
  await tried.write(AB);
  const both = [tried.reloader.reload('signal'), tried.reloader.reload('file')];
  assert.deepEqual(
    (await Promise.all(both)).map(({ outcome }) => outcome),
    ['applied', 'unchanged'],
  );
  assert.deepEqual(
    tried.applied.map(({ upstreams }) => upstreams.map(({ id }) => id)),
    [['a', 'b']],
  );
});

test('the settings shown are those that run: a restart is needed for some of the file', async () => {
  await using tried = await reloaderOf(`${A}gateway: {stateDir: /one, logLevel: info}\n`);
  const values = () =>
    Object.fromEntries(
      tried.reloader
        .settings()
        .filter(({ key }) => /stateDir|logLevel|lists\.wait/.test(key))
        .map(({ key, value }) => [key, value]),
    );
  const before = { 'gateway.stateDir': '/one', 'gateway.logLevel': 'info', 'gateway.lists.wait': '8s' };
  assert.deepEqual(values(), before);
  await tried.write(`${A}gateway: {stateDir: /two, logLevel: warn, lists: {wait: 1s}}\n`);
  assert.deepEqual(values(), before, 'nothing before the reload');
  await tried.reloader.reload('operator');
  const after = { 'gateway.stateDir': '/one', 'gateway.logLevel': 'warn', 'gateway.lists.wait': '1s' };
  assert.deepEqual(values(), after);
  assert.deepEqual(tried.reloader.state.atRestart.length, 1);
  await tried.reloader.reload('operator');
  assert.deepEqual(values(), after, 'still pending after another reload');
});

const WRAPPING_KEY = randomBytes(32).toString('base64');
const redis = (url: string, more = '') => `redis: {url: "${url}", wrappingKeys: ["${WRAPPING_KEY}"]${more}}`;

const waiting: readonly { readonly name: string; readonly before: string; readonly after: string }[] = [
  {
    name: 'sizes of the audit log',
    before: 'audit: {file: a}',
    after: 'audit: {file: a, maxSize: 1MiB, recordSize: 8KiB}',
  },
  {
    name: 'keys of the audit log',
    before: 'audit: {file: a}',
    after: `audit: {file: a, chainKeys: ["${WRAPPING_KEY}"]}`,
  },
  { name: 'the place of the audit log', before: 'audit: {file: a}', after: 'audit: {stdout: true}' },
  { name: 'an audit log that is new', before: '', after: 'audit: {file: a, required: true}' },
  { name: 'traces that are new', before: '', after: 'tracing: {endpoint: "http://a:1", sampling: 0.5}' },
  { name: 'traces that go', before: 'tracing: {enabled: true, sampling: 0.5}', after: '' },
  { name: 'a proxy that is new', before: '', after: 'egress: {proxy: "http://p:1", noProxy: [a]}' },
  { name: 'another server of Redis', before: redis('redis://h'), after: redis('redis://i') },
  {
    name: 'another port for replicas',
    before: redis('redis://h', ', internal: "a:1"'),
    after: redis('redis://h', ', internal: "a:2"'),
  },
  { name: 'memory of events', before: '', after: 'sessions: {events: 1, eventBytes: 1MiB, eventBytesTotal: 64MiB}' },
  { name: 'memory of answers', before: 'limits: {unsentTotal: 64MiB}', after: 'limits: {unsentTotal: 96MiB}' },
];

for (const { name, before, after } of waiting) {
  test(`the settings shown are those that run, until a restart: ${name}`, async () => {
    const text = (gateway: string) => `${A}gateway: {lists: {wait: 2s}, ${gateway}}\n`;
    await using tried = await reloaderOf(text(before));
    const values = () => tried.reloader.settings().map(({ key, value, origin }) => ({ key, value, origin }));
    const running = values();
    await tried.write(text(after).replace('2s', '1s'));
    assert.equal((await tried.reloader.reload('operator')).outcome, 'applied');
    assert.ok(tried.reloader.state.atRestart.length > 0);
    assert.deepEqual(
      values(),
      running.map((setting) => (setting.key === 'gateway.lists.wait' ? { ...setting, value: '1s' } : setting)),
    );
  });
}

test('a reload is rejected if an upstream would no longer run, not if it never ran', async () => {
  const missing = 'env: {A: "${LINKSPAN_TEST_NOT_SET}"}';
  await using tried = await reloaderOf(`mcpServers: {a: {command: node}, b: {command: node, ${missing}}}\n`);
  await tried.write(`mcpServers: {a: {command: node}, c: {command: node}, b: {command: node, ${missing}}}\n`);
  assert.equal((await tried.reloader.reload('operator')).outcome, 'applied');
  await tried.write(`mcpServers: {a: {command: node, ${missing}}, b: {command: node, ${missing}}}\n`);
  const rejected = await tried.reloader.reload('operator');
  assert.match('reason' in rejected ? rejected.reason : '', /mcpServers\.a: .*LINKSPAN_TEST_NOT_SET/);
});

test('the log says that a rejected file is again as the running config', async () => {
  await using tried = await reloaderOf(A);
  for (const text of ['mcpServers: [', A, A]) {
    await tried.write(text);
    await tried.reloader.reload('file');
  }
  assert.deepEqual(tried.lines, ['config rejected; the running one stays', 'config is again as it runs']);
});

test('places of rules that move are no change, and are those that messages name', async () => {
  const role = 'gateway: {access: {roles: {r: {upstreams: [a]}}, grants: [{roles: [r], anyone: true}]}}\n';
  await using tried = await reloaderOf(A + role);
  await tried.write(`${A}# A comment.\n${role}`);
  assert.deepEqual(await tried.reloader.difference(), { lines: [] });
  assert.deepEqual(await tried.reloader.reload('operator'), { outcome: 'unchanged' });
  assert.deepEqual(
    tried.applied.map(({ access }) => access?.roles[0]?.allow?.place.line),
    [3],
  );
  assert.deepEqual(await tried.reloader.reload('operator'), { outcome: 'unchanged' });
  assert.equal(tried.applied.length, 1, 'the same file again is not applied');
});

test('a file that is written without a change repeats no warning, but has new ones', async () => {
  const text = (dir: string, keys = 'colour: 1') =>
    `gateway: {stateDir: /${dir}}\nmcpServers: {a: {command: node, ${keys}}}\n`;
  await using tried = await reloaderOf(text('one'));
  for (const next of [`\n${text('one')}`, text('two'), `\n${text('two')}`]) {
    await tried.write(next);
    assert.equal((await tried.reloader.reload('file')).outcome, 'unchanged');
  }
  assert.deepEqual(tried.lines, ['changed settings take effect at the next start']);
  await tried.write(text('two', 'size: 1, colour: 1'));
  await tried.reloader.reload('file');
  assert.equal(tried.lines.length, 2);
  assert.match(tried.lines[1] ?? '', /linkspan\.yaml:2:33 mcpServers\.a\.size: unknown key; ignored$/);
  await tried.reloader.reload('signal');
  assert.equal(tried.lines.filter((line) => line.includes('unknown key')).length, 3);
});

test('a rejected config is tried again, and reported again only for another reason', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  await using tried = await reloaderOf(A);
  let isRefused = true;
  tried.refuses(() => isRefused);
  await tried.write(AB);
  await tried.reloader.reload('file');
  assert.match(tried.reloader.state.rejected?.reason ?? '', /cannot listen/);
  for (let n = 1; n <= 2; n++) {
    t.mock.timers.tick(5_000);
    await waitUntil(() => tried.tries() === n + 1);
  }
  assert.deepEqual(tried.attempts, ['file rejected']);
  isRefused = false;
  t.mock.timers.tick(5_000);
  await waitUntil(() => tried.applied.length === 1);
  await waitUntil(() => tried.attempts.length === 2);
  assert.deepEqual(tried.attempts, ['file rejected', 'file applied']);
  assert.equal(tried.reloader.state.rejected, undefined);
});

test('a rejected config is not tried again if its files are not watched', async (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  await using tried = await reloaderOf(`${A}gateway: {reload: {watch: false}}\n`);
  tried.refuses(() => true);
  await tried.write(`${AB}gateway: {reload: {watch: false}}\n`);
  await tried.reloader.reload('signal');
  t.mock.timers.tick(60_000);
  await tried.reloader.reload('signal');
  assert.equal(tried.tries(), 2);
});

test('a gateway that stops while a config is loaded does not apply it, nor wait for it', async () => {
  const [loading, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isStopping = false;
  await using tried = await reloaderOf(A, {
    isStopping: () => isStopping,
    load: async () => {
      loading.resolve();
      await going.promise;
    },
  });
  await tried.write(AB);
  const reloaded = tried.reloader.reload('operator');
  await loading.promise;
  isStopping = true;
  await tried.reloader.settle();
  going.resolve();
  assert.deepEqual(await reloaded, { outcome: 'rejected', reason: 'the gateway is shutting down' });
  assert.equal(tried.tries(), 0);
});

test('a gateway that stops while a config is applied waits for it', async () => {
  const [applying, going] = [Promise.withResolvers<void>(), Promise.withResolvers<void>()];
  let isStopping = false;
  await using tried = await reloaderOf(A, {
    isStopping: () => isStopping,
    apply: async () => {
      applying.resolve();
      await going.promise;
    },
  });
  await tried.write(AB);
  const reloads = [tried.reloader.reload('operator'), tried.reloader.reload('operator')];
  await applying.promise;
  isStopping = true;
  const applied = tried.reloader.settle().then(() => tried.applied.length);
  going.resolve();
  assert.equal(await applied, 1);
  assert.deepEqual(
    (await Promise.all(reloads)).map(({ outcome }) => outcome),
    ['applied', 'rejected'],
  );
});
