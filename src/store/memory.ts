import { appendFile, readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { z } from 'zod';
import type { SessionRecord, SessionStore } from './session-store.ts';
import { isCode, makeStateDir, replaceFile } from './state-file.ts';

/** Longer than any session may live. */
const LONGEST_MS = 366 * 24 * 3_600_000;
/** A journal shorter than this is left alone. */
const COMPACT_LINES = 1_000;

const entrySchema = z.union([
  z.object({ id: z.string(), endedUntilMs: z.number() }),
  z.object({
    id: z.string(),
    savedAtMs: z.number(),
    record: z.object({ logLevel: z.string().exactOptional(), subscriptions: z.array(z.string()) }),
  }),
]);

type Entry = z.output<typeof entrySchema>;

function lineOf(entry: Entry): string {
  return `${JSON.stringify(entry)}\n`;
}

function parseLine(line: string): Entry | undefined {
  try {
    return entrySchema.parse(JSON.parse(line));
  } catch {
    // The process died, or the disk was full, in the middle of writing it. Nobody was told that it is saved.
    return undefined;
  }
}

async function readJournal(path: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (thrown) {
    if (isCode(thrown, 'ENOENT')) return '';
    throw thrown;
  }
}

/**
 * Sessions in memory, journaled to a file where there is one. What was saved outlives the process, however that ends; it is not
 * forced to the disk, so a machine that loses power may forget the last seconds.
 */
class MemorySessionStore implements SessionStore {
  readonly #journal: string | undefined;
  readonly #maxAgeMs: number;
  readonly #entries = new Map<string, Entry>();
  #lines = 0;
  #compactAt = COMPACT_LINES;
  #isTorn = false;
  /** The last write; never rejects. */
  #tail: Promise<void> = Promise.resolve();

  constructor(journal: string | undefined, maxAgeMs: number) {
    this.#journal = journal;
    this.#maxAgeMs = maxAgeMs;
  }

  async restore(): Promise<void> {
    if (this.#journal === undefined) return;
    const text = await readJournal(this.#journal);
    for (const line of text.split('\n')) {
      const entry = line === '' ? undefined : parseLine(line);
      if (entry !== undefined) this.#entries.set(entry.id, entry);
    }
    if (text !== '') await this.#compact();
  }

  async load(id: string): Promise<SessionRecord | undefined> {
    const entry = this.#entries.get(id);
    return entry !== undefined && 'record' in entry ? entry.record : undefined;
  }

  async save(id: string, record: SessionRecord): Promise<void> {
    if (this.#hasEnded(id)) return;
    const kept = { ...record, subscriptions: [...record.subscriptions] };
    await this.#put({ id, savedAtMs: Date.now(), record: kept });
  }

  async end(id: string, untilMs: number): Promise<void> {
    await this.#put({ id, endedUntilMs: untilMs });
  }

  async isEnded(id: string): Promise<boolean> {
    return this.#hasEnded(id);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#tail;
  }

  #hasEnded(id: string): boolean {
    const entry = this.#entries.get(id);
    return entry !== undefined && 'endedUntilMs' in entry && !this.#isOver(entry);
  }

  #isOver(entry: Entry): boolean {
    const untilMs = 'endedUntilMs' in entry ? entry.endedUntilMs : entry.savedAtMs + this.#maxAgeMs;
    return Date.now() >= untilMs;
  }

  #put(entry: Entry): Promise<void> {
    this.#entries.set(entry.id, entry);
    const written = this.#tail.then(() => this.#write(entry));
    this.#tail = written.catch(() => undefined);
    return written;
  }

  async #write(entry: Entry): Promise<void> {
    if (this.#lines++ >= this.#compactAt) await this.#compact();
    else if (this.#journal !== undefined) await this.#append(this.#journal, entry);
  }

  async #append(journal: string, entry: Entry): Promise<void> {
    // By name and not through a file kept open: a successor may have rewritten the journal while we end.
    const line = this.#isTorn ? `\n${lineOf(entry)}` : lineOf(entry);
    this.#isTorn = true;
    await appendFile(journal, line, { mode: 0o600 });
    this.#isTorn = false;
  }

  /** Forgets what is over, and writes what is left. */
  async #compact(): Promise<void> {
    for (const [id, entry] of this.#entries) {
      if (this.#isOver(entry)) this.#entries.delete(id);
    }
    this.#lines = this.#entries.size;
    this.#compactAt = Math.max(COMPACT_LINES, 2 * this.#lines);
    if (this.#journal !== undefined) {
      await replaceFile(this.#journal, [...this.#entries.values()].map(lineOf).join(''));
      this.#isTorn = false;
    }
  }
}

/**
 * @param stateDir where the journal is; without it, nothing outlives the process.
 * @param maxAgeMs how long a session's id works at most: its record is dropped when nobody has changed it for that long.
 */
export async function createMemorySessionStore(
  stateDir: string | undefined,
  maxAgeMs: number = LONGEST_MS,
): Promise<SessionStore> {
  if (stateDir !== undefined) await makeStateDir(stateDir);
  const store = new MemorySessionStore(stateDir === undefined ? undefined : join(stateDir, 'sessions.jsonl'), maxAgeMs);
  await store.restore();
  return store;
}
