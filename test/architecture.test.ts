import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { isTooLong } from './support/test-name.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));

/**
 * Folders that each folder may import; type-only imports count. Imports follow the request: downstream → gateway → upstream.
 * Answers travel as return values, or through callbacks passed at construction.
 */
const ALLOWED: Readonly<Record<string, readonly string[]>> = {
  json: [],
  http1: [],
  load: ['config/values/config.ts'],
  protocol: ['json'],
  lock: ['json', 'protocol'],
  config: ['json/record.ts', 'protocol', 'policy', 'lock'],
  catalog: ['json', 'protocol', 'config', 'lock'],
  policy: ['json', 'catalog/names/glob.ts', 'catalog/items/kind.ts', 'catalog/resources/uri-form.ts'],
  egress: ['json', 'http1', 'config/values/credentials.ts'],
  credentials: ['json/record.ts', 'egress', 'config', 'upstream', 'policy', 'store', 'telemetry'],
  auth: ['json/record.ts', 'policy', 'config', 'egress', 'store/api-key-store.ts'],
  store: ['json', 'protocol', 'config/values/config.ts'],
  audit: ['json', 'config/values/config.ts', 'config/values/credentials.ts', 'egress', 'store', 'telemetry'],
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
    'store/disk/state-file.ts',
  ],
  gateway: ['json', 'protocol', 'lock', 'catalog', 'policy', 'config', 'store', 'upstream', 'telemetry', 'audit'],
  downstream: [
    'gateway',
    'policy',
    'auth',
    'json',
    'protocol',
    'config',
    'store',
    'telemetry',
    'catalog',
    'audit',
    'load/load.ts',
  ],
  replicas: ['gateway', 'downstream', 'policy', 'json', 'protocol', 'config', 'store', 'telemetry'],
  operator: ['json', 'gateway', 'config', 'telemetry', 'auth'],
  // Every failure can become a JSON-RPC error.
  'errors.ts': ['protocol'],
  'small-collections.ts': [],
  'map-entries.ts': [],
  'deadline.ts': [],
  'fair-slots.ts': [],
  'limits.ts': [],
  'thrown.ts': [],
  'mark-runs.ts': [],
  'peer-text.ts': [],
  'work-turn.ts': [],
  'version.ts': [],
  'command-name.ts': [],
  'endpoint-path.ts': [],
};

/** May import anything, and may be imported only by each other. */
const TOP = ['main.ts', 'cli', 'compile-cache.ts', 'young-objects.ts', 'compose'];

/** May be imported by anyone. */
const COMMON = [
  'map-entries.ts',
  'deadline.ts',
  'fair-slots.ts',
  'errors.ts',
  'limits.ts',
  'thrown.ts',
  'mark-runs.ts',
  'peer-text.ts',
  'work-turn.ts',
  'small-collections.ts',
  'command-name.ts',
  'endpoint-path.ts',
];

/** A longer file holds more than one idea. From 300 lines on, a reviewer asks for the second one. */
const MAX_LINES = 500;

