import assert from 'node:assert/strict';
import { appendFile, mkdir, mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Journal } from '../../../src/store/disk/journal.ts';
import { smallDisk } from '../../support/small-disk.ts';

const LIMIT = { timeout: 120_000 };
let root = '';

before(async () => {
  root = await mkdtemp(join(tmpdir(), 'linkspan-journal-'));
});

after(() => rm(root, { recursive: true, force: true }));

let count = 0;

function journalOf({ dir = join(root, String(++count)), state = (): Iterable<string> => [] } = {}) {
  const path = join(dir, 'journal');
  const events: string[] = [];
  const journal = new Journal(path, state, {
    onWriteFailed: () => events.push('write failed'),
    onFailing: () => events.push(journal.failure === undefined ? 'failing without a reason' : 'failing'),
    onRecovered: () => events.push('recovered'),
  });
  return { dir, path, journal, events };
}

test('appended lines are read back in order by the next process', LIMIT, async () => {
  const { dir, journal, events } = journalOf();
  await mkdir(dir);
  assert.deepEqual(await Array.fromAsync(journal.read()), []);
  const lines = Array.from({ length: 100 }, (_, n) => `{"n":${n},"text":"ä${'x'.repeat(2_000)}"}`);
  assert.ok((await Promise.all(lines.map((line) => journal.append(line)))).every(Boolean));
  await journal[Symbol.asyncDispose]();
  const { journal: next } = journalOf({ dir });
  assert.deepEqual(await Array.fromAsync(next.read()), [...lines, '']);
  assert.deepEqual(events, []);
});

test('a line after an unfinished one begins on a line of its own', LIMIT, async () => {
  const { dir, path, journal } = journalOf();
  await mkdir(dir);
  await appendFile(path, 'whole\ntorn');
  assert.deepEqual(await Array.fromAsync(journal.read()), ['whole', 'torn']);
  await journal.append('next');
  assert.equal(await readFile(path, 'utf8'), 'whole\ntorn\nnext\n');
  await journal[Symbol.asyncDispose]();
});

// N-31
test('a line after an unfinished one begins on its own also after a write has failed', LIMIT, async () => {
  await using disk = await smallDisk('2m');
  const { path, journal } = journalOf({ dir: disk.path });
  await appendFile(path, 'whole\ntorn');
  assert.deepEqual(await Array.fromAsync(journal.read()), ['whole', 'torn']);
  await disk.fill();
  const long = 'x'.repeat(10_000);
  assert.equal(await journal.append(long), false);
  assert.equal(await readFile(path, 'utf8'), 'whole\ntorn');
  await disk.free();
  assert.equal(await journal.append('next'), true);
  assert.equal(await readFile(path, 'utf8'), `whole\ntorn\n${long}\nnext\n`);
  await journal[Symbol.asyncDispose]();
});

test('compact replaces the lines by those of the state', LIMIT, async () => {
  const { dir, path, journal } = journalOf({ state: () => ['a', 'b'] });
  await mkdir(dir);
  await journal.append('old');
  await journal.compact();
  assert.equal(await readFile(path, 'utf8'), 'a\nb\n');
  await journal[Symbol.asyncDispose]();
});

// N-31
test('the part of a line that could not be removed counts in the length of the file', LIMIT, async () => {
  const { dir, path, journal } = journalOf({ state: () => ['state'] });
  assert.equal(await journal.append('first'), false);
  await mkdir(dir);
  // As if a part of the line had been written. It is longer than a journal that is not rewritten.
  await appendFile(path, 'x'.repeat(300 * 1_024));
  await journal.append('second');
  assert.match(await readFile(path, 'utf8'), /^x+\nfirst\nsecond\n$/);
  await journal.append('third');
  assert.equal(await readFile(path, 'utf8'), 'state\n');
  await journal[Symbol.asyncDispose]();
});

test('a file that was removed is written again as a whole', LIMIT, async () => {
  const { dir, path, journal } = journalOf({ state: () => ['first', 'second'] });
  await mkdir(dir);
  assert.equal(await journal.append('first'), true);
  await rm(path);
  assert.equal(await journal.append('second'), true);
  assert.equal(await readFile(path, 'utf8'), 'first\nsecond\n');
  await journal[Symbol.asyncDispose]();
});

test('the loss of an empty file with its directory is noticed', LIMIT, async () => {
  const { dir, path, journal, events } = journalOf();
  await mkdir(dir);
  await journal.compact();
  await rm(dir, { recursive: true });
  assert.equal(await journal.append('first'), false);
  await mkdir(dir);
  assert.equal(await journal.append('first'), true);
  assert.deepEqual(events, ['write failed', 'failing', 'recovered']);
  assert.ok((await stat(`${path}.reserve`)).size > 0);
  await journal[Symbol.asyncDispose]();
});

test('lines that could not be written are written once the directory is there', LIMIT, async () => {
  const { dir, path, journal, events } = journalOf();
  assert.equal(await journal.append('first'), false);
  assert.ok(journal.failure instanceof Error);
  assert.deepEqual(events, ['write failed', 'failing']);
  await mkdir(dir);
  assert.equal(await journal.append('second'), true);
  assert.equal(journal.failure, undefined);
  assert.deepEqual(events, ['write failed', 'failing', 'recovered']);
  // The journal begins a new line, since it cannot tell what the failed write has left.
  assert.deepEqual((await readFile(path, 'utf8')).split('\n').filter(Boolean), ['first', 'second']);
  await journal[Symbol.asyncDispose]();
});
