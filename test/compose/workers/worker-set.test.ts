import assert from 'node:assert/strict';
import cluster from 'node:cluster';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { pino } from 'pino';
import { WorkerSet } from '../../../src/compose/workers/worker-set.ts';
import type { Config } from '../../../src/config/values/config.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { StartError } from '../../../src/errors.ts';
import { stopTime } from '../../support/stopped-time.ts';
import { waitUntil } from '../../support/wait-until.ts';

const OPTIONS = { timeout: 120_000 };
const IDLE = join(import.meta.dirname, '../../fixtures/idle-worker.ts');
const CHANGING = join(import.meta.dirname, '../../fixtures/changing-worker.ts');
/** Folders in which the system starts no process. Node reports one by an event, and throws the other. */
const REFUSED = [
  { cwd: join(import.meta.dirname, 'missing'), code: 'ENOENT' },
  { cwd: import.meta.filename, code: 'ENOTDIR' },
] as const;

/** Starts workers from now on in this folder. */
function startIn(cwd: string): void {
  cluster.setupPrimary({ exec: IDLE, execArgv: [], cwd });
}

interface Tried extends AsyncDisposable {
  readonly workers: WorkerSet;
  readonly config: Config;
  readonly dir: string;
  /** The lines of the log. */
  readonly lines: readonly string[];
  readonly lost: readonly string[];
}

async function twoWorkers(onStarted: () => void = () => undefined): Promise<Tried> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-worker-set-'));
  const file = join(dir, 'linkspan.yaml');
  await writeFile(file, 'mcpServers: {}\ngateway: {workers: 2}\n');
  const [lines, lost]: [string[], string[]] = [[], []];
  const ignore = () => undefined;
  const { config } = await loadConfig(file, { env: {} });
  const workers = new WorkerSet({
    config,
    changes: () => ({ disabled: new Map(), logLevel: 'info' }),
    setup: {
      requests: 'none',
      leaseMs: 1,
      counterLeaseMs: 1,
      notice: undefined,
      warm: false,
      audit: undefined,
    },
    dir,
    serveStores: () => ignore,
    onLimit: ignore,
    onLog: (text) => process.stderr.write(text),
    onStarted,
    onEnded: ignore,
    onLost: (how) => lost.push(how),
    log: pino({}, { write: (line: string) => lines.push(line) }),
  });
  const dispose = async () => {
    await workers.stop();
    await rm(dir, { recursive: true, force: true });
  };
  return { workers, config, dir, lines, lost, [Symbol.asyncDispose]: dispose };
}

for (const { cwd, code } of REFUSED) {
  test(`no gateway starts if the system refuses its workers (${code})`, OPTIONS, async () => {
    await using tried = await twoWorkers();
    startIn(cwd);
    await assert.rejects(tried.workers.start(), (thrown) => {
      assert.ok(thrown instanceof StartError);
      assert.match(thrown.message, new RegExp(`^a worker cannot be started: spawn .*${code}$`));
      return true;
    });
    assert.deepEqual(tried.lines, []);
  });

  test(`a worker whose replacement the system refuses (${code}) is replaced later`, OPTIONS, async (t) => {
    const time = stopTime(t);
    await using tried = await twoWorkers();
    const { workers, lines, lost } = tried;
    startIn(tmpdir());
    await workers.start();
    const [ended, other] = workers.listening;
    startIn(cwd);
    ended?.kill();
    const failed = () => lines.filter((line) => line.includes('a worker could not be replaced'));
    await waitUntil(() => failed().length === 5);
    assert.match(failed()[0] ?? '', new RegExp(`spawn .*${code}`));
    assert.deepEqual(workers.listening, [other], 'the other one serves');
    assert.deepEqual(lost, ['SIGKILL']);
    startIn(tmpdir());
    time.pass(60_000);
    await waitUntil(() => workers.missing === undefined);
    assert.equal(failed().length, 5);
  });
}

test('a worker that starts during reloads prepares one config after the other', OPTIONS, async () => {
  const reload = Promise.withResolvers<void>();
  let isReplaced = false;
  await using tried = await twoWorkers(() => {
    if (isReplaced) reload.resolve(workers.apply({ ...config }));
  });
  const { workers, config, dir, lines, lost } = tried;
  const gate = join(dir, 'go');
  await writeFile(gate, '');
  cluster.setupPrimary({ exec: CHANGING, execArgv: [], cwd: dir });
  await workers.start();
  await rm(gate);
  workers.listening[0]?.kill();
  await waitUntil(() => lost.length === 1);
  await workers.apply({ ...config });
  isReplaced = true;
  await writeFile(gate, '');
  await reload.promise;
  await workers.apply({ ...config });
  assert.deepEqual(lost, ['SIGKILL']);
  assert.deepEqual(
    lines.filter((line) => line.includes('cannot apply')),
    [],
  );
});
