/** The steps of the tests, and the runs that consist of them. `docs/testing.md` describes each. */
import { availableParallelism } from 'node:os';
import { missingRedis } from '../support/redis-program.ts';

/** A part of a run. `minutes` is its budget on two quiet cores. */
export type Step = {
  readonly name: string;
  readonly minutes: number;
  /** The step that must pass first. If it fails, this one fails without being run. */
  readonly after?: string;
} & (
  | { readonly kind: 'machine' }
  /** A script of package.json. */
  | { readonly kind: 'script' }
  /** Test files by globs, without those of `except`. */
  | {
      readonly kind: 'tests';
      readonly files: readonly string[];
      readonly except?: readonly string[];
      readonly atOnce: number;
      /** Returns the reason why the programs that the tests start cannot be had: the gate does not run them then, and says so. */
      readonly missing?: () => Promise<string | undefined>;
    }
  /** A program that counts for itself with `--json FILE`: `passed`, `failed`, and `failures` if it has a line for each. */
  | { readonly kind: 'program'; readonly file: string; readonly args: readonly string[] }
);

/** Never more than two: a machine may show more cores than its control group gives. */
const CORES = Math.min(2, availableParallelism());
/** Files at once: a test waits for a third of its time. */
const LANES = CORES + 1;

/** Tests that start a real `redis-server`, some of them with replicas and a balancer. */
const REDIS = [
  'test/store/redis/**/*.test.ts',
  'test/store/{placements,shared-counters}.test.ts',
  'test/gateway/handles/sealer-redis.test.ts',
  'test/downstream/streams/{session-streams,stored-event-log}.test.ts',
  'test/cli/operator/explain.test.ts',
  'test/chaos/world.test.ts',
  'test/e2e/{replicas,replica-start,api-keys,key-revocation,redis-secrets}.test.ts',
];

/** Tests of real time, processes or memory. */
const ALONE = [
  'test/upstream/stdio/**/*.test.ts',
  'test/upstream/link/{probe,listing}.test.ts',
  'test/upstream/http/{http-failure,http-stream,sse,pause}.test.ts',
  'test/upstream/rpc/connection.test.ts',
  'test/http1/{wire,contract,socket}.test.ts',
  'test/gateway/{faults,restart,limits,isolation}.test.ts',
  'test/gateway/lists/start-up.test.ts',
  'test/gateway/questions/parked-calls.test.ts',
  'test/config/files/file-watch.test.ts',
  'test/downstream/{memory,resume,wire}.test.ts',
  'test/downstream/memory/byte-budget.test.ts',
  'test/{map-entries,deadline,small-collections,young-objects,work-turn}.test.ts',
  'test/json/kept-text.test.ts',
  'test/compose/workers/**/*.test.ts',
];

/** Tests with programs of others, from npm, PyPI, Go and Debian. */
const PROGRAMS = [
  'test/e2e/{prometheus,dashboard,deploy-programs,sandbox,process-limits,upstream-proxy,npx}.test.ts',
  'test/egress/proxy.test.ts',
  'test/cli/operator/completion.test.ts',
];
const COMMANDS = ['test/e2e/docs-commands.test.ts'];
const README = ['test/e2e/readme-node-{20,22,24}.test.ts', 'test/e2e/package.test.ts'];
/** Tests that take minutes or much memory, or prove again what a cheaper test of the gate proves. */
const LONG = [
  'test/e2e/{hygiene,reload-many,parked,faults,faults-lists,eras-late,servers-asks,servers-revisions}.test.ts',
  'test/e2e/{collisions,cross-principal,large-answers,many-connections,overload}.test.ts',
  'test/e2e/{tracing-process,workers,workers-*,log-bounds,audit-otlp,half-open}.test.ts',
  'test/fuzz/oracles.test.ts',
];
const REPLICAS = [
  'test/e2e/{replica-events,failover,chaos-lies,key-rights,upgrade,upgrade-records,versions}.test.ts',
  'test/e2e/replicas-*.test.ts',
];
const PEERS = ['test/peers/**/*.test.ts'];
const E2E = ['test/e2e/**/*.test.ts'];
const FULL_ONLY = [...PROGRAMS, ...COMMANDS, ...README, ...LONG, ...REPLICAS, ...PEERS];

const STATIC: readonly Step[] = ['format:check', 'lint', 'types', 'dead'].map((name) => ({
  kind: 'script',
  name,
  minutes: 0.2,
}));

const UNIT: readonly Step[] = [
  {
    kind: 'tests',
    name: 'unit',
    minutes: 2.5,
    files: ['test/**/*.test.ts'],
    except: [...ALONE, ...REDIS, ...FULL_ONLY, ...E2E],
    atOnce: LANES,
  },
  { kind: 'tests', name: 'alone', minutes: 2, files: ALONE, except: [...REDIS, ...FULL_ONLY], atOnce: 1 },
];

