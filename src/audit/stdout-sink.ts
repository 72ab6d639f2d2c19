import { isCode } from '../thrown.ts';
import { write } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import type { AuditSink, FoundRecords } from './audit-sink.ts';
import type { AuditKey } from './chain.ts';
import { StateHead } from './state-head.ts';

const STDOUT = 1;
const FULL_PIPE_PAUSE_MS = 10;

/** Writes records to stdout. The signed head is in the state directory, so that the next process continues the chain. */
export class StdoutSink implements AuditSink {
  readonly found: FoundRecords;
  readonly savesHeadFirst = true;
  readonly #head: StateHead;
  readonly #fd: number;
  /** Bytes of the lines of a failed attempt that are out. The next attempt has the same lines. */
  #written = 0;
  /** True if the process before may have died in the middle of a line. */
  #isAfterDeath: boolean;

  private constructor(head: StateHead, fd: number) {
    this.#head = head;
    this.found = head.found;
    this.#fd = fd;
    this.#isAfterDeath = head.found.confirmed !== undefined;
  }

  /** @param fd file descriptor that stands for stdout. @throws {StartError} if another process uses the state directory for it. */
  static async open(stateDir: string, keys: readonly AuditKey[], fd = STDOUT): Promise<StdoutSink> {
    return new StdoutSink(await StateHead.open(stateDir, 'stdout', keys), fd);
  }

  /** True if a part of the lines is out. */
  get isInDoubt(): boolean {
    return this.#written > 0;
  }

  async append(lines: string): Promise<void> {
    if (this.#isAfterDeath) await this.#write(Buffer.from('\n'));
    this.#isAfterDeath = false;
    await this.#write(Buffer.from(lines));
  }

  async #write(bytes: Buffer): Promise<void> {
    // Written bytes cannot be taken back, so the next attempt goes on behind them.
    while (this.#written < bytes.length) {
      const count = await writeSome(this.#fd, bytes.subarray(this.#written));
      this.#written += count;
      if (count === 0) await sleep(FULL_PIPE_PAUSE_MS);
    }
    this.#written = 0;
  }

  saveHead(text: string): Promise<void> {
    return this.#head.save(text);
  }

  async close(): Promise<void> {
    await this.#head.release();
  }
}

/** Writes the beginning of these bytes. Resolves with their number, 0 if the reader of the pipe is slow. */
function writeSome(fd: number, bytes: Buffer): Promise<number> {
  return new Promise((resolve, reject) => {
    write(fd, bytes, (error, count) => {
      if (error === null) resolve(count);
      else if (isCode(error, 'EAGAIN')) resolve(0);
      else reject(error);
    });
  });
}
