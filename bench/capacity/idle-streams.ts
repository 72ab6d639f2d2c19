import { dialectOf } from '../dialect.ts';
import { modernRequest } from '../wire.ts';
import { HeldStream, type StreamOptions, type StreamWatch } from './held-stream.ts';
import type { IdleJob, IdleReport } from './stream-job.ts';

const AT_ONCE = 40;

/** Opens a session with its GET stream. */
async function openGetStream(options: StreamOptions, watch: StreamWatch): Promise<HeldStream> {
  const stream = new HeldStream(options, watch);
  const [hello = '', ready = ''] = dialectOf('2025-11-25').opening;
  const session = await stream.request(hello);
  if (session === undefined) throw new Error('initialize gave no session');
  await stream.request(ready, session);
  await stream.get(session);
  return stream;
}

async function openListenStream(options: StreamOptions, watch: StreamWatch, id: number): Promise<HeldStream> {
  const stream = new HeldStream(options, watch);
  const { message, headers } = modernRequest(id, 'subscriptions/listen', { notifications: { toolsListChanged: true } });
  await stream.post(JSON.stringify(message), headers);
  return stream;
}

/** Many streams on which nothing happens. */
export class IdleStreams {
  readonly #job: IdleJob;
  /** The streams, and when each got data last. */
  readonly #open = new Map<number, number>();
  readonly #dropped = new Map<string, number>();
  #chunks = 0;
  #bytes = 0;
  #longestMs = 0;

  constructor(job: IdleJob) {
    this.#job = job;
  }

  /** @throws {Error} if a stream is refused. */
  async open(): Promise<void> {
    const { gets, listens } = this.#job;
    const total = gets + listens;
    for (let index = 0; index < total; index += AT_ONCE) {
      const count = Math.min(AT_ONCE, total - index);
      await Promise.all(Array.from({ length: count }, (_, offset) => this.#openOne(index + offset)));
    }
  }

  /** Both kinds are opened in turn. */
  async #openOne(index: number): Promise<void> {
    const { url, authorizations, gets, listens } = this.#job;
    const options = { url: new URL(url), authorization: authorizations[index % authorizations.length] ?? '' };
    const watch: StreamWatch = {
      onData: ({ length }) => this.#onData(index, length),
      onEnd: (reason) => {
        this.#open.delete(index);
        this.#dropped.set(reason, (this.#dropped.get(reason) ?? 0) + 1);
      },
    };
    const isGet = Math.floor(((index + 1) * gets) / (gets + listens)) > Math.floor((index * gets) / (gets + listens));
    await (isGet ? openGetStream(options, watch) : openListenStream(options, watch, index));
    this.#open.set(index, performance.now());
  }

  #onData(index: number, bytes: number): void {
    const nowMs = performance.now();
    this.#longestMs = Math.max(this.#longestMs, nowMs - (this.#open.get(index) ?? nowMs));
    this.#open.set(index, nowMs);
    this.#chunks++;
    this.#bytes += bytes;
  }

  report(): IdleReport {
    const nowMs = performance.now();
    const waiting = [...this.#open.values()].map((lastMs) => nowMs - lastMs);
    return {
      open: this.#open.size,
      dropped: Object.fromEntries(this.#dropped),
      chunks: this.#chunks,
      bytes: this.#bytes,
      longestSilenceMs: waiting.reduce((longest, ms) => Math.max(longest, ms), this.#longestMs),
    };
  }
}
