import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/**
 * Folders that each folder may import; type-only imports count. Imports follow the request: downstream → gateway → upstream.
 * Answers travel as return values, or through callbacks passed at construction.
 */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  json: [],
  http1: [],
  protocol: ['json'],
  config: ['protocol'],
  catalog: ['json', 'protocol', 'config'],
  policy: ['protocol', 'config'],
  auth: ['policy', 'config'],
  store: ['json', 'protocol'],
  telemetry: ['json', 'config', 'protocol'],
  upstream: [
    'json',
    'http1',
    'protocol',
    'config',
    'telemetry',
    'catalog/offer.ts',
    'catalog/items/kind.ts',
    'catalog/caching.ts',
  ],
  gateway: ['json', 'protocol', 'catalog', 'policy', 'config', 'store', 'upstream', 'telemetry'],
  downstream: ['gateway', 'policy', 'auth', 'json', 'protocol', 'config', 'store', 'telemetry', 'catalog'],
  operator: ['gateway', 'config', 'telemetry', 'auth'],
  // Every failure can become a JSON-RPC error.
  'errors.ts': ['protocol'],
  'small-collections.ts': [],
  'limits.ts': [],
  'work-turn.ts': [],
  'version.ts': [],
};

/** May import anything, and may be imported only by each other. */
const TOP = ['main.ts', 'cli', 'compile-cache.ts', 'compose'];

/** May be imported by anyone. */
const COMMON = ['errors.ts', 'limits.ts', 'work-turn.ts', 'small-collections.ts'];

/** A longer file holds more than one idea. From 300 lines on, a reviewer asks for the second one. */
const MAX_LINES = 500;

/** Sub-folders in the order of imports: each may import only from those before it. `.` is the folder itself. */
const FLOORS: Readonly<Record<string, readonly string[]>> = {
  protocol: ['.', 'framing', 'translation'],
  config: ['document', 'schema', 'upstreams', '.'],
  upstream: ['rpc', 'stdio', 'http', 'link', '.'],
  gateway: [
    'dialects',
    'exchange',
    'handles',
    'connections',
    'lists',
    'questions',
    'clients',
    'forward',
    'tasks',
    'calls',
    'modern',
    '.',
  ],
  downstream: ['memory', 'streams', 'admission', '.', 'http'],
};

const files = globSync('**/*.ts', { cwd: join(ROOT, 'src') }).toSorted();
const sources = new Map(files.map((file) => [file, readFileSync(join(ROOT, 'src', file), 'utf8')]));

