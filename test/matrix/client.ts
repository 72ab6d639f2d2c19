/** A client of exactly one revision, without an SDK. This interface hides the differences between the eras. */
import { setTimeout as delay } from 'node:timers/promises';
import { PATIENCE_MS } from '../support/patience.ts';
import type { Id, Members } from './json.ts';
import type { Revision } from './words.ts';

export interface Received {
  readonly method: string;
  readonly params: Members;
}

export interface Reply {
  readonly result: Members | undefined;
  readonly error: Members | undefined;
  /** The messages about this request before its answer. */
  readonly received: readonly Received[];
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
  /** The messages about this call so far. */
  readonly received: readonly Received[];
  /** Cancels the call as the revision defines it. */
  cancel(): void;
  /** Breaks the connection that waits for the answer. */
  disconnect(): void;
}

/** The effect of a broken connection on a call. */
export type Disconnect = 'the call goes on' | 'the call is cancelled' | 'the session ends';

export interface Client {
  readonly revision: Revision;
  readonly capabilities: Members;
  readonly instructions: string | undefined;
  readonly disconnectMeans: Disconnect;
  /** The notifications that belong to no request, in order. */
  readonly notifications: Notifications;
  /** The received messages that the revision does not define. */
  readonly violations: string[];
  call(method: string, params: Members, options?: CallOptions): Call;
  /** Resumes a call whose connection was broken. */
  resume(call: Call): void;
  /** Subscribes to these resources, and to changes of lists. */
  watch(uris: readonly string[]): Promise<{ end(): Promise<void> }>;
  /** Announces changed roots. Resolves with false if the revision has no such notification. */
  rootsChanged(): Promise<boolean>;
  close(): Promise<void>;
}

const POLL_MS = 5;

export class Notifications {
  readonly received: Received[] = [];

  /** Resolves with the first matching notification from `since` on. @throws {Error} if none arrives in time. */
  async wait(method: string, fits: (params: Members) => boolean, since = 0): Promise<Members> {
    const deadline = performance.now() + PATIENCE_MS;
    for (;;) {
      const found = this.received.slice(since).find((one) => one.method === method && fits(one.params));
      if (found !== undefined) return found.params;
      if (performance.now() > deadline) throw new Error(`${method} was never received`);
      await delay(POLL_MS);
    }
  }
}
