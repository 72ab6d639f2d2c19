import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { copyFile, mkdir, mkdtemp, readdir, readFile, rename, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { AuditLog, type AuditLogEvents, type AuditLogSettings } from '../../src/audit/audit-log.ts';
import { auditKeyOf } from '../../src/audit/chain.ts';
import { ChainWriter } from '../../src/audit/chain-writer.ts';
import { FileSink, headOf } from '../../src/audit/file-sink.ts';
import { readHead } from '../../src/audit/head.ts';
import { renamedFilesOf } from '../../src/audit/renamed-files.ts';
import { type AuditReport, verifyAudit } from '../../src/audit/verify.ts';
import { smallDisk } from '../support/small-disk.ts';
import { waitUntil } from '../support/wait-until.ts';
import { auditWriterContract } from './audit-writer.contract.ts';
import { KEY, memoryLog, SETTINGS } from './memory-log.ts';

const LIMITS = { maxBytes: 1_048_576, maxFiles: 4 };
const BOUNDED = { timeout: 120_000 };

auditWriterContract('own', async (sink, queueBytes) => {
  const { log, lines } = await memoryLog(sink, { queueBytes });
  return { writer: log, lines, close: () => log.close() };
});

/** The fates of records. */
interface Counts {
  written: number;
  dropped: number;
  failed: number;
  replaced: number;
  /** Records that were lost, by each recovery. */
  readonly recoveries: number[];
}

interface Opened {
  readonly log: AuditLog;
  readonly counts: Counts;
}

async function folder(t: { after(undo: () => Promise<void>): void }): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return join(dir, 'audit.log');
}

async function open(path: string, settings: Partial<AuditLogSettings> = {}, limits = LIMITS): Promise<Opened> {
  const counts: Counts = { written: 0, dropped: 0, failed: 0, replaced: 0, recoveries: [] };
  const events: AuditLogEvents = {
    onWritten: (count) => (counts.written += count),
    onDropped: () => counts.dropped++,
    onFailed: () => counts.failed++,
    onFailing: () => undefined,
    onRecovered: (dropped) => counts.recoveries.push(dropped),
    onReplaced: () => counts.replaced++,
    onLost: () => undefined,
  };
  const sink = await FileSink.open(path, limits, [KEY]);
  const process = { version: '0', host: 'test', pid: 1 };
  return {
    log: await AuditLog.open({ sink, key: KEY, settings: { ...SETTINGS, ...settings }, process, events }),
    counts,
  };
}

/** Writes this many records in a life of its own. */
async function write(path: string, count: number, limits = LIMITS): Promise<void> {
  const { log } = await open(path, {}, limits);
  for (let i = 0; i < count; i++) log.record({ kind: 'request', name: `tool-${i}`, executed: 'yes' });
  await log.close();
}

/** Verifies the file, the renamed ones beside it, and the head. */
async function verify(path: string, isPart = false): Promise<AuditReport> {
  const head = readHead([KEY], await readFile(headOf(path), 'utf8'));
  assert.ok(head !== undefined);
  return await verifyAudit([...(await renamedFilesOf(path)), path], { keys: [KEY], head, isPart });
}

async function linesOf(path: string): Promise<string[]> {
  return (await readFile(path, 'utf8')).split('\n').slice(0, -1);
}

async function problemsOf(path: string): Promise<readonly string[]> {
  const { problems } = await verify(path);
  return problems.map(({ line, message }) => `${line}: ${message}`);
}

// SEC-44
test('records are numbered and chained, over a restart too', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 3);
  await write(path, 2);
  const report = await verify(path);
  // Each process adds a first and a last record.
  assert.deepEqual([report.problems, report.records, report.firstSeq, report.lastSeq], [[], 9, 1, 9]);
  assert.equal(report.starts, 2);
  const kinds = (await linesOf(path)).map((line) => JSON.parse(line).kind);
  assert.deepEqual(kinds.slice(0, 6), ['started', 'request', 'request', 'request', 'stopped', 'started']);
});

