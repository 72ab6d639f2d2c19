import assert from 'node:assert/strict';
import { closeSync, existsSync, mkdirSync, openSync, rmdirSync } from 'node:fs';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { FileSink } from '../../src/audit/file-sink.ts';
import { renamedFile } from '../../src/audit/renamed-files.ts';
import { limitFiles } from '../support/limit-files.ts';
import { KEY } from './memory-log.ts';

const ON_LINUX = { timeout: 60_000, skip: process.platform !== 'linux' };

/** Keeps this process from opening files. Returns a function that allows it again. */
function forbidOpens(): () => void {
  // They keep places for the pipes of the second command.
  const spare = Array.from({ length: 40 }, () => openSync('/dev/null', 'r'));
  const lowestFree = openSync('/dev/null', 'r');
  closeSync(lowestFree);
  const before = limitFiles(process.pid, String(lowestFree));
  return () => {
    for (const file of spare) closeSync(file);
    limitFiles(process.pid, before);
  };
}

/** A sink whose file is full with its first record, and a second record. */
async function fullSink(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-sink-'));
  t.after(() => rm(dir, { recursive: true }));
  const path = join(dir, 'audit.log');
  const sink = await FileSink.open(path, { maxBytes: 10, maxFiles: 4 }, [KEY]);
  const [first, second] = ['{"seq":1,"kind":"x"}\n', '{"seq":2,"kind":"x"}\n'];
  await sink.append(first);
  return { path, sink, first, second };
}

// R22
test('a full file stays in place while no other one can be opened', ON_LINUX, async (t) => {
  const { path, sink, first, second } = await fullSink(t);

  const allowOpens = forbidOpens();
  const failure = await sink.rotate(2, async () => undefined).catch((thrown: unknown) => thrown);
  const isInPlace = await sink.isInPlace();
  allowOpens();

  assert.match(String(failure), /a new audit file \S+audit\.log cannot be opened \(EMFILE\): check .* ulimit -n/);
  assert.ok(isInPlace, 'nobody is told that somebody has removed it');
  assert.ok(sink.isFull(1));
  await sink.rotate(2, async () => undefined);
  await sink.append(second);
  await sink.close();
  assert.equal(await readFile(renamedFile(path, 1), 'utf8'), first);
  assert.equal(await readFile(path, 'utf8'), second);
});

// R22
test('a full file that does not get its name back is not taken for a removed one', ON_LINUX, async (t) => {
  const { path, sink, first, second } = await fullSink(t);

  const allowOpens = forbidOpens();
  const rotating = sink.rotate(2, async () => undefined).catch((thrown: unknown) => thrown);
  // Each step of the sink takes a turn, so the folder is there before the file would get its name back.
  while (!existsSync(renamedFile(path, 1))) await nextTurn();
  mkdirSync(path);
  const failure = await rotating;
  const isInPlace = await sink.isInPlace();
  allowOpens();

  assert.match(String(failure), /a new audit file \S+audit\.log cannot be opened \(E(?:MFILE|ISDIR)\)/);
  assert.ok(isInPlace, 'nobody is told that somebody has removed it');
  rmdirSync(path);
  await sink.rotate(2, async () => undefined);
  await sink.append(second);
  assert.ok(await sink.isInPlace());
  await rm(path);
  assert.ok(!(await sink.isInPlace()));
  await sink.close();
  assert.equal(await readFile(renamedFile(path, 1), 'utf8'), first);
});