const STATIC = /^(?:import|export)\s(?:[^;'"]*?\sfrom\s)?['"]([^'"]+)['"]/gm;
const DYNAMIC = /\bimport\(\s*['"]([^'"]+)['"]/g;

function specifiers(file: string): string[] {
  const source = sources.get(file) ?? '';
  return [...source.matchAll(STATIC), ...source.matchAll(DYNAMIC)].map(([, specifier = '']) => specifier);
}

/** Returns the project files that a file imports, as paths below `src`. */
function imports(file: string): string[] {
  return specifiers(file)
    .filter((specifier) => specifier.startsWith('.'))
    .map((specifier) => normalize(join(dirname(file), specifier)));
}

/** Returns the folder below `src`, or the file itself if it is directly there. */
function part(file: string): string {
  return file.split('/', 1)[0] ?? '';
}

function mayImport(from: string, to: string): boolean {
  const [importer, imported] = [part(from), part(to)];
  if (importer === imported || TOP.includes(importer) || COMMON.includes(imported)) return true;
  return ALLOWED[importer]?.some((allowed) => allowed === imported || allowed === to) ?? false;
}

test('sources and their imports are found', () => {
  assert.ok(files.length > 20);
  assert.ok(files.some((file) => imports(file).length > 0));
});

/** Returns the sub-folder of a file: `gateway/tasks/tasks.ts` → `tasks`; `gateway/front.ts` → `.` */
function floor(file: string): string {
  const [, folder = '', below] = file.split('/');
  return below === undefined ? '.' : folder;
}

/** Contracts between sub-folders, without code. */
const SHARED_CONTRACTS = ['config/config.ts', 'gateway/front.ts'];

for (const [folder, floors] of Object.entries(FLOORS)) {
  test(`sub-folders of src/${folder} import only from those before them`, () => {
    for (const file of files) {
      if (part(file) !== folder) continue;
      assert.ok(floors.includes(floor(file)), `${file} is in a sub-folder that the table does not name`);
      for (const imported of imports(file)) {
        if (part(imported) !== folder || SHARED_CONTRACTS.includes(imported)) continue;
        assert.ok(floors.indexOf(floor(imported)) <= floors.indexOf(floor(file)), `${file} imports ${imported}`);
      }
    }
  });
}

for (const file of files) {
  test(`src/${file} imports only what it may`, () => {
    for (const imported of imports(file)) {
      assert.ok(sources.has(imported), `${imported} is not there`);
      assert.ok(mayImport(file, imported), `${part(file)} must not import ${imported}`);
    }
  });

  test(`src/${file} has a specific kebab-case name`, () => {
    assert.match(file, /^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)*[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/);
    assert.doesNotMatch(file, /(?:^|\/)(?:index|utils?|types|helpers?|constants|common)\.ts$/);
  });

  test(`src/${file} is at most ${MAX_LINES} lines long`, () => {
    assert.ok((sources.get(file) ?? '').split('\n').length <= MAX_LINES);
  });
}

/** Comparisons that ask for an era or a revision. */
const ERA_QUESTION =
  /[!=]==\s*(?:MODERN\b|'legacy'|'modern')|(?:\bMODERN|(?<!typeof )\b(?:era|revision))\s*[!=]==(?!\s*undefined\b)/;

/** Files of the core that may compare eras, with the reason. */
const MAY_COMPARE_ERAS: ReadonlyMap<string, string> = new Map([
  ['gateway/lists/offers.ts', 'selects the offers of one era'],
]);

test('only the dialects of the gateway ask for an era', () => {
  for (const [file, source] of sources) {
    if (part(file) !== 'gateway' || floor(file) === 'dialects' || MAY_COMPARE_ERAS.has(file)) continue;
    const question = ERA_QUESTION.exec(source)?.[0];
    assert.equal(question, undefined, `${file} asks for an era; the difference belongs to a dialect`);
  }
});

test('no file of the gateway asks for a class of the gateway', () => {
  const core = [...sources].filter(([file]) => part(file) === 'gateway');
  const classes = new Set(core.flatMap(([, source]) => [...source.matchAll(/\bclass (\w+)/g)].map(([, name]) => name)));
  assert.ok(classes.has('ClientGroup') && classes.has('Session'));
  for (const [file, source] of core) {
    for (const [, name] of source.matchAll(/\binstanceof (\w+)/g)) {
      assert.ok(!classes.has(name), `${file} asks for ${name}; the object itself can answer`);
    }
  }
});

test('only src/telemetry/tracing imports OpenTelemetry, and only compose imports its SDK, when tracing begins', () => {
  const SDK = ['otel.ts', 'otel-spans.ts', 'export-queue.ts', 'sampler.ts'].map((name) => `telemetry/tracing/${name}`);
  for (const file of files) {
    const usesOtel = specifiers(file).some((specifier) => specifier.startsWith('@opentelemetry/'));
    assert.equal(usesOtel, SDK.includes(file), file);
    const [found] = imports(file).filter((imported) => SDK.includes(imported) && !SDK.includes(file));
    if (found !== undefined) assert.deepEqual([file, found], ['compose/open-tracing.ts', 'telemetry/tracing/otel.ts']);
  }
  assert.match(sources.get('compose/open-tracing.ts') ?? '', /await import\('\.\.\/telemetry\/tracing\/otel\.ts'\)/);
});

test('every part of the program is in the table', () => {
  const parts = new Set(files.map(part));
  const known = new Set([...Object.keys(ALLOWED), ...TOP]);
  assert.deepEqual(
    [...parts].filter((each) => !known.has(each)),
    [],
  );
});

test('no file imports itself through others', () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]): void => {
    assert.ok(!path.includes(file), `cycle: ${[...path.slice(path.indexOf(file)), file].join(' → ')}`);
    if (done.has(file)) return;
    for (const imported of imports(file)) visit(imported, [...path, file]);
    done.add(file);
  };
  for (const file of files) visit(file, []);
});

test('a package that the sources import is installed with the published package', () => {
  const manifest: unknown = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8'));
  assert.ok(typeof manifest === 'object' && manifest !== null && 'dependencies' in manifest);
  const dependencies = Object.keys(Object(manifest.dependencies));
  const used = new Set<string>();
  for (const file of files) {
    for (const specifier of specifiers(file)) {
      if (specifier.startsWith('.') || specifier.startsWith('node:')) continue;
      const [scope = '', name = ''] = specifier.split('/');
      used.add(scope.startsWith('@') ? `${scope}/${name}` : scope);
    }
  }
  assert.deepEqual(
    [...used].filter((name) => !dependencies.includes(name)),
    [],
  );
});

/** A docstring that begins with a question word, on one line or on several. */
const QUESTION = /\/\*\*\s+(?:\*\s+)?(?:Whether|How|What|Who|Whom|Whose|When|Where|Why|Which)\b[^\n]*/;

test('a docstring begins with what the thing is or does, not with a question word', () => {
  const all = ['src', 'test', 'bench', 'scripts'].flatMap((folder) =>
    globSync('**/*.ts', { cwd: join(ROOT, folder) }).map((file) => join(folder, file)),
  );
  assert.ok(all.length > 300);
  assert.match('/** Whether it rains. */', QUESTION);
  assert.match('/**\n * How long it rains.\n */', QUESTION);
  const found = all.flatMap((file) => {
    // This test names examples.
    const question =
      file === join('test', 'architecture.test.ts') ? null : QUESTION.exec(readFileSync(join(ROOT, file), 'utf8'));
    return question === null ? [] : [`${file}: ${question[0]}`];
  });
  assert.deepEqual(found, []);
});

test('codes of JSON-RPC and MCP errors are written in protocol/rpc-codes.ts alone', () => {
  const CODE = /^(?!\s*(?:\/\/|\/?\*)).*-32\d{3}\b/m;
  assert.match(sources.get('protocol/rpc-codes.ts') ?? '', CODE);
  assert.deepEqual(
    files.filter((file) => file !== 'protocol/rpc-codes.ts' && CODE.test(sources.get(file) ?? '')),
    [],
  );
});