/** A change of the file by somebody without the key, and what is then reported. */
const tamperings: readonly {
  readonly name: string;
  readonly change: (lines: string[]) => string[];
  readonly reported: readonly RegExp[];
}[] = [
  {
    name: 'a changed member',
    change: (lines) => lines.map((line, i) => (i === 2 ? line.replace('"yes"', '"no"') : line)),
    reported: [/^3: record 3 was changed/],
  },
  {
    name: 'a removed record',
    change: (lines) => lines.toSpliced(2, 1),
    reported: [/^3: record 3 is missing before this line$/, /^3: record 4 was changed, or does not follow/],
  },
  {
    name: 'two records in another order',
    change: ([a = '', b = '', c = '', ...rest]) => [a, c, b, ...rest],
    reported: [
      /^2: record 2 is missing/,
      /^2: record 3/,
      /^3: record 2 comes after record 3$/,
      /^3: record 2/,
      /^4:/,
      /^4:/,
    ],
  },
  {
    name: 'a record that stands twice',
    change: (lines) => lines.toSpliced(3, 0, lines[2] ?? ''),
    reported: [/^4: record 3 comes after record 3$/, /^4: record 3/],
  },
  {
    name: 'a cut tail',
    change: (lines) => lines.slice(0, -2),
    reported: [/^0: records 5 to 6 are missing at the end/],
  },
  {
    name: 'a tail that was cut to nothing',
    change: () => [],
    reported: [/^0: records 1 to 6 are missing at the end/],
  },
  {
    name: 'a cut beginning',
    change: (lines) => lines.slice(2),
    reported: [/^1: the beginning of the file is missing$/, /^0: records 1 to 2 are missing before the first file$/],
  },
  {
    name: 'a line that is no record',
    change: (lines) => lines.toSpliced(1, 0, '{"seq":2}'),
    reported: [/^2: this line is no record$/],
  },
  {
    name: 'a record in a second spelling',
    change: (lines) => lines.map((line, i) => (i === 1 ? line.replace('{"seq":2,', '{"seq":2, ') : line)),
    reported: [/^2: record 2 was changed/],
  },
];

for (const { name, change, reported } of tamperings) {
  // SEC-44
  test(`${name} is reported with its line`, BOUNDED, async (t) => {
    const path = await folder(t);
    await write(path, 4);
    const changed = change(await linesOf(path));
    await writeFile(path, changed.map((line) => `${line}\n`).join(''));
    const problems = await problemsOf(path);
    assert.equal(problems.length, reported.length, problems.join('\n'));
    for (const [index, pattern] of reported.entries()) assert.match(problems[index] ?? '', pattern);
  });
}

// SEC-44
test('no byte of a record can change unnoticed', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 1);
  const bytes = await readFile(path);
  const end = bytes.indexOf(0x0a);
  for (let at = 0; at <= end; at++) {
    const changed = Buffer.from(bytes);
    changed[at] = (changed[at] ?? 0) ^ 0x01;
    await writeFile(path, changed);
    assert.notEqual((await verify(path)).problemCount, 0, `byte ${at}`);
  }
});

// SEC-44
test('a head that was made without the key is not accepted', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 2);
  const text = await readFile(headOf(path), 'utf8');
  assert.ok(readHead([KEY], text) !== undefined);
  assert.equal(readHead([KEY], text.replace('"seq":4', '"seq":3')), undefined);
  assert.equal(readHead([auditKeyOf(randomBytes(32).toString('base64url'))], text), undefined);
});

// SEC-44
test('another history of as many records is not the one that the head names', BOUNDED, async (t) => {
  const path = await folder(t);
  const both = [path, headOf(path)];
  await write(path, 1);
  const common = await Promise.all(both.map((file) => readFile(file)));
  await write(path, 1);
  const [other] = await Promise.all(both.map((file) => readFile(file)));
  await Promise.all(both.map(async (file, at) => await writeFile(file, common[at] ?? '')));
  await write(path, 1);
  assert.deepEqual(await problemsOf(path), []);
  await writeFile(path, other ?? '');
  assert.deepEqual(await problemsOf(path), ['0: record 6 is not the one that the signed head names']);
});

