import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { mkdtemp, readdir, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
import { after, before, test } from 'node:test';
import { Child } from '../../support/child.ts';
import { type Ran, runCli } from '../../support/cli.ts';
import { MAIN } from '../../support/program.ts';

const BOUNDED = { timeout: 120_000 };
const ROOT = join(import.meta.dirname, '../../..');
const VOLUME = '/var/lib/linkspan';
const SHIPPED = readFileSync(join(ROOT, 'deploy/docker/config.yaml'), 'utf8');

let dir = '';
let file = '';
let text = '';
let env: Readonly<Record<string, string>> = {};
let gateway: Child;

/** Returns the variables that the first image sets, and asserts that every image sets them. */
function imageVariables(): Readonly<Record<string, string>> {
  const [first = [], ...others] = readFileSync(join(ROOT, 'Dockerfile'), 'utf8')
    .split('\n')
    .filter((line) => line.startsWith('ENV '))
    .map((line) => line.split(' ').slice(1));
  assert.ok(others.length > 0);
  for (const pairs of others)
    assert.deepEqual(
      pairs.filter((pair) => !first.includes(pair)),
      [],
    );
  return Object.fromEntries(first.map((pair) => pair.split('=', 2)));
}

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-broken-'));
  file = join(dir, 'config.yaml');
  const volume = join(dir, 'volume');
  const { XDG_STATE_HOME = '' } = imageVariables();
  env = { XDG_STATE_HOME: XDG_STATE_HOME.replace(VOLUME, volume), HOME: join(dir, 'home') };
  text = SHIPPED.replaceAll(VOLUME, volume)
    .replace('listen: 0.0.0.0:3000', 'listen: 127.0.0.1:0')
    .replace('operator: 0.0.0.0:3001', 'operator: 127.0.0.1:0');
  await writeFile(file, text);
  gateway = await Child.start(process.execPath, [MAIN, 'run', '--first-key', '--config', relative(ROOT, file)], {
    cwd: ROOT,
    env,
  });
  await gateway.waitForLine((line) => (line.includes('"msg":"listening"') ? true : undefined));
});

after(async () => {
  assert.deepEqual(await gateway.stop(), { code: 0, signal: null });
  const left = await readdir(join(dir, 'volume'), { recursive: true });
  assert.deepEqual(
    left.filter((name) => name.endsWith('operator.json') || name.startsWith('linkspan/')),
    [],
  );
  await rm(dir, { recursive: true, force: true });
});

function linkspan(...args: readonly string[]): Promise<Ran> {
  return runCli([...args, '--config', file], dir, env, 60_000);
}

const breakings = [
  { what: 'its end', broken: () => `${text}  x: [\n`, place: /config\.yaml:\d+:\d+/ },
  {
    what: 'the state directory',
    broken: () => text.replace('stateDir: ', 'stateDir: "'),
    place: /config\.yaml:\d+:\d+/,
  },
  { what: 'a tab', broken: () => text.replace('  stateDir', '\tstateDir'), place: /config\.yaml:10:1/ },
];

for (const { what, broken, place } of breakings) {
  // N-80
  test(`a shipped config that is broken at ${what} leaves its gateway in reach`, BOUNDED, async () => {
    await writeFile(file, broken());
    const healthy = await linkspan('healthcheck');
    assert.deepEqual([healthy.code, healthy.stderr], [0, '']);
    const reloaded = await linkspan('reload');
    assert.deepEqual([reloaded.code, reloaded.stderr], [1, '']);
    assert.match(reloaded.stdout, place);
    const shown = await linkspan('status');
    assert.deepEqual([shown.code, shown.stderr], [0, '']);
    assert.match(shown.stdout, /^Linkspan .*\n[^]*everything/);
    assert.match(shown.stdout, place);
    assert.ok(shown.stdout.includes(`: ${file}:`), 'the path holds in every folder');
  });
}

// N-80
test('a shipped config that is corrected again is accepted', BOUNDED, async () => {
  await writeFile(file, breakings[0]?.broken() ?? assert.fail());
  assert.match((await linkspan('logs')).stdout, /config\.yaml:\d+:\d+/);
  await writeFile(file, text);
  const { code, stdout } = await linkspan('reload');
  assert.equal(code, 0);
  assert.match(stdout, /^\S+\.yaml runs as it is, loaded at \d{4}-\d\d-\d\dT[\d:.]+Z\.\n$/);
});
