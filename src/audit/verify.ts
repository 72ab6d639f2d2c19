import { isRecord, jsonOf } from '../json/record.ts';
import { isUtf8 } from 'node:buffer';
import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { type AuditKey, type ChainedLine, isChained, NO_MAC, splitLine } from './chain.ts';
import { previousOf } from './file-tail.ts';
import type { Head } from './head.ts';
import { seqInName } from './renamed-files.ts';

/** One thing that is wrong with an audit log. */
export interface AuditProblem {
  readonly file: string;
  /** Counts from 1; 0 for the file as a whole. */
  readonly line: number;
  readonly message: string;
}

/** The result of {@link verifyAudit}. */
export interface AuditReport {
  /** In the order in which they were read. */
  readonly files: readonly string[];
  /** The first ones; `problemCount` is the number of all. */
  readonly problems: readonly AuditProblem[];
  readonly problemCount: number;
  readonly records: number;
  readonly firstSeq: number | undefined;
  readonly lastSeq: number | undefined;
  /** The times when a process began to write. */
  readonly starts: number;
  /** Records that were lost because they could not be written in time, as the log itself says. */
  readonly dropped: number;
  /** Numbers of the first records of calls that have no record of their end, up to a limit. */
  readonly unended: readonly number[];
  /** True if the last line is unfinished: it is being written, or its process has died. */
  readonly isTorn: boolean;
}

/** The expectations of {@link verifyAudit}. */
export interface AuditExpectation {
  readonly keys: readonly AuditKey[];
  /** The signed head; undefined if there is none to compare with. */
  readonly head: Head | undefined;
  /** Accepts that earlier records are in other files. */
  readonly isPart: boolean;
}

const MAX_PROBLEMS = 20;
const MAX_UNENDED = 1_000;
/** A longer line is no record. */
const MAX_LINE_CHARS = 2_200_000;

/**
 * Reads records, in the order of their files, and checks that none was changed, removed, added or moved.
 *
 * @throws an error of the system if a file cannot be read.
 */
export async function verifyAudit(
  files: AsyncIterable<string> | Iterable<string>,
  expected: AuditExpectation,
): Promise<AuditReport> {
  const check = new ChainCheck(expected);
  for await (const file of files) {
    const oddKind = await oddKindOf(file);
    check.beginFile(file, oddKind);
    if (oddKind !== undefined) continue;
    for await (const { text, isWhole } of linesOf(file)) check.line(text, isWhole);
  }
  return check.end();
}

/**
 * Returns the kind of a file that has no records, such as `a directory`; undefined for a regular file. Opening a pipe would wait for its
 * writer.
 *
 * @throws an error of the system if there is nothing at the path.
 */
export async function oddKindOf(path: string): Promise<string | undefined> {
  const stats = await stat(path);
  if (stats.isFile()) return undefined;
  if (stats.isDirectory()) return 'a directory';
  if (stats.isFIFO()) return 'a pipe';
  return stats.isSocket() ? 'a socket' : 'a device';
}

/** Checks the lines of an audit log one after the other. */
class ChainCheck {
  readonly #expected: AuditExpectation;
  readonly #problems: AuditProblem[] = [];
  #problemCount = 0;
  readonly #files: string[] = [];
  #file = '';
  #line = 0;
  /** Number of the first record that the name of the file tells; undefined if it is not a renamed one, or was compared. */
  #named: number | undefined;
  #records = 0;
  #firstSeq: number | undefined;
  /** Records before the first one that may never have arrived, as it says. */
  #lostBeforeFirst = 0;
  /** Records before the first one that its process has missed, as it says. */
  #missingBeforeFirst = 0;
  #last: ChainedLine | undefined;
  #key: AuditKey | undefined;
  #oldest = 1;
  #starts = 0;
  #dropped = 0;
  #isTorn = false;
  /** Number of a line that is no record. A process may have died while it wrote it to stdout, as the next record then says. */
  #strayLine: number | undefined;
  readonly #begun = new Set<number>();