// SEC-44
test('an unfinished line is none only at the end of the last file', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 1);
  const before = await readFile(path);
  await write(path, 1);
  const later = `${path}.later`;
  await writeFile(later, (await readFile(path)).subarray(before.length));
  const torn = '{"seq":4,"kind":"req';
  const verified = async (first: string, second: string) => {
    await writeFile(path, Buffer.concat([before, Buffer.from(first)]));
    const rest = await readFile(later, 'utf8');
    await writeFile(later, `${rest}${second}`);
    return await verifyAudit([path, later], { keys: [KEY], head: undefined, isPart: false });
  };
  const { problems } = await verified(torn, '');
  assert.deepEqual(
    problems.map(({ file, message }) => [file, message]),
    [[path, 'the last line is unfinished, and another file follows']],
  );
  const atEnd = await verified('', torn);
  assert.deepEqual([atEnd.problems, atEnd.isTorn], [[], true]);
});

test('the chain goes on over renamed files, and the oldest ones are removed', BOUNDED, async (t) => {
  const path = await folder(t);
  const limits = { maxBytes: 2_000, maxFiles: 2 };
  for (let life = 0; life < 3; life++) {
    const { log } = await open(path, {}, limits);
    for (let i = 0; i < 20; i++) await log.commit({ kind: 'request', name: `tool-${i}` });
    await log.close();
  }
  const renamed = await renamedFilesOf(path);
  assert.equal(renamed.length, 2);
  const report = await verify(path);
  assert.deepEqual(report.problems, []);
  assert.ok((report.firstSeq ?? 0) > 1, 'older files are removed');

  // A file that somebody else removes is missed, whichever it is.
  for (const file of renamed) {
    await rename(file, `${file}.away`);
    assert.equal((await verify(path)).problemCount > 0, true, file);
    await rename(`${file}.away`, file);
  }
});

// SEC-44
test('the death of a process that has removed the oldest file is no removal', BOUNDED, async (t) => {
  const path = await folder(t);
  const sink = await FileSink.open(path, { maxBytes: 1_000, maxFiles: 1 }, [KEY]);
  const events = { onWritten: () => undefined, onReplaced: () => undefined };
  const writer = new ChainWriter({ sink, key: KEY, events, process: { version: '0' } });
  await writer.begin();
  const writeOne = async () => await writer.write([`"kind":"request","name":"${'x'.repeat(600)}"`]);
  for (let n = 0; n < 2; n++) await writeOne();
  await writer.upkeep();
  assert.deepEqual(await problemsOf(path), []);
  sink.append = () => Promise.reject(new Error('the process dies here'));
  await assert.rejects(writeOne());
  assert.equal((await renamedFilesOf(path)).length, 1, 'the oldest file is gone');
  await sink.close();
  assert.deepEqual(await problemsOf(path), []);
  await write(path, 1);
  assert.deepEqual(await problemsOf(path), []);
});

test('files with the names of renamed ones do not push out records', BOUNDED, async (t) => {
  const path = await folder(t);
  const limits = { maxBytes: 2_000, maxFiles: 4 };
  const { log } = await open(path, {}, limits);
  const named = async (name: string) => {
    for (let i = 0; i < 16; i++) await log.commit({ kind: 'request', name });
  };
  await named('before');
  const [first = ''] = await renamedFilesOf(path);
  const wrong = [1, 2, 3, 4].map((n) => `${path}.99999999999999${n}`);
  for (const file of wrong.slice(0, 2)) await writeFile(file, '');
  await copyFile(first, wrong[2] ?? '');
  await mkdir(wrong[3] ?? '');
  await named('after');
  await log.close();
  assert.equal((await renamedFilesOf(path)).includes(first), true);
  await rmdir(wrong[3] ?? '');
  const problems = (await verify(path)).problems.map(({ file, message }) => [file, message]);
  const noRecords = 'the file has the name of a renamed one, and no records';
  const otherName = 'the name of the file tells record 999999999999993, and it begins with record 1';
  for (const expected of [
    [wrong[0], noRecords],
    [wrong[1], noRecords],
    [wrong[2], otherName],
  ]) {
    assert.equal(
      problems.some((problem) => problem.join() === expected.join()),
      true,
      expected.join(': '),
    );
  }
  for (const file of wrong) await rm(file, { force: true });
  assert.deepEqual(await problemsOf(path), []);
});

