import assert from 'node:assert/strict';
import { watch } from 'node:fs';
import { appendFile, mkdir, mkdtemp, rename, rm, symlink, utimes, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';

import { FileState } from '../../../src/config/files/file-state.ts';
import { FileWatch } from '../../../src/config/files/file-watch.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 60_000 };
const TIMES = { pollMs: 20, settleMs: 10, longestMs: 50 };
/** Times much longer than the pauses of {@link repeat}, also on a busy machine. */
const LONG_TIMES = { pollMs: 300, settleMs: 200, longestMs: 400 };
/** Times by which only an event brings a look at the files. */
const EVENT_TIMES = { ...TIMES, pollMs: 3_600_000 };

interface Watched extends AsyncDisposable {
  readonly dir: string;
  readonly file: string;
  readonly changes: () => number;
  readonly watch: FileWatch;
}

async function watchFile(more: readonly string[] = [], times = TIMES): Promise<Watched> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-watch-'));
  const file = join(dir, 'config.yaml');
  await writeFile(file, 'one');
  return await watchIn(dir, [file, ...more.map((name) => join(dir, name))], times);
}

async function watchIn(dir: string, files: readonly string[], times = TIMES): Promise<Watched> {
  let changes = 0;
  const watch = new FileWatch(() => changes++, times);
  await watch.setFiles(new Map(files.map((file) => [file, undefined])));
  return {
    dir,
    file: files[0] ?? dir,
    changes: () => changes,
    watch,
    [Symbol.asyncDispose]: async () => {
      watch[Symbol.dispose]();
      await rm(dir, { recursive: true, force: true });
    },
  };
}

/** Replaces a file by another one with this text, in one step. */
async function replace(file: string, text: string): Promise<void> {
  const next = `${file}.next`;
  await writeFile(next, text);
  await rename(next, file);
}

/** Runs an action again and again until it is disposed of. */
function repeat(action: () => Promise<unknown>, pauseMs: number): AsyncDisposable {
  const ending = new AbortController();
  const running = (async () => {
    while (!ending.signal.aborted) {
      await action();
      await sleep(pauseMs);
    }
  })();
  return {
    [Symbol.asyncDispose]: async () => {
      ending.abort();
      await running;
    },
  };
}

/** A folder in which Kubernetes keeps a ConfigMap: the file is a link into a directory that is a link too. */
async function configMap(times = TIMES): Promise<Watched & { readonly swap: (version: string) => Promise<void> }> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-map-'));
  for (const version of ['..1', '..2']) {
    await mkdir(join(dir, version));
    await writeFile(join(dir, version, 'config.yaml'), version);
  }
  await symlink('..1', join(dir, '..data'));
  await symlink('..data/config.yaml', join(dir, 'config.yaml'));
  const swap = async (version: string) => {
    await symlink(version, join(dir, '..new'));
    await rename(join(dir, '..new'), join(dir, '..data'));
  };
  return { ...(await watchIn(dir, [join(dir, 'config.yaml')], times)), swap };
}

/** @throws {Error} `EMFILE` if this machine has no inotify instance left: they are shared with all programs of the user. */
function assertEvents(dir: string): void {
  watch(dir).close();
}

/** Resolves with the number of changes when the watch has looked at the files several times more. */
async function settled(at: Watched): Promise<number> {
  const marker = join(at.dir, 'marker');
  let looks = 0;
  using other = new FileWatch(() => looks++, TIMES);
  await other.setFiles(new Map([[marker, undefined]]));
  for (const wanted of [1, 2]) {
    await replace(marker, `${wanted}`);
    await waitUntil(() => looks >= wanted);
  }
  return at.changes();
}

test('a file that is written in place is reported', TIMEOUT, async () => {
  await using at = await watchFile();
  await writeFile(at.file, 'two');
  await waitUntil(() => at.changes() >= 1);
});

test('a file that an editor replaces is reported, each time once', TIMEOUT, async () => {
  await using at = await watchFile();
  for (const n of [1, 2, 3]) {
    await replace(at.file, `version ${n}`);
    await waitUntil(() => at.changes() >= n);
    assert.equal(await settled(at), n);
  }
});

test('a file of equal size and time that replaces another is reported', TIMEOUT, async () => {
  await using at = await watchFile();
  const next = join(at.dir, 'next');
  const time = new Date(1_000_000);
  await utimes(at.file, time, time);
  await writeFile(next, 'two');
  await utimes(next, time, time);
  await rename(next, at.file);
  await waitUntil(() => at.changes() >= 1);
});

// N-71
test('a file that is written again with its own content is not reported', TIMEOUT, async () => {
  await using at = await watchFile();
  await utimes(at.file, new Date(), new Date(1_000_000));
  await replace(at.file, 'one');
  assert.equal(await settled(at), 0);
});

