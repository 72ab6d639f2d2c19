import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { existsSync, globSync, readFileSync, statSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { parse } from 'yaml';

import { loadConfig } from '../src/config/load.ts';
import { refreshedPages } from '../scripts/page-tables.ts';
import { ERRORS } from '../src/errors.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

function read(file: string): string {
  return readFileSync(join(ROOT, file), 'utf8');
}

test('the tables of limits, errors and metrics are those of the sources', async () => {
  for (const { file, text, problems } of await refreshedPages(ROOT)) {
    assert.deepEqual(problems, []);
    assert.equal(read(file), text, `${file}: run \`npm run pages\``);
  }
});

test('every error of docs/errors.md has an anchor of its name', () => {
  const anchors = anchorsOf('docs/errors.md');
  assert.deepEqual(
    Object.keys(ERRORS).filter((row) => !anchors.has(row)),
    [],
  );
});

/** Returns the anchors of a page: those of its headings, as GitHub names them, and its own. */
function anchorsOf(page: string): ReadonlySet<string> {
  const text = read(page);
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading = '']) =>
    heading
      .toLowerCase()
      .replaceAll(/\]\([^)]*\)/g, '')
      .replaceAll(/[^\p{L}\p{N}\p{Pc} -]/gu, '')
      .replaceAll(' ', '-'),
  );
  return new Set([...headings, ...[...text.matchAll(/<a id="([^"]+)">/g)].map(([, id = '']) => id)]);
}

const pages = globSync(['*.md', 'docs/**/*.md', 'deploy/**/*.md'], { cwd: ROOT });

test('links of the pages lead to files and anchors', () => {
  const dead = pages.flatMap((page) =>
    [...read(page).matchAll(/\]\((?!https?:|mailto:)([^)#\s]*)(?:#([^)\s]+))?\)/g)]
      .filter(([, file = '', anchor]) => {
        const path = file === '' ? page : join(dirname(page), file);
        if (!existsSync(join(ROOT, path))) return true;
        return anchor !== undefined && path.endsWith('.md') && !anchorsOf(path).has(anchor);
      })
      .map(([link]) => `${page}: ${link}`),
  );
  assert.deepEqual(dead, []);
});

const decisions = globSync('[0-9]*.md', { cwd: join(ROOT, 'docs/decisions') }).toSorted();

test('a decision has its number as the title begins, and a status', () => {
  for (const file of decisions) {
    const lines = read(`docs/decisions/${file}`).split('\n');
    assert.equal(/^# (\d+)\. ./.exec(lines[0] ?? '')?.[1], String(Number(file.slice(0, 4))), file);
    assert.match(lines[2] ?? '', /^Status: /, file);
  }
});

test('docs/decisions/README.md lists every decision with its title, in order', () => {
  const expected = decisions.map((file) => {
    const [, number, title] = /^# (\d+)\. (.+)$/m.exec(read(`docs/decisions/${file}`)) ?? [];
    return `| ${number} | [${title}](${file}) |`;
  });
  const listed = read('docs/decisions/README.md')
    .split('\n')
    .filter((line) => /^\| \d/.test(line));
  assert.deepEqual(listed, expected);
});

test('sources and tests name only decisions that exist', () => {
  const numbers = new Set(decisions.map((file) => Number(file.slice(0, 4))));
  for (const file of globSync('{src,test,bench,scripts}/**/*.ts', { cwd: ROOT })) {
    const text = read(file);
    for (const [path = ''] of text.matchAll(/docs\/decisions\/\d[\w.-]+\.md/g)) {
      assert.ok(existsSync(join(ROOT, path)), `${file}: ${path}`);
    }
    for (const [, number] of text.matchAll(/\b(?:ADR|[Dd]ecision) (\d{1,4})\b/g)) {
      assert.ok(numbers.has(Number(number)), `${file}: decision ${number}`);
    }
  }
});

test('ARCHITECTURE.md has a row for every folder and sub-folder of the sources', () => {
  const page = read('ARCHITECTURE.md');
  const folders = globSync('**', { cwd: join(ROOT, 'src') }).filter((name) =>
    statSync(join(ROOT, 'src', name)).isDirectory(),
  );
  assert.ok(folders.length > 20);
  assert.deepEqual(
    folders.filter((name) => name !== '.' && name !== '' && !page.includes(`| \`src/${name}/\` |`)),
    [],
  );
});

test('ARCHITECTURE.md names no source file that is not there', () => {
  const named = [...read('ARCHITECTURE.md').matchAll(/`((?:src\/)?[a-z-]+\/[a-z-]+\.ts)`/g)].map(([, file = '']) =>
    file.startsWith('src/') || file.startsWith('test/') ? file : `src/${file}`,
  );
  assert.ok(named.length > 10);
  assert.deepEqual(
    named.filter((file) => !existsSync(join(ROOT, file))),
    [],
  );
});

test('every npm script named on a page exists', () => {
  const manifest: unknown = JSON.parse(read('package.json'));
  assert.ok(typeof manifest === 'object' && manifest !== null && 'scripts' in manifest);
  const scripts = Object.keys(Object(manifest.scripts));
  for (const page of pages) {
    for (const [, script = ''] of read(page).matchAll(/npm run ([a-z:]+)/g)) {
      assert.ok(scripts.includes(script), `${page}: npm run ${script}`);
    }
  }
});

const yamls = globSync(['docker-compose.yml', 'deploy/**/*.{yml,yaml}'], { cwd: ROOT });

test('compose files and manifests are YAML', () => {
  for (const file of yamls) assert.equal(typeof parse(read(file)), 'object', file);
});

const KEY_HASH = 'a'.repeat(64);

test('the config of the container needs only the key that the first start makes', async () => {
  const file = join(ROOT, 'deploy/docker/config.yaml');
  const { config, warnings } = await loadConfig(file, { env: {}, firstKeyHash: () => KEY_HASH });
  // Inside the container the gateway listens on every address; the compose file decides which are reachable.
  assert.deepEqual(
    warnings.filter((warning) => !warning.includes('gateway.operator')),
    [],
  );
  assert.deepEqual(config.auth.apiKeys, [{ name: 'first', sha256: KEY_HASH }]);
  await assert.rejects(loadConfig(file, { env: {} }), /open to the network without authentication/);
});

for (const [index, [, snippet = '']] of [...read('README.md').matchAll(/```ya?ml\n([^]*?)```/g)].entries()) {
  test(`YAML snippet ${index + 1} of README.md is valid as a part of a config`, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-docs-'));
    try {
      const file = join(dir, 'config.yaml');
      const rest = snippet.includes('mcpServers:') ? '' : 'mcpServers: {}\n';
      await writeFile(file, rest + snippet.replace('sha256: …', `sha256: ${KEY_HASH}`));
      await loadConfig(file, { env: { GITHUB_TOKEN: 'x' } });
    } finally {
      await rm(dir, { recursive: true });
    }
  });
}

interface Service {
  readonly read_only?: boolean;
  readonly init?: boolean;
  readonly cap_drop?: readonly string[];
  readonly security_opt?: readonly string[];
  readonly stop_grace_period?: string;
  readonly ports?: readonly string[];
  readonly volumes?: readonly string[];
}

// SEC-46
test('the compose file drops privileges, and publishes ports on loopback only', () => {
  const { services }: { services: Record<string, Service> } = parse(read('docker-compose.yml'));
  const gateway = services['linkspan'];
  assert.ok(gateway !== undefined);
  assert.equal(gateway.read_only, true);
  assert.equal(gateway.init, true);
  assert.deepEqual(gateway.cap_drop, ['ALL']);
  assert.deepEqual(gateway.security_opt, ['no-new-privileges:true']);
  assert.equal(gateway.stop_grace_period, '80s');
  for (const port of gateway.ports ?? []) assert.match(port, /^127\.0\.0\.1:/);
  // A mounted single file is not updated when an editor saves by renaming.
  for (const volume of gateway.volumes ?? []) assert.doesNotMatch(volume, /\.(?:ya?ml|json)(?::|$)/);
});

const hasCompose = spawnSync('docker', ['compose', 'version'], { timeout: 120_000 }).status === 0;

const skip = hasCompose ? {} : { skip: 'docker compose is not installed' };

test('docker compose finds nothing wrong with the compose file', skip, () => {
  const run = spawnSync('docker', ['compose', 'config', '--quiet'], {
    cwd: ROOT,
    encoding: 'utf8',
    timeout: 120_000,
  });
  assert.equal(`${run.stdout}${run.stderr}`, '');
  assert.equal(run.status, 0);
});
