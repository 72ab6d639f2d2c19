/**
 * Tries every feature with every revision of clients, every revision of upstreams, and every transport:
 *
 *     node test/matrix/run.ts [--check] [--direct] [--client REVISION] [--upstream REVISION] [--transport stdio|http]
 *                             [--feature FEATURE] [--json FILE] [--verbose] [--replicas N]
 *
 * `legacy` and `modern` stand for revisions too, `dual` for upstreams of both eras. `--direct` connects clients to
 * upstreams of their own revision without a gateway, which shows that both are correct. `--replicas 3` tries three of them with one Redis, and a
 * balancer that sends each request to any of them. A full run without failures writes `docs/interop.md`; with `--check` it fails if that would
 * change the file.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import type { Client } from './client.ts';
import { expected, type Cell } from './expected.ts';
import { CONTENT_DRIVERS } from './feature-content.ts';
import { QUESTION_DRIVERS } from './feature-questions.ts';
import { PLAIN_DRIVERS, type Driver, type Scene } from './features.ts';
import { LOSSLESS, outcomeText, type Outcome } from './outcome.ts';
import { pageOf, type Observed } from './page.ts';
import { connect, direct, facing, type Place, throughGateway, type Target } from './targets.ts';
import {
  defines,
  DUAL,
  DUAL_LEGACY,
  FEATURES,
  MODERN,
  REVISIONS,
  transportsOf,
  type Feature,
  type Revision,
} from './words.ts';

const { values: options } = parseArgs({
  options: {
    check: { type: 'boolean', default: false },
    direct: { type: 'boolean', default: false },
    verbose: { type: 'boolean', default: false },
    client: { type: 'string' },
    upstream: { type: 'string' },
    transport: { type: 'string' },
    feature: { type: 'string' },
    json: { type: 'string' },
    replicas: { type: 'string', default: '1' },
  },
});

const PAGE = fileURLToPath(new URL('../../docs/interop.md', import.meta.url));

/** Upstreams tried at once. The cells of one are tried one after the other, so that each record belongs to one cell. */
const AT_ONCE = 4;

const DRIVERS: Partial<Record<Feature, Driver>> = { ...PLAIN_DRIVERS, ...CONTENT_DRIVERS, ...QUESTION_DRIVERS };

function isWanted(revision: Revision, wanted: string | undefined): boolean {
  if (wanted === undefined) return true;
  return wanted === revision || wanted === (revision === MODERN ? 'modern' : 'legacy');
}

const features = FEATURES.filter((feature) => options.feature === undefined || options.feature === feature);
const clients = REVISIONS.filter((revision) => isWanted(revision, options.client));
const places: readonly Place[] = REVISIONS.filter((revision) => isWanted(revision, options.upstream)).flatMap(
  (upstream) =>
    transportsOf(upstream)
      .filter(
        (transport) => options.transport === undefined || (transport === 'stdio') === (options.transport === 'stdio'),
      )
      .map((transport) => ({ upstream, transport, isDual: false })),
);

/** The upstreams of both eras, tried if all revisions of upstreams are. */
const duals: readonly Place[] = transportsOf(DUAL_LEGACY)
  .filter((transport) => options.transport === undefined || (transport === 'stdio') === (options.transport === 'stdio'))
  .filter(() => options.upstream === undefined || options.upstream === DUAL)
  .map((transport) => ({ upstream: DUAL_LEGACY, transport, isDual: true }));

function failure(thrown: unknown): Outcome {
  return { kind: 'fails', why: thrown instanceof Error ? thrown.message : String(thrown) };
}

async function observe(feature: Feature, scene: Scene): Promise<Outcome> {
  try {
    const driver = DRIVERS[feature];
    if (driver === undefined) throw new Error('no driver');
    return await driver(scene);
  } catch (thrown) {
    return failure(thrown);
  }
}

/** Returns the messages since the last call that violate the revision of the client or of the upstream. */
function complaints({ client, ledger }: Scene, seen: { client: number; ledger: number }): string[] {
  const entries = ledger.entries.slice(seen.ledger).filter(({ kind }) => kind === 'violation');
  const found = [
    ...client.violations.slice(seen.client).map((text) => `to the client: ${text}`),
    ...entries.map(({ detail }) => `to the upstream: ${detail}`),
  ];
  seen.client = client.violations.length;
  seen.ledger = ledger.entries.length;
  return [...new Set(found)];
}

/** Directly, a feature that the revision does not define cannot be tried. */
function wantedOf(cell: Cell): Outcome {
  return options.direct && defines(cell.client, cell.feature) ? LOSSLESS : expected(cell);
}