// N-71
test('a change is reported while another file of the folder is written', TIMEOUT, async () => {
  await using at = await watchFile([], LONG_TIMES);
  await using _busy = repeat(() => appendFile(join(at.dir, 'gateway.log'), 'line\n'), 1);
  await replace(at.file, 'two');
  await waitUntil(() => at.changes() >= 1);
});

// N-71
test('a file that changes faster than it settles is reported', TIMEOUT, async () => {
  await using at = await watchFile([], LONG_TIMES);
  let version = 0;
  await using _busy = repeat(() => replace(at.file, `version ${version++}`), 1);
  await waitUntil(() => at.changes() >= 3);
});

// N-71
test('a change after a file was loaded and before it is watched is reported', TIMEOUT, async () => {
  await using at = await watchFile([], EVENT_TIMES);
  const loaded = await new FileState(at.file).read();
  const other = join(at.dir, 'other');
  await at.watch.setFiles(new Map([[other, undefined]]));
  await replace(at.file, 'two');
  // The event of the change comes while no watched file has its name.
  await settled(at);
  await at.watch.setFiles(new Map([[at.file, loaded]]));
  await waitUntil(() => at.changes() >= 1);
});

// N-71
test('a file that was loaded again is not reported for what was loaded', TIMEOUT, async () => {
  await using at = await watchFile();
  await replace(at.file, 'two');
  await at.watch.setFiles(new Map([[at.file, await new FileState(at.file).read()]]));
  assert.equal(await settled(at), 0);
});

// N-71
test('a second watched file that changes all the time delays no report', TIMEOUT, async () => {
  await using at = await watchFile(['token'], LONG_TIMES);
  let version = 0;
  await using _busy = repeat(() => replace(join(at.dir, 'token'), `version ${version++}`), 1);
  await waitUntil(() => at.changes() >= 1);
  const before = at.changes();
  await replace(at.file, 'two');
  await waitUntil(() => at.changes() > before);
});

test('a ConfigMap that is updated through its directory link is reported', TIMEOUT, async () => {
  await using at = await configMap();
  await at.swap('..2');
  await waitUntil(() => at.changes() >= 1);
  assert.equal(await settled(at), 1);
});

// N-71
test('a ConfigMap is reported while another file of its folder is written', TIMEOUT, async () => {
  await using at = await configMap(LONG_TIMES);
  await using _busy = repeat(() => appendFile(join(at.dir, 'gateway.log'), 'line\n'), 1);
  for (const [n, version] of ['..2', '..1'].entries()) {
    await at.swap(version);
    await waitUntil(() => at.changes() > n);
  }
});

test('a second file, and one that does not exist yet, are reported', TIMEOUT, async () => {
  await using at = await watchFile(['secrets/token']);
  await mkdir(join(at.dir, 'secrets'));
  await replace(join(at.dir, 'secrets/token'), 'a');
  await waitUntil(() => at.changes() >= 1);
  const before = await settled(at);
  await replace(join(at.dir, 'secrets/token'), 'bb');
  await waitUntil(() => at.changes() > before);
});

test('other files of the folder are not reported, and a removed file is', TIMEOUT, async () => {
  await using at = await watchFile();
  await writeFile(join(at.dir, 'other'), 'x');
  assert.equal(await settled(at), 0);
  await rm(at.file);
  await waitUntil(() => at.changes() >= 1);
  assert.equal(await settled(at), 1);
  await replace(at.file, 'one');
  await waitUntil(() => at.changes() >= 2);
});

test('a file that is no longer watched is not reported', TIMEOUT, async () => {
  await using at = await watchFile(['other']);
  await at.watch.setFiles(new Map([[join(at.dir, 'other'), undefined]]));
  await replace(at.file, 'two');
  assert.equal(await settled(at), 0);
  await replace(join(at.dir, 'other'), 'x');
  await waitUntil(() => at.changes() >= 1);
});

test('a change is reported by its event, long before files are compared', TIMEOUT, async () => {
  await using at = await watchFile([], EVENT_TIMES);
  assertEvents(at.dir);
  await replace(at.file, 'two');
  await waitUntil(() => at.changes() >= 1);
});

// N-71
test('a change of a ConfigMap is reported by its event', TIMEOUT, async () => {
  await using at = await configMap(EVENT_TIMES);
  assertEvents(at.dir);
  await at.swap('..2');
  await waitUntil(() => at.changes() >= 1);
});

test('a file in a folder that did not exist before is reported', TIMEOUT, async () => {
  await using at = await watchFile(['later/file.yaml']);
  await mkdir(join(at.dir, 'later'));
  await writeFile(join(at.dir, 'later', 'file.yaml'), 'one');
  await waitUntil(() => at.changes() >= 1);
});