  constructor(expected: AuditExpectation) {
    this.#expected = expected;
  }

  /** @param oddKind see {@link oddKindOf}. */
  beginFile(file: string, oddKind?: string): void {
    if (this.#isTorn) this.#report('the last line is unfinished, and another file follows');
    this.#endFile();
    this.#isTorn = false;
    this.#files.push(file);
    this.#file = file;
    this.#line = 0;
    this.#named = oddKind === undefined ? seqInName(file) : undefined;
    if (oddKind !== undefined) this.#report(`this is ${oddKind}, and no file of records`);
  }

  #endFile(): void {
    this.#reportStray();
    this.#line = 0;
    if (this.#named !== undefined) this.#report('the file has the name of a renamed one, and no records');
  }

  line(text: string, isWhole: boolean): void {
    this.#line++;
    if (!isWhole) {
      this.#isTorn = true;
      return;
    }
    const record = splitLine(text);
    if (record === undefined) {
      this.#reportStray();
      this.#strayLine = this.#line;
      return;
    }
    this.#records++;
    if (this.#named !== undefined && this.#named !== record.seq) {
      this.#report(`the name of the file tells record ${this.#named}, and it begins with record ${record.seq}`);
    }
    this.#named = undefined;
    const fields = fieldsOf(text);
    if (unconfirmedIn(fields) > 0) this.#strayLine = undefined;
    this.#reportStray();
    const isSegment = fields['kind'] === 'started' || fields['kind'] === 'rotated';
    if (this.#line === 1 && !isSegment) this.#report('the beginning of the file is missing');
    if (isSegment) this.#beginSegment(fields);
    this.#checkChain(record, fields);
    this.#count(record.seq, fields);
    this.#last = record;
  }

  #reportStray(): void {
    if (this.#strayLine !== undefined) this.#report('this line is no record', this.#strayLine);
    this.#strayLine = undefined;
  }

  #beginSegment(fields: Fields): void {
    this.#key = this.#expected.keys.find(({ id }) => id === fields['key']);
    if (this.#key === undefined) this.#report(`its key ${shown(fields['key'])} is not known`);
    if (typeof fields['oldest'] === 'number') this.#oldest = Math.max(this.#oldest, fields['oldest']);
    if (fields['kind'] === 'started') this.#starts++;
    if (fields['forged'] === true) {
      this.#report('the process that wrote this line found the records or the head before it removed or changed');
    }
  }

  #checkChain(record: ChainedLine, fields: Fields): void {
    const { seq } = record;
    const before = this.#last;
    const gap = before === undefined ? 0 : seq - before.seq - 1;
    // The process before has died while it sent these records, as the next one found by its head.
    const lostBefore = unconfirmedIn(fields);
    const isLost = gap > 0 && gap <= lostBefore;
    if (before === undefined) {
      [this.#firstSeq, this.#lostBeforeFirst] = [seq, lostBefore];
      if (typeof fields['missing'] === 'number') this.#missingBeforeFirst = fields['missing'];
    } else if (gap < 0) this.#report(`record ${seq} comes after record ${before.seq}`);
    else if (isLost) this.#dropped += gap;
    else if (gap > 0) this.#report(`${missing(before.seq + 1, seq - 1)} before this line`);
    if (this.#key === undefined) return;
    // The first record of all files, and one after lost ones, names the MAC of one that is not there.
    const previousMac = (isLost ? undefined : before?.mac) ?? previousOf(record) ?? NO_MAC;
    if (isChained(this.#key, previousMac, record)) return;
    // The chain goes on with the MAC that the line has, so that each change is reported once.
    this.#report(`record ${seq} was changed, or does not follow the record before it`);
  }

  #count(seq: number, { kind, begun, count }: Fields): void {
    if (kind === 'begun' && this.#begun.size < MAX_UNENDED) this.#begun.add(seq);
    if (kind === 'request' && typeof begun === 'number') this.#begun.delete(begun);
    if (kind === 'dropped' && typeof count === 'number') this.#dropped += count;
  }

  end(): AuditReport {
    const { head, isPart } = this.#expected;
    if (this.#strayLine !== undefined && head?.confirmed !== undefined) {
      this.#isTorn = true;
      this.#strayLine = undefined;
    }
    this.#endFile();
    const oldest = Math.max(this.#oldest, head?.oldest ?? 1);
    const firstSeq = this.#firstSeq ?? 0;
    if (firstSeq - this.#lostBeforeFirst > oldest && !isPart) {
      this.#report(`${missing(oldest, firstSeq - 1)} before the first file`);
    } else if (this.#missingBeforeFirst > 0) {
      this.#report(
        `${missing(firstSeq - this.#missingBeforeFirst, firstSeq - 1)} before the first file, as its first record says`,
      );
    }
    const lastSeq = this.#last?.seq ?? 0;
    const confirmed = head?.confirmed ?? head?.seq ?? 0;
    if (confirmed > lastSeq) {
      this.#report(
        `${missing(lastSeq + 1, confirmed)} at the end: the signed head names record ${confirmed} as the last one`,
      );
    }
    if (head !== undefined && head.seq === lastSeq && head.mac !== (this.#last?.mac ?? NO_MAC)) {
      this.#report(`record ${lastSeq} is not the one that the signed head names`);
    }
    return {
      files: this.#files,
      problems: this.#problems,
      problemCount: this.#problemCount,
      records: this.#records,
      firstSeq: this.#firstSeq,
      lastSeq: this.#last?.seq,
      starts: this.#starts,
      dropped: this.#dropped,
      unended: [...this.#begun],
      isTorn: this.#isTorn,
    };
  }

  #report(message: string, line = this.#line): void {
    this.#problemCount++;
    if (this.#problems.length < MAX_PROBLEMS) this.#problems.push({ file: this.#file, line, message });
  }
}

type Fields = Readonly<Record<string, unknown>>;

function fieldsOf(text: string): Fields {
  const value = jsonOf(text);
  return isRecord(value) ? value : {};
}

/** Returns the number of records of an earlier process that may never have arrived, if a record says so; else 0. */
function unconfirmedIn({ kind, unconfirmed }: Fields): number {
  return kind === 'started' && typeof unconfirmed === 'number' ? unconfirmed : 0;
}

function shown(value: unknown): string {
  return typeof value === 'string' ? JSON.stringify(value.slice(0, 32)) : '(none)';
}

function missing(from: number, to: number): string {
  return from === to ? `record ${from} is missing` : `records ${from} to ${to} are missing`;
}

/** Yields the lines of a file exactly as they are; `isWhole` is false for a last one without a line break. */
async function* linesOf(file: string): AsyncGenerator<{ readonly text: string; readonly isWhole: boolean }> {
  let rest = '';
  for await (const chunk of createReadStream(file)) {
    const bytes: unknown = chunk;
    if (!Buffer.isBuffer(bytes)) continue;
    // Each character stands for one byte.
    const [first = '', ...lines] = bytes.toString('latin1').split('\n');
    rest += first;
    if (lines.length === 0) {
      // A line without an end is not kept in memory.
      if (rest.length > MAX_LINE_CHARS) rest = rest.slice(0, MAX_LINE_CHARS);
      continue;
    }
    yield { text: decoded(rest), isWhole: true };
    rest = lines.pop() ?? '';
    for (const line of lines) yield { text: decoded(line), isWhole: true };
  }
  if (rest !== '') yield { text: rest, isWhole: false };
}

/** Returns the text of the bytes of a line; empty, and so no record, if they are no UTF-8. A decoder would hide that change. */
function decoded(line: string): string {
  const bytes = Buffer.from(line, 'latin1');
  return isUtf8(bytes) ? bytes.toString('utf8') : '';
}
