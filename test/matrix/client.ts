/** A client of exactly one revision, by hand. What differs between the eras is behind these few words. */
import { setTimeout as delay } from 'node:timers/promises';
import type { Id, Members } from './json.ts';
import type { Revision } from './words.ts';

export interface Heard {
  readonly method: string;
  readonly params: Members;
}

export interface Reply {
  readonly result: Members | undefined;
  readonly error: Members | undefined;
  /** What was said between the request and its answer that belongs to it. */
  readonly heard: readonly Heard[];
}

/** Answers a question of the server. */
export type Asked = (method: string, params: Members) => Members;

export interface CallOptions {
  readonly progressToken?: Id;
  readonly logLevel?: string;
  readonly asked?: Asked;
}

export interface Call {
  readonly reply: Promise<Reply>;
  /** So far. */
  readonly heard: readonly Heard[];
  /** As the revision says it. */
  cancel(): void;
  /** Breaks the connection that waits for the answer. */
  disconnect(): void;
}

/** What a broken connection means to a call. */
export type Disconnect = 'the call goes on' | 'the call is cancelled' | 'the session ends';

export interface Client {
  readonly revision: Revision;
  readonly capabilities: Members;
  readonly instructions: string | undefined;
  readonly disconnectMeans: Disconnect;
  /** Notifications that belong to no request, in order. */
  readonly news: News;
  /** What the revision does not know and was sent all the same. */
  readonly violations: string[];
  call(method: string, params: Members, options?: CallOptions): Call;
  /** Comes back for the answer of a call whose connection broke. */
  resume(call: Call): void;
  /** From now on hears of these resources, and of changed lists. */
  watch(uris: readonly string[]): Promise<{ end(): Promise<void> }>;
  /** Tells of changed roots, where the revision has words for it. */
  rootsChanged(): Promise<boolean>;
  close(): Promise<void>;
}

const POLL_MS = 5;
const NEWS_MS = 5_000;

export class News {
  readonly heard: Heard[] = [];

  /** The first that fits among those from `since` on. @throws {Error} where none comes in time. */
  async wait(method: string, fits: (params: Members) => boolean, since = 0): Promise<Members> {
    const deadline = performance.now() + NEWS_MS;
    for (;;) {
      const found = this.heard.slice(since).find((one) => one.method === method && fits(one.params));
      if (found !== undefined) return found.params;
      if (performance.now() > deadline) throw new Error(`${method} was never heard`);
      await delay(POLL_MS);
    }
  }
}
