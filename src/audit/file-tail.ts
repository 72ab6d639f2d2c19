import type { FileHandle } from 'node:fs/promises';
import { type ChainedLine, splitLine } from './chain.ts';

/** Two records of the greatest size that a config allows. */
const TAIL_BYTES = 2_200_000;
const BEGINNING_BYTES = 64;
/** The record that begins a file describes a process, and is shorter. */
const FIRST_BYTES = 8_192;
const RECORD_START = '{"seq":';
const LINE_BREAK = 0x0a;

/** The end of a file of records. */
export interface FileTail {
  /** Bytes up to the last line break. An unfinished record may follow. */
  readonly wholeBytes: number;
  readonly cutBytes: number;
  /** True if the file does not begin with a record, finished or not. */
  readonly isForeign: boolean;
  /** Number of the first record; undefined if there is none. */
  readonly firstSeq: number | undefined;
  /** The last line; undefined if there is none, or it is no record. */
  readonly last: ChainedLine | undefined;
  /** MAC of the record before the last one; undefined if it is not known. */
  readonly macBefore: string | undefined;
}

/** Reads the end of a file of records. */
export async function readTail(file: FileHandle): Promise<FileTail> {
  const { size } = await file.stat();
  const from = Math.max(0, size - TAIL_BYTES);
  const bytes = await readAt(file, from, size - from);
  const end = bytes.lastIndexOf(LINE_BREAK) + 1;
  const lines = bytes.toString('utf8', 0, Math.max(0, end - 1)).split('\n');
  const last = end === 0 ? undefined : splitLine(lines.at(-1) ?? '');
  const before = lines.length > 1 ? splitLine(lines.at(-2) ?? '')?.mac : undefined;
  const beginning = (await readAt(file, 0, Math.min(size, BEGINNING_BYTES))).toString('latin1');
  const [, firstSeq] = /^\{"seq":(\d{1,15}),/.exec(beginning) ?? [];
  return {
    wholeBytes: from + end,
    cutBytes: size - from - end,
    isForeign: firstSeq === undefined && (end > 0 || !RECORD_START.startsWith(beginning.slice(0, RECORD_START.length))),
    firstSeq: firstSeq === undefined || end === 0 ? undefined : Number(firstSeq),
    last,
    macBefore: before ?? (last === undefined ? undefined : previousOf(last)),
  };
}

/** Reads the first line of a file. Returns undefined if it is not a record that begins a file. */
export async function readFirst(file: FileHandle): Promise<ChainedLine | undefined> {
  const bytes = await readAt(file, 0, FIRST_BYTES);
  const end = bytes.indexOf(LINE_BREAK);
  return end === -1 ? undefined : splitLine(bytes.toString('utf8', 0, end));
}

/** Returns the MAC that the first record of a file names as the one before it. */
export function previousOf({ body }: ChainedLine): string | undefined {
  const [, mac] = /,"previous":"([\w-]{0,64})"/.exec(body) ?? [];
  return mac;
}

async function readAt(file: FileHandle, from: number, length: number): Promise<Buffer> {
  const buffer = Buffer.alloc(length);
  let read = 0;
  while (read < length) {
    const { bytesRead } = await file.read(buffer, read, length - read, from + read);
    if (bytesRead === 0) break;
    read += bytesRead;
  }
  return buffer.subarray(0, read);
}
