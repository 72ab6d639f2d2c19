import * as z from 'zod';

/** The address at which a client reaches a peer. */
export type Place =
  | { readonly kind: 'stdio'; readonly command: string; readonly args: readonly string[] }
  | { readonly kind: 'http' | 'sse'; readonly url: string };

/** Sessions up to 2025-11-25, or requests of 2026-07-28. */
export type Mode = 'legacy' | 'modern';

export const QUESTIONS = ['elicitation', 'sampling', 'roots'] as const;
export type Question = (typeof QUESTIONS)[number];

export interface ConnectOptions {
  readonly mode: Mode;
  /** The questions that the client answers: its name is Ada, the model says Paris, and its root is file:///peer. */
  readonly declares: readonly Question[];
}

export const NOTIFICATION = z.object({ method: z.string(), params: z.record(z.string(), z.unknown()).optional() });
export type ReceivedNotification = z.infer<typeof NOTIFICATION>;

export const CALLED = z.object({
  text: z.string(),
  structured: z.unknown(),
  isError: z.boolean(),
  progress: z.array(z.number()),
});
export type Called = z.infer<typeof CALLED>;

export interface CallOptions {
  /** Requests log messages for one request of 2026-07-28; sessions have `setLevel`. */
  readonly logLevel?: 'debug';
  readonly signal?: AbortSignal;
}

export interface Completion {
  readonly ref:
    | { readonly type: 'ref/prompt'; readonly name: string }
    | { readonly type: 'ref/resource'; readonly uri: string };
  readonly name: string;
  readonly value: string;
}

/** A connected client of any SDK. `text` joins all content blocks. */
export interface PeerClient extends AsyncDisposable {
  readonly revision: string;
  /** Resolves with the first matching notification, past or future. @throws {Error} if none arrives in time. */
  waitForNotification(
    method: string,
    limitMs: number,
    is?: (notification: ReceivedNotification) => boolean,
  ): Promise<ReceivedNotification>;
  tools(): Promise<readonly string[]>;
  call(name: string, args?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<Called>;
  resources(): Promise<readonly string[]>;
  templates(): Promise<readonly string[]>;
  read(uri: string): Promise<string>;
  prompts(): Promise<readonly string[]>;
  prompt(name: string, args: Readonly<Record<string, string>>): Promise<string>;
  complete(completion: Completion): Promise<readonly string[]>;
  setLevel(level: 'debug'): Promise<void>;
  /** Subscribes to a resource, or to the lists if no URI is given. */
  watch(uri?: string): Promise<void>;
  ping(): Promise<void>;
}
