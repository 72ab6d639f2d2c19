import assert from 'node:assert/strict';
import { copyFile, mkdir, mkdtemp, open, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { AuditLog } from '../../src/audit/audit-log.ts';
import { readHead } from '../../src/audit/head.ts';
import { StdoutSink } from '../../src/audit/stdout-sink.ts';
import { type AuditReport, verifyAudit } from '../../src/audit/verify.ts';
import { smallDisk } from '../support/small-disk.ts';
import { waitUntil } from '../support/wait-until.ts';
import { KEY, SETTINGS } from './memory-log.ts';

const BOUNDED = { timeout: 120_000 };
const HEAD = 'audit-stdout.head';
const nothing = (): void => undefined;
const IGNORED = { onWritten: nothing, onDropped: nothing, onFailed: nothing, onFailing: nothing, onRecovered: nothing };
/** Longer than a page, so that a full disk has room for a part of each batch. */
const RECORD = { kind: 'notification', argumentsText: JSON.stringify('x'.repeat(6_000)) } as const;

async function folder(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-stdout-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

/** Opens an audit log on a file that stands for stdout, as `>>` of a shell opens it. */
async function openLog(t: TestContext, stateDir: string, captured: string): Promise<AuditLog> {
  const file = await open(captured, 'a');
  t.after(() => file.close());
  const sink = await StdoutSink.open(stateDir, [KEY], file.fd);
  const events = { ...IGNORED, onReplaced: nothing, onLost: nothing };
  return await AuditLog.open({ sink, key: KEY, settings: SETTINGS, process: {}, events });
}

async function verify(stateDir: string, captured: string): Promise<AuditReport> {
  const head = readHead([KEY], await readFile(join(stateDir, HEAD), 'utf8'));
  assert.ok(head !== undefined);
  return await verifyAudit([captured], { keys: [KEY], head, isPart: false });
}

// R22
test('a write to stdout that a full disk breaks off goes on where it ended', BOUNDED, async (t) => {
  await using disk = await smallDisk('1m');
  const [stateDir, captured] = [await folder(t), join(disk.path, 'captured.log')];
  const log = await openLog(t, stateDir, captured);
  await disk.fill();
  for (let n = 0; n < 3; n++) log.record(RECORD);
  await waitUntil(() => log.isFailing);
  assert.ok(!(await readFile(captured, 'utf8')).endsWith('\n'), 'the last line is unfinished');
  await disk.free();
  await waitUntil(() => !log.isFailing);
  await log.close();
  const { problems, records } = await verify(stateDir, captured);
  assert.deepEqual([problems, records], [[], 5]);
});

// SEC-44
test('a process whose forerunner died in a line of stdout begins a line of its own', BOUNDED, async (t) => {
  await using disk = await smallDisk('1m');
  const dir = await folder(t);
  const [stateDir, captured] = [join(dir, 'first'), join(disk.path, 'captured.log')];
  const first = await openLog(t, stateDir, captured);
  await disk.fill();
  for (let n = 0; n < 3; n++) first.record(RECORD);
  await waitUntil(() => first.isFailing);
  // A copy of its files is what a process leaves that is killed now.
  const [nextDir, left] = [join(dir, 'next'), join(dir, 'captured.log')];
  await mkdir(nextDir);
  await copyFile(join(stateDir, HEAD), join(nextDir, HEAD));
  await copyFile(captured, left);
  await disk.free();
  await first.close();
  await (await openLog(t, nextDir, left)).close();
  const { problems, starts, dropped } = await verify(nextDir, left);
  assert.deepEqual([problems, starts, dropped], [[], 2, 3]);

  const lines = (await readFile(left, 'utf8')).split('\n');
  const stray = lines[1] ?? '';
  const moved = join(dir, 'moved.log');
  await writeFile(moved, [lines[0], ...lines.slice(2, -2), stray, ...lines.slice(-2)].join('\n'));
  assert.match((await verify(nextDir, moved)).problems[0]?.message ?? '', /this line is no record/);
});