/** Sub-folders in the order of imports: each may import only from those before it. `.` is the folder itself. */
const FLOORS: Readonly<Record<string, readonly string[]>> = {
  protocol: ['.', 'framing', 'translation'],
  config: ['values', 'files', 'document', 'schema', 'upstreams', 'sections', '.', 'changes'],
  upstream: ['rpc', 'stdio', 'http', 'lifecycle', 'link', 'quota', '.'],
  gateway: [
    'front',
    'dialects',
    'exchange',
    'records',
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

/** A folder with more files holds more than one idea. */
const MAX_FILES = 15;

/** Folders with more files, each with its number and the reason. A new sub-folder makes the number smaller. */
const LARGE_FOLDERS: Readonly<Record<string, readonly [number, string]>> = {
  '.': [16, 'a file for each thing that every folder may use'],
  audit: [25, 'a file for each destination, and for each step of the chain'],
  catalog: [17, 'a file for each part of a catalog'],
  compose: [19, 'a file for each part of the program that is connected'],
  'config/schema': [19, 'a file for each section of the schema'],
  replicas: [20, 'a file for each direction of the channel and each kind of request'],
  store: [18, 'an interface for each kind of state'],
  'store/redis': [18, 'a store for each interface'],
  telemetry: [20, 'a file for the metrics of each subject'],
  'upstream/http': [21, 'a file for each kind of stream and each failure'],
};

test('a folder has few files, or a reason for more', () => {
  const counts = new Map<string, number>();
  for (const file of files) counts.set(dirname(file), (counts.get(dirname(file)) ?? 0) + 1);
  for (const [folder, count] of counts) {
    const [most] = LARGE_FOLDERS[folder] ?? [MAX_FILES];
    assert.ok(count <= most, `src/${folder} has ${count} files: give some of them a sub-folder`);
  }
});

test('sources and their imports are found', () => {
  assert.ok(files.length > 20);
  assert.ok(files.some((file) => imports(file).length > 0));
});

/** Returns the sub-folder of a file: `gateway/tasks/tasks.ts` → `tasks`; `gateway/front/front.ts` → `.` */
function floor(file: string): string {
  const [, folder = '', below] = file.split('/');
  return below === undefined ? '.' : folder;
}

for (const [folder, floors] of Object.entries(FLOORS)) {
  test(`sub-folders of src/${folder} import only from those before them`, () => {
    for (const file of files) {
      if (part(file) !== folder) continue;
      assert.ok(floors.includes(floor(file)), `${file} is in a sub-folder that the table does not name`);
      for (const imported of imports(file)) {
        if (part(imported) !== folder) continue;
        assert.ok(floors.indexOf(floor(imported)) <= floors.indexOf(floor(file)), `${file} imports ${imported}`);
      }
    }
  });
}

test('a source imports only what its part may import', () => {
  const violations = files.flatMap((file) =>
    imports(file)
      .filter((imported) => !sources.has(imported) || !mayImport(file, imported))
      .map((imported) => `src/${file} imports ${imported}${sources.has(imported) ? '' : ', which is not there'}`),
  );
  assert.deepEqual(violations, []);
});

test('a source has a specific kebab-case name', () => {
  const KEBAB = /^(?:[a-z0-9]+(?:-[a-z0-9]+)*\/)*[a-z0-9]+(?:-[a-z0-9]+)*\.ts$/;
  const VAGUE = /(?:^|\/)(?:index|utils?|types|helpers?|constants|common)\.ts$/;
  assert.deepEqual(
    files.filter((file) => !KEBAB.test(file) || VAGUE.test(file)),
    [],
  );
});

test(`a source is at most ${MAX_LINES} lines long`, () => {
  const lines = (file: string): number => (sources.get(file) ?? '').split('\n').length;
  assert.deepEqual(
    files.filter((file) => lines(file) > MAX_LINES).map((file) => `src/${file}: ${lines(file)} lines`),
    [],
  );
});

/** Comparisons that ask for an era or a revision. */
const ERA_QUESTION =
  /[!=]==\s*(?:'legacy'|'modern')|\bisModernRevision\(|(?<!typeof )\b(?:era|revision)\s*[!=]==(?!\s*undefined\b)/;

/** Files of the core that may compare eras, with the reason. */
const MAY_COMPARE_ERAS: ReadonlyMap<string, string> = new Map([
  ['gateway/lists/kept-offers.ts', 'selects the offers of one era'],
  ['gateway/lists/offers.ts', 'selects the offers of one era'],
]);

test('only the dialects of the gateway ask for an era', () => {
  for (const [file, source] of sources) {
    if (part(file) !== 'gateway' || floor(file) === 'dialects' || MAY_COMPARE_ERAS.has(file)) continue;
    const question = ERA_QUESTION.exec(source)?.[0];
    assert.equal(question, undefined, `${file} asks for an era; the difference belongs to a dialect`);
  }
});

test('no file asks for a class of the program, besides errors', () => {
  const all = [...sources.values()];
  const classes = new Set(
    all.flatMap((source) => [...source.matchAll(/\bclass (\w+)(?! extends \w*Error\b)/g)].map(([, name]) => name)),
  );
  assert.ok(classes.has('ClientGroup') && classes.has('Session') && !classes.has('GatewayError'));
  for (const [file, source] of sources) {
    for (const [, name] of source.matchAll(/\binstanceof (\w+)/g)) {
      assert.ok(!classes.has(name), `${file} asks for ${name}; the object itself can answer`);
    }
  }
});

/** Exported names that the core gives to types of `upstream/` with their type parameters. */
const CORE_ALIASES = ['Link', 'Upstream'];

test('no two files export a type of the same name', () => {
  const EXPORTED = /^export (?:abstract )?(?:class|interface|type) (\w+)/gm;
  const homes = new Map<string, string[]>();
  for (const [file, source] of sources) {
    for (const [, name = ''] of source.matchAll(EXPORTED)) homes.set(name, [...(homes.get(name) ?? []), file]);
  }
  assert.ok((homes.get('Session') ?? []).length === 1);
  const homonyms = [...homes].filter(([name, found]) => found.length > 1 && !CORE_ALIASES.includes(name));
  assert.deepEqual(homonyms, []);
});

/** Parts outside of `store/` and `config/` that read or write files, with the files. */
const FILES_OF_OTHERS: Readonly<Record<string, string>> = {
  audit: 'the audit log, its key and its signed head',
  cli: 'files that an operator names, and state directories of one command',
  'compose/open-tracing.ts': 'certificates that variables of OpenTelemetry name',
  'compose/workers/socket-dir.ts': 'the sockets of workers',
  'load/memory-meter.ts': 'the cgroup',
  'telemetry/log/stderr-destination.ts': 'stderr',
  'upstream/stdio': 'programs, sandboxes and processes',
  'version.ts': 'package.json',
};

test('state is read and written in store/ alone, and files of the config in config/', () => {
  for (const file of files) {
    if (['store', 'config'].includes(part(file)) || !specifiers(file).some((one) => one.startsWith('node:fs')))
      continue;
    const isKnown = Object.keys(FILES_OF_OTHERS).some((known) => file === known || file.startsWith(`${known}/`));
    assert.ok(isKnown, `${file} reads or writes files`);
  }
});

test('classes extend errors only, besides two kinds of connection holders', () => {
  const kinds = new Set(
    [...sources.values()].flatMap((source) => source.match(/\bclass \w+(?:<[^{]*?>)? extends \w+/g) ?? []),
  );
  const others = [...kinds].filter((kind) => !/ extends (?:\w+\.)?\w*Error$/.test(kind)).toSorted();
  assert.deepEqual(others, ['class ClientGroup extends ConnectionHolder', 'class Session extends ConnectionHolder']);
});

/** A function literal that is assigned to a property: `call.onCancel = () => …`. */
const ASSIGNED_FUNCTION =
  /[\w\])]\??\.#?\w+\s*(?:\?\?|\|\||&&)?=\s*(?:async\s*)?(?:function\b|(?:\((?:[^()]|\([^()]*\))*\)|\w+)(?:\s*:\s*[^=;{}]+)?\s*=>)/;

test('V8 allocates functions old that are assigned to a property: none is', () => {
  assert.match('this.#onCancel = () => reject(new GatewayError(code));', ASSIGNED_FUNCTION);
  assert.match('call.close ??= async (why: string): Promise<void> => {', ASSIGNED_FUNCTION);
  assert.doesNotMatch('this.#onCancel = onCancel;', ASSIGNED_FUNCTION);
  assert.doesNotMatch('const isOver = this.end >= 3; const f = () => 1;', ASSIGNED_FUNCTION);
  for (const [file, source] of sources) {
    const assigned = ASSIGNED_FUNCTION.exec(source)?.[0];
    assert.equal(assigned, undefined, `${file}: name the function in a const first (docs/decisions/0081)`);
  }
});

test('only telemetry/tracing imports OpenTelemetry, and compose its SDK when needed', () => {
  const SDK = ['otel.ts', 'otel-spans.ts', 'export-queue.ts', 'sampler.ts'].map((name) => `telemetry/tracing/${name}`);
  for (const file of files) {
    const usesOtel = specifiers(file).some((specifier) => specifier.startsWith('@opentelemetry/'));
    assert.equal(usesOtel, SDK.includes(file), file);
    const [found] = imports(file).filter((imported) => SDK.includes(imported) && !SDK.includes(file));
    if (found !== undefined) assert.deepEqual([file, found], ['compose/open-tracing.ts', 'telemetry/tracing/otel.ts']);
  }
  assert.match(sources.get('compose/open-tracing.ts') ?? '', /await import\('\.\.\/telemetry\/tracing\/otel\.ts'\)/);
});

test('of telemetry/tracing, the core imports the port and the names of spans', () => {
  const known = ['tracing.ts', 'mcp-spans.ts'].map((name) => `telemetry/tracing/${name}`);
  for (const file of files) {
    if (!['gateway', 'upstream'].includes(part(file))) continue;
    const tracing = imports(file).filter((imported) => imported.startsWith('telemetry/tracing/'));
    assert.deepEqual(
      tracing.filter((imported) => !known.includes(imported)),
      [],
      file,
    );
  }
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

/** Packages with ES modules, whose names a bundle keeps. */
const ES_PACKAGES = new Set(['commander', 'oauth4webapi']);

test('a package is imported when it is needed only if its names outlive bundling', () => {
  const found = [...sources].flatMap(([file, text]) =>
    [...text.matchAll(/await import\('([@\w][^']*)'\)/g)].map(([, name = '']) => `${file} ${name}`),
  );
  assert.deepEqual(
    found.filter((each) => !each.includes(' node:') && !ES_PACKAGES.has(each.split(' ')[1] ?? '')),
    [],
    'import a module of src/ that has a static import of the package',
  );
  assert.ok(found.length > 2);
});

test('codes of JSON-RPC and MCP errors are written in protocol/rpc-codes.ts alone', () => {
  const CODE = /^(?!\s*(?:\/\/|\/?\*)).*-32\d{3}\b/m;
  assert.match(sources.get('protocol/rpc-codes.ts') ?? '', CODE);
  assert.deepEqual(
    files.filter((file) => file !== 'protocol/rpc-codes.ts' && CODE.test(sources.get(file) ?? '')),
    [],
  );
});

test('tests import fast-check with the seed of the run', () => {
  const direct = globSync('**/*.ts', { cwd: join(ROOT, 'test') }).filter(
    (file) =>
      file !== join('support', 'fast-check.ts') &&
      /^import .* from 'fast-check'/m.test(readFileSync(join(ROOT, 'test', file), 'utf8')),
  );
  assert.deepEqual(direct, []);
});

/** Matches the name of a test or suite without interpolation. */
const NAMED_TEST = /\b(?:test|suite)\(\s*(?:'((?:[^'\\\n]|\\.)*)'|"((?:[^"\\\n]|\\.)*)"|`([^`$]*)`)/g;

test('the name of a test has at most 80 characters', () => {
  const names = globSync('**/*.ts', { cwd: join(ROOT, 'test') }).flatMap((file) =>
    [...readFileSync(join(ROOT, 'test', file), 'utf8').matchAll(NAMED_TEST)].map(
      ([, single, double, template]) => single ?? double ?? template ?? '',
    ),
  );
  assert.ok(names.length > 1_000);
  assert.deepEqual(names.filter(isTooLong), []);
});
