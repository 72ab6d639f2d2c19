import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtemp, readFile, rm, truncate, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, test } from 'node:test';

import { ConfigFiles } from '../../../src/config/files/config-files.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { LIMITS } from '../../../src/limits.ts';

const TIMEOUT = { timeout: 120_000 };
/** Of the most that a test here may add to the memory of its process, which also holds the program. */
const SOME_BYTES = 200 * 1_048_576;

let dir = '';
beforeEach(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-config-files-'));
});
afterEach(() => rm(dir, { recursive: true }));

/** Makes a file without content. @returns its path. */
async function sparse(name: string, bytes: number): Promise<string> {
  const path = join(dir, name);
  await writeFile(path, '');
  await truncate(path, bytes);
  return path;
}

function pipe(name: string): string {
  const path = join(dir, name);
  execFileSync('mkfifo', [path]);
  return path;
}

/** Loads a config whose upstream needs these settings. Resolves with its problem. */
async function problemWith(settings: string): Promise<string> {
  const path = join(dir, 'config.yaml');
  await writeFile(path, `mcpServers: {a: {command: x, ${settings}}}\n`);
  const { config } = await loadConfig(path, { env: { HOME: dir } });
  return config.upstreams[0]?.problem ?? '';
}

// N-74
test('a pipe or a folder as a config is refused at once', TIMEOUT, async () => {
  for (const path of [pipe('pipe.yaml'), dir])
    await assert.rejects(loadConfig(path, { env: {} }), /: is no ordinary file, but .*; write the config to a file/);
});

// N-74
test('a config of 1.5 GB is refused before it is read', TIMEOUT, async () => {
  const path = await sparse('large.json', 1_500_000_000);
  const before = process.resourceUsage().maxRSS;
  await assert.rejects(loadConfig(path, { env: {} }), /large\.json: is larger than 32 MiB; is it a config\?$/);
  assert.ok((process.resourceUsage().maxRSS - before) * 1_024 < SOME_BYTES);
});

test('a byte order mark before an envFile is no part of its first variable', TIMEOUT, async () => {
  const path = join(dir, 'config.yaml');
  await writeFile(path, 'mcpServers: {a: {command: x, envFile: a.env}}\n');
  await writeFile(join(dir, 'a.env'), '\uFEFFTOKEN=secret\nOTHER=b\n');
  const { config } = await loadConfig(path, { env: { HOME: dir } });
  const target = config.upstreams[0]?.target;
  assert.deepEqual(target?.kind === 'stdio' && target.env, { TOKEN: 'secret', OTHER: 'b' });
});

// N-74
test('a pipe in the place of another file of a config is its problem, at once', TIMEOUT, async () => {
  pipe('fifo');
  assert.match(await problemWith('envFile: fifo'), /^the file is no ordinary file, but a folder, a pipe/);
  assert.match(await problemWith('args: ["${file:fifo}"]'), /^the file of "\$\{file:fifo\}" is no ordinary file/);
  pipe('linkspan.lock');
  await assert.rejects(problemWith('args: []'), /linkspan\.lock: is no ordinary file/);
});

const limits = [
  {
    title: 'limit configFileBytes: a larger config is refused',
    limit: 'configFileBytes',
    name: 'config.yaml',
    says: /config\.yaml: is larger than 1 MiB; is it a config\? One in JSON may/,
  },
  {
    title: 'limit configJsonFileBytes: a larger config is refused',
    limit: 'configJsonFileBytes',
    name: 'config.json',
    says: /config\.json: is larger than 32 MiB; is it a config\?$/,
  },
] as const;

for (const { title, limit, name, says } of limits) {
  // N-74
  test(title, TIMEOUT, async () => {
    await assert.rejects(loadConfig(await sparse(name, LIMITS[limit] + 1), { env: {} }), says);
    await assert.rejects(loadConfig(await sparse(name, LIMITS[limit]), { env: {} }), (thrown) => {
      assert.ok(thrown instanceof Error);
      assert.doesNotMatch(thrown.message, says);
      return true;
    });
  });
}

const others = [
  {
    title: 'limit configValueBytes: a larger file fails its upstream',
    limit: 'configValueBytes',
    settings: 'args: ["${file:large}"]',
    says: /^the file of "\$\{file:large\}" is larger than 64 KiB/,
  },
  {
    title: 'limit configEnvFileBytes: a larger file fails its upstream',
    limit: 'configEnvFileBytes',
    settings: 'envFile: large',
    says: /^the file is larger than 1 MiB/,
  },
] as const;

for (const { title, limit, settings, says } of others) {
  // N-74
  test(title, TIMEOUT, async () => {
    await sparse('large', LIMITS[limit] + 1);
    assert.match(await problemWith(settings), says);
    await writeFile(join(dir, 'large'), 'A=1\n'.padEnd(LIMITS[limit], ' '));
    assert.equal(await problemWith(settings), '');
  });
}

// N-74
test('limit configLockBytes: a larger lock file is refused', TIMEOUT, async () => {
  await sparse('linkspan.lock', LIMITS.configLockBytes + 1);
  await assert.rejects(problemWith('args: []'), /linkspan\.lock: is larger than 64 MiB/);
});

// N-74
test('limit configTotalBytes: a file beyond it is not read', TIMEOUT, async () => {
  const files = new ConfigFiles();
  const paths = [await sparse('one', LIMITS.configTotalBytes - 1), await sparse('two', 2), await sparse('three', 1)];
  const kinds = await files.build(() => paths.map((path) => files.get(path, LIMITS.configTotalBytes).kind));
  assert.deepEqual(kinds, ['found', 'beyond-total', 'found']);
});

// N-74
test('a file of a file system without sizes is read', TIMEOUT, async () => {
  assert.equal(await problemWith('args: ["${file:/proc/sys/kernel/ostype}"]'), '');
  const files = new ConfigFiles();
  const path = '/proc/self/limits';
  const text = await files.build(() => {
    const found = files.get(path, LIMITS.configValueBytes);
    return found.kind === 'found' ? found.bytes.toString() : found.kind;
  });
  assert.equal(text, await readFile(path, 'utf8'));
});

// N-74
test('files that other files name are read, and a first key is made once', TIMEOUT, async () => {
  await writeFile(join(dir, 'one'), 'two\n');
  await writeFile(join(dir, 'two'), 'three\n');
  await writeFile(join(dir, 'three'), 'found\n');
  const path = join(dir, 'config.yaml');
  await writeFile(path, 'mcpServers: {a: {command: x, args: ["${file:${file:${file:one}}}"]}}\n');
  let keys = 0;
  const firstKeyHash = () => 'a'.repeat(63) + keys++;
  const { config, files } = await loadConfig(path, { env: {}, firstKeyHash });
  const [{ target } = {}] = config.upstreams;
  assert.deepEqual(target?.kind === 'stdio' ? target.args : undefined, ['found']);
  assert.equal(keys, 1);
  assert.deepEqual(
    [...files.keys()].toSorted(),
    ['config.yaml', 'linkspan.lock', 'one', 'three', 'two'].map((name) => join(dir, name)),
  );
});