/** The script that makes the program which tests start, at {@link BUNDLE} below the root. */
export const BUILD = 'build';
export const BUNDLE = 'dist/main.js';

/** `npm test`. Without network after `npm ci`, but for `redis-server` where the machine has none. */
const GATE: readonly Step[] = [
  { kind: 'machine', name: 'machine', minutes: 0.1 },
  ...STATIC,
  // Tests start the bundle, which starts in half the time.
  { kind: 'script', name: BUILD, minutes: 0.1 },
  ...UNIT,
  { kind: 'tests', name: 'e2e', minutes: 3.5, files: E2E, except: [...REDIS, ...FULL_ONLY], atOnce: LANES },
  { kind: 'tests', name: 'redis', minutes: 1.5, files: REDIS, atOnce: LANES, missing: missingRedis },
  // The same inputs each time. `npm run test:full` has others.
  {
    kind: 'program',
    name: 'fuzz, one seed',
    minutes: 0.3,
    file: 'test/fuzz/run.ts',
    args: ['--seed', '1', '--times', '0.2'],
  },
  { kind: 'program', name: 'matrix', minutes: 0.6, file: 'test/matrix/run.ts', args: ['--check'] },
  {
    kind: 'program',
    name: 'conformance',
    minutes: 0.8,
    file: 'test/conformance/run.ts',
    args: ['--leg', 'server', '--upstream', 'http', '--endpoint', 'single'],
  },
  {
    kind: 'program',
    name: 'conformance as client',
    minutes: 0.4,
    file: 'test/conformance/run.ts',
    args: ['--leg', 'client'],
  },
];

const peersInstall: Step = {
  kind: 'program',
  name: 'peers install',
  minutes: 2,
  file: 'test/peers/install.ts',
  args: [],
};
const after = peersInstall.name;
const peersTrial = (name: string, minutes: number, ...args: readonly string[]): Step => ({
  kind: 'program',
  name,
  minutes,
  after,
  file: 'test/peers/run.ts',
  args,
});

const PEER_STEPS: readonly Step[] = [
  peersInstall,
  // A part of the trials with servers and clients of other projects. `npm run peers` runs the rest; see `docs/testing.md`.
  peersTrial('peers', 2, '--quick'),
  peersTrial('peers late', 3, '--quick', '--late'),
  {
    kind: 'program',
    name: 'peers conformance',
    minutes: 1.5,
    after,
    file: 'test/peers/conformance.ts',
    args: ['--server', 'python', '--server', 'typescript', '--endpoint', 'single'],
  },
  { kind: 'tests', after, name: 'peers by number', minutes: 4, files: PEERS, atOnce: CORES },
];

/** What `npm run test:full` runs besides the gate. */
const REST: readonly Step[] = [
  { kind: 'tests', name: 'programs', minutes: 5, files: PROGRAMS, atOnce: 1 },
  { kind: 'tests', name: 'commands of the pages', minutes: 3, files: COMMANDS, atOnce: 1 },
  { kind: 'tests', name: 'readme', minutes: 3, files: README, atOnce: 1 },
  { kind: 'tests', name: 'long', minutes: 8, files: LONG, atOnce: 1 },
  { kind: 'tests', name: 'replicas', minutes: 7, files: REPLICAS, atOnce: 1 },
  { kind: 'program', name: 'chaos', minutes: 2.5, file: 'test/chaos/run.ts', args: ['--seeds', '5'] },
  { kind: 'program', name: 'fuzz', minutes: 1, file: 'test/fuzz/run.ts', args: [] },
  { kind: 'program', name: 'conformance whole', minutes: 3, file: 'test/conformance/run.ts', args: [] },
  ...PEER_STEPS,
];

/** The runs by name. */
const RUNS: Readonly<Record<string, readonly Step[]>> = {
  gate: GATE,
  full: [...GATE, ...REST],
  unit: UNIT,
  peers: [peersInstall, peersTrial('peers', 4), peersTrial('peers late', 6, '--late'), ...PEER_STEPS.slice(3)],
};

/**
 * Returns the steps of a run, or those with these names.
 *
 * @throws {Error} if a name is neither that of a run nor that of a step.
 */
export function chooseSteps(names: readonly string[]): readonly Step[] {
  const all = RUNS['full'] ?? [];
  return names.flatMap((name) => {
    const found = RUNS[name] ?? all.filter((step) => step.name === name);
    if (found.length > 0) return found;
    const known = [...Object.keys(RUNS), ...all.map((step) => `"${step.name}"`)].join(', ');
    throw new Error(`there is no run or step "${name}"; there are ${known}`);
  });
}