test('a renamed file is verified by itself as a part of the log', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 40, { maxBytes: 2_000, maxFiles: 50 });
  const { log } = await open(path, {}, { maxBytes: 2_000, maxFiles: 50 });
  for (let i = 0; i < 20; i++) await log.commit({ kind: 'request' });
  await log.close();
  const file = (await renamedFilesOf(path)).at(-1) ?? '';
  assert.deepEqual((await verifyAudit([file], { keys: [KEY], head: undefined, isPart: true })).problems, []);
});

test('a second process cannot write the same file', BOUNDED, async (t) => {
  const path = await folder(t);
  const { log } = await open(path);
  await assert.rejects(open(path), /another process writes the audit file/);
  await log.close();
  await write(path, 1);
});

test('an unfinished record at the end is removed at the next start, which says so', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 2);
  const torn = '{"seq":5,"time":"2026';
  await writeFile(path, `${await readFile(path, 'utf8')}${torn}`);
  assert.equal((await verify(path)).isTorn, true);
  await write(path, 1);
  assert.deepEqual(await problemsOf(path), []);
  assert.equal(JSON.parse((await linesOf(path))[4] ?? '').cutBytes, torn.length);
});

test('missing records are noted at the next start, which uses no number again', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 3);
  await writeFile(path, `${(await linesOf(path)).slice(0, 2).join('\n')}\n`);
  await write(path, 1);
  const started = JSON.parse((await linesOf(path))[2] ?? '');
  assert.deepEqual([started.kind, started.seq, started.missing], ['started', 6, 3]);
  assert.deepEqual(await problemsOf(path), ['3: records 3 to 5 are missing before this line']);
  await writeFile(path, `${(await linesOf(path)).slice(2).join('\n')}\n`);
  const { problems } = await verify(path, true);
  assert.deepEqual(problems[0]?.message, 'records 3 to 5 are missing before the first file, as its first record says');
});

test('a changed last record is noted at the next start', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 1);
  await writeFile(path, (await readFile(path, 'utf8')).replace('stopped', 'stoqqed'));
  await write(path, 1);
  assert.equal(JSON.parse((await linesOf(path))[3] ?? '').forged, true);
});

/** Changes of the head by somebody without the key, after which the end of the file is cut. */
const headTamperings: readonly { readonly name: string; readonly change: (head: string) => Promise<void> }[] = [
  { name: 'forged', change: (head) => writeFile(head, 'garbage\n') },
  { name: 'removed', change: (head) => rm(head) },
];

for (const { name, change } of headTamperings) {
  // SEC-44
  test(`a cut tail is reported after a start without it, with a ${name} head`, BOUNDED, async (t) => {
    const path = await folder(t);
    await write(path, 4);
    await writeFile(path, `${(await linesOf(path)).slice(0, 3).join('\n')}\n`);
    await change(headOf(path));
    await write(path, 1);
    assert.match(
      (await problemsOf(path)).join('\n'),
      /^4: the process that wrote this line found .* removed or changed$/,
    );
  });
}

test('the death of a process before its second head is no forgery', BOUNDED, async (t) => {
  const path = await folder(t);
  const log = await open(path);
  const first = await readFile(headOf(path), 'utf8');
  await log.log.close();
  assert.ok(readHead([KEY], first) !== undefined);
  await write(path, 1);
  assert.deepEqual(await problemsOf(path), []);
});

test('another key continues the chain, and both are needed to verify it', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 1);
  const next = auditKeyOf(randomBytes(32).toString('base64url'));
  const sink = await FileSink.open(path, LIMITS, [next, KEY]);
  const nothing = () => undefined;
  const events = { onWritten: nothing, onDropped: nothing, onFailed: nothing, onFailing: nothing };
  const more = { onRecovered: nothing, onReplaced: nothing, onLost: nothing };
  const log = await AuditLog.open({ sink, key: next, settings: SETTINGS, process: {}, events: { ...events, ...more } });
  await log.close();
  const both = await verifyAudit([path], { keys: [next, KEY], head: undefined, isPart: false });
  assert.deepEqual(both.problems, []);
  const one = await verifyAudit([path], { keys: [next], head: undefined, isPart: false });
  assert.ok(one.problemCount > 0);
});

