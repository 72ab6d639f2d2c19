import { setTimeout as delay } from 'node:timers/promises';
import { dialectOf } from '../dialect.ts';
import { HeldStream } from './held-stream.ts';
import { END_OF_TEXT } from './large-answers.ts';
import type { SlowJob, SlowReport } from './stream-job.ts';

/** The interval at which a slow reader reads. */
const TICK_MS = 100;
const AGAIN_MS = 1_000;
const MIB = 1_048_576;
/** Holds {@link END_OF_TEXT} and what follows it in an answer. */
const TAIL_BYTES = 256;

interface Reader {
  readonly tool: string;
  readonly bytesPerSecond: number;
  readonly authorization: string;
}

/** Clients that call tools with large answers, and read them slowly. */
export class SlowReaders {
  readonly #job: SlowJob;
  readonly #begun = new Map<string, number>();
  readonly #whole = new Map<string, number>();
  readonly #ended = new Map<string, number>();
  #bytes = 0;
  #isStopped = false;

  constructor(job: SlowJob) {
    this.#job = job;
  }

  /** Starts all readers. */
  start(): void {
    let index = 0;
    const { authorizations } = this.#job;
    for (const { count, tool, bytesPerSecond } of this.#job.readers) {
      for (let reader = 0; reader < count; reader++) {
        const authorization = authorizations[index++ % authorizations.length] ?? '';
        void this.#repeat({ tool, bytesPerSecond, authorization });
      }
    }
  }

  async #repeat(reader: Reader): Promise<void> {
    while (!this.#isStopped) {
      try {
        await this.#call(reader);
      } catch (thrown) {
        increment(this.#ended, `${reader.tool}: ${String(thrown).slice(0, 300)}`);
      }
      await delay(AGAIN_MS);
    }
  }

  /** Lets each reader end after its call. */
  stop(): void {
    this.#isStopped = true;
  }

  /** Opens a session, makes one call, and reads its answer slowly until its end has come. */
  async #call({ tool, bytesPerSecond, authorization }: Reader): Promise<void> {
    const answer = new SlowAnswer();
    const stream = new HeldStream(
      { url: new URL(this.#job.url), authorization },
      {
        onData: (chunk) => {
          this.#bytes += chunk.length;
          if (!answer.take(chunk)) stream.socket.pause();
        },
        onEnd: (reason) => answer.fail(reason),
      },
    );
    const [hello = '', ready = ''] = dialectOf('2025-11-25').opening;
    const session = await stream.request(hello);
    if (session === undefined) throw new Error('initialize gave no session');
    await stream.request(ready, session);
    const call = { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: tool, arguments: {} } };
    increment(this.#begun, tool);
    const ticks = setInterval(() => {
      if (answer.allow((bytesPerSecond * TICK_MS) / 1_000)) stream.socket.resume();
    }, TICK_MS);
    try {
      await stream.post(JSON.stringify(call), {}, session);
      await answer.whole;
      increment(this.#whole, tool);
    } finally {
      clearInterval(ticks);
      stream.destroy();
    }
  }

  report(): SlowReport {
    return {
      begun: Object.fromEntries(this.#begun),
      whole: Object.fromEntries(this.#whole),
      ended: Object.fromEntries(this.#ended),
      megabytes: this.#bytes / MIB,
    };
  }
}

function increment(counts: Map<string, number>, key: string): void {
  counts.set(key, (counts.get(key) ?? 0) + 1);
}

/** An answer that is read as fast as its reader allows. */
class SlowAnswer {
  readonly #ended = Promise.withResolvers<void>();
  #read = 0;
  #allowed = 0;
  /** The end of what has come, since {@link END_OF_TEXT} may come in two parts. */
  #tail = '';

  constructor() {
    this.#ended.promise.catch(() => undefined);
  }

  /** Resolves when the end of the text has come. Rejects if the connection ends before. */
  get whole(): Promise<void> {
    return this.#ended.promise;
  }

  /** Returns whether more may be read now. */
  take(chunk: Buffer): boolean {
    this.#read += chunk.length;
    const end = this.#tail + chunk.toString('latin1', Math.max(0, chunk.length - TAIL_BYTES));
    if (end.includes(END_OF_TEXT)) this.#ended.resolve();
    this.#tail = end.slice(-TAIL_BYTES);
    return this.#read < this.#allowed;
  }

  /** Returns whether more may be read now. A chunk may be larger than what was allowed: then none is read for a while. */
  allow(bytes: number): boolean {
    this.#allowed += bytes;
    return this.#read < this.#allowed;
  }

  fail(reason: string): void {
    this.#ended.reject(new Error(`ended after ${Math.round(this.#read / MIB)} MiB: ${reason}`));
  }
}