async function runClient(target: Target, revision: Revision): Promise<Observed[]> {
  const { transport, isDual, ledger } = target;
  const upstream = facing(target, revision);
  const seen = { client: 0, ledger: ledger.entries.length };
  // A dual upstream asks only in sessions, so these features fail for a modern client that reaches it directly.
  const tried = isDual && revision === MODERN ? features.filter((one) => !(one in QUESTION_DRIVERS)) : features;
  const cells = tried.map((feature) => ({ feature, client: revision, upstream, transport, isDual }));
  let client: Client;
  try {
    client = await connect(target, revision);
  } catch (thrown) {
    const failed = cells.map((cell): Observed => ({ ...cell, outcome: failure(thrown) }));
    for (const cell of failed) report(cell, 0);
    return failed;
  }
  const scene: Scene = { client, upstream, ledger, connect: () => connect(target, revision) };
  const observed: Observed[] = [];
  for (const cell of cells) {
    const began = performance.now();
    const outcome = await observe(cell.feature, scene);
    const wrong = complaints(scene, seen);
    const isWrong = wrong.length > 0;
    const whole: Outcome = isWrong
      ? { kind: 'fails', why: [...(outcome.kind === 'fails' ? [outcome.why] : []), ...wrong].join('; ') }
      : outcome;
    observed.push({ ...cell, outcome: whole });
    report({ ...cell, outcome: whole }, performance.now() - began);
  }
  try {
    await client.close();
    return observed;
  } catch (thrown) {
    // If one upstream does not end properly, its last cell fails, and the others are tried.
    const last = observed.splice(-1).map((cell): Observed => ({ ...cell, outcome: failure(thrown) }));
    for (const cell of last) report(cell, 0);
    return [...observed, ...last];
  }
}

function isAsExpected(cell: Observed): boolean {
  return outcomeText(cell.outcome) === outcomeText(wantedOf(cell));
}

function report(cell: Observed, ms: number): void {
  const isGood = isAsExpected(cell);
  if (isGood && !options.verbose) return;
  const { feature, client, upstream, transport, isDual, outcome } = cell;
  const wanted = isGood ? '' : `\n       expected ${outcomeText(wantedOf(cell))}`;
  console.log(
    `${isGood ? 'ok  ' : 'FAIL'} ${feature}: ${client} → ${upstream}${isDual ? ' of a dual upstream' : ''} over ${transport} (${ms.toFixed(0)} ms): ` +
      `${outcomeText(outcome)}${wanted}`,
  );
}

async function runAll(targets: readonly Target[]): Promise<Observed[]> {
  const left = [...targets];
  const observed: Observed[] = [];
  const work = async () => {
    for (let target = left.shift(); target !== undefined; target = left.shift()) {
      for (const revision of clients) {
        if (options.direct && revision !== facing(target, revision)) continue;
        const cells = await runClient(target, revision);
        observed.push(...cells);
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  return observed;
}

const root = await mkdtemp(join(tmpdir(), 'linkspan-matrix-'));
// Node compiles the upstreams once, because those over stdio start many times.
process.env['NODE_COMPILE_CACHE'] ??= join(root, 'code');
const began = performance.now();
const observed: Observed[] = [];
let logs = '';
try {
  await using stage = await (options.direct
    ? direct([...places, ...duals], root)
    : throughGateway([...places, ...duals], root, Number(options.replicas)));
  observed.push(...(await runAll(stage.targets)));
  logs = stage.logs();
} catch (thrown) {
  console.error(thrown);
}

const failed = observed.filter((cell) => !isAsExpected(cell));
const passed = observed.length - failed.length;
let isStale = false;
const isWhole = [options.client, options.upstream, options.transport, options.feature].every(
  (one) => one === undefined,
);
if (isWhole && !options.direct && failed.length === 0 && passed > 0) {
  const page = pageOf(observed);
  if (!options.check) await writeFile(PAGE, page);
  else if (page !== (await readFile(PAGE, 'utf8').catch(() => ''))) {
    isStale = true;
    console.error('docs/interop.md would change: run npm run matrix');
  }
}
if (failed.length === 0) await rm(root, { recursive: true });
else {
  await writeFile(join(root, 'log.txt'), logs);
  console.log(`ledgers and logs of what failed: ${root}`);
}
const counts = { passed, failed: failed.length + (isStale ? 1 : 0) };
if (options.json !== undefined)
  await writeFile(options.json, JSON.stringify({ ...counts, cells: observed }, undefined, 2));
console.log(`${((performance.now() - began) / 1000).toFixed(1)} s`);
console.log(`${counts.passed} passed, ${counts.failed} failed`);
process.exitCode = counts.failed === 0 && passed > 0 ? 0 : 1;
