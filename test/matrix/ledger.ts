import { appendFileSync, closeSync, openSync, readSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { PATIENCE_MS } from '../support/patience.ts';
import { object, string, parse } from './json.ts';

/**
 * A record that an upstream writes past the gateway: an action, or a received message that its revision does not
 * define.
 */
export interface Entry {
  readonly kind: string;
  /** The nonce of the call or the URI of the subscription; empty if there is none. */
  readonly about: string;
  readonly detail: string;
}

const POLL_MS = 5;

function fileIn(dir: string): string {
  return join(dir, 'ledger.jsonl');
}

export class LedgerWriter {
  readonly #file: string;

  constructor(dir: string) {
    this.#file = fileIn(dir);
  }

  note(kind: string, about: string, detail = ''): void {
    appendFileSync(this.#file, `${JSON.stringify({ kind, about, detail })}\n`);
  }

  violation(detail: string): void {
    this.note('violation', '', detail);
  }
}

/** The records of all processes of one upstream, in order. */
export class Ledger {
  readonly #file: string;
  readonly #entries: Entry[] = [];
  #offset = 0;
  #rest = '';

  constructor(dir: string) {
    this.#file = fileIn(dir);
    writeFileSync(this.#file, '', { flag: 'a' });
  }

  get entries(): readonly Entry[] {
    const fd = openSync(this.#file, 'r');
    const buffer = Buffer.alloc(65_536);
    for (;;) {
      const bytes = readSync(fd, buffer, 0, buffer.length, this.#offset);
      if (bytes === 0) break;
      this.#offset += bytes;
      this.#rest += buffer.toString('utf8', 0, bytes);
    }
    closeSync(fd);
    const lines = this.#rest.split('\n');
    this.#rest = lines.pop() ?? '';
    for (const line of lines) {
      const { kind, about, detail } = object(parse(line));
      this.#entries.push({ kind: string(kind), about: string(about), detail: string(detail) });
    }
    return this.#entries;
  }

  /** Resolves with the first such record from `since` on. @throws {Error} if none is written in time. */
  async wait(kinds: readonly string[], about: string, since = 0): Promise<Entry> {
    const deadline = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = this.entries.slice(since).find((entry) => kinds.includes(entry.kind) && entry.about === about);
      if (found !== undefined) return found;
      if (performance.now() > deadline) throw new Error(`the upstream never saw: ${kinds.join(' or ')}`);
      await delay(POLL_MS);
    }
  }
}