test('the file is begun again if somebody has removed it, and verify tells', BOUNDED, async (t) => {
  const path = await folder(t);
  const { log, counts } = await open(path);
  await log.commit({ kind: 'request' });
  await rm(path);
  await waitUntil(() => {
    log.record({ kind: 'request' });
    return counts.replaced > 0;
  });
  await log.close();
  const first = JSON.parse((await linesOf(path))[0] ?? '');
  assert.deepEqual([first.kind, first.replaced], ['rotated', true]);
  assert.match((await problemsOf(path)).join('\n'), /records 1 to \d+ are missing before the first file/);
});

test('the queue is bounded, and one record says how many were dropped', BOUNDED, async (t) => {
  const path = await folder(t);
  const { log, counts } = await open(path, { queueBytes: 65_536 });
  for (let i = 0; i < 10_000; i++) log.record({ kind: 'request', name: 'x'.repeat(200) });
  assert.ok(log.queuedBytes <= 65_536);
  assert.ok(counts.dropped > 5_000);
  await log.close();
  const report = await verify(path);
  assert.deepEqual([report.problems, report.dropped], [[], counts.dropped]);
});

// R22
test('a call is not begun on a full disk, and records are written when there is room', BOUNDED, async () => {
  await using disk = await smallDisk('1m');
  const path = join(disk.path, 'audit.log');
  const { log, counts } = await open(path, { sync: 'write' });
  assert.equal(await log.commit({ kind: 'begun' }), 2);
  await disk.fill();
  const refused = { code: 'audit-unavailable' };
  // The rest of the last page of the file has room for some.
  await assert.rejects(async () => {
    for (;;) await log.commit({ kind: 'begun', name: 'x'.repeat(200) });
  }, refused);
  assert.equal(log.isFailing, true);
  log.record({ kind: 'request', name: 'waits' });
  await assert.rejects(log.commit({ kind: 'begun', name: 'refused' }), refused);
  await disk.free();
  const seq = await log.commit({ kind: 'begun', name: 'again' });
  await waitUntil(() => !log.isFailing);
  assert.deepEqual([counts.dropped, counts.recoveries.length], [0, 1]);
  await log.close();
  const report = await verify(path);
  assert.deepEqual([report.problems, report.isTorn], [[], false]);
  const lines = await linesOf(path);
  const names = lines.map((line) => JSON.parse(line).name);
  assert.deepEqual([names.includes('waits'), names.includes('refused')], [true, false]);
  assert.equal(JSON.parse(lines[seq - 1] ?? '').name, 'again');
});

test('a file that is no audit log is left as it is', BOUNDED, async (t) => {
  const path = await folder(t);
  for (const text of ['notes', 'notes\n', 'notes\n{"seq":2', '{"sequence":1}\n']) {
    await writeFile(path, text);
    await assert.rejects(open(path), /does not begin with a record of an audit log/);
    assert.equal(await readFile(path, 'utf8'), text);
  }
  for (const torn of ['{', '{"seq":1,"time"']) {
    await writeFile(path, torn);
    await (await open(path)).log.close();
  }
});

test('the end of a life leaves the records, the head and nothing else that is open', BOUNDED, async (t) => {
  const path = await folder(t);
  await write(path, 1);
  const names = await readdir(join(path, '..'));
  assert.deepEqual(names.toSorted(), ['audit.log', 'audit.log.head', 'audit.log.lock']);
});

test('verify names calls that were begun and have no end', BOUNDED, async (t) => {
  const path = await folder(t);
  const { log } = await open(path);
  const ended = await log.commit({ kind: 'begun' });
  const unended = await log.commit({ kind: 'begun' });
  log.record({ kind: 'request', begun: ended });
  await log.close();
  assert.deepEqual((await verify(path)).unended, [unended]);
});
