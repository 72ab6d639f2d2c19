import * as z from 'zod';

/** Where a peer is found. */
export type Place =
  | { readonly kind: 'stdio'; readonly command: string; readonly args: readonly string[] }
  | { readonly kind: 'http' | 'sse'; readonly url: string };

/** Sessions up to 2025-11-25, or requests of 2026-07-28. */
export type Mode = 'legacy' | 'modern';

export const QUESTIONS = ['elicitation', 'sampling', 'roots'] as const;
export type Question = (typeof QUESTIONS)[number];

export interface ConnectOptions {
  readonly mode: Mode;
  /** What the client can be asked. It says its name is Ada, the model says Paris, and its root is file:///peer. */
  readonly declares: readonly Question[];
}

export const HEARD = z.object({ method: z.string(), params: z.record(z.string(), z.unknown()).optional() });
export type Heard = z.infer<typeof HEARD>;

export const CALLED = z.object({
  text: z.string(),
  structured: z.unknown(),
  isError: z.boolean(),
  progress: z.array(z.number()),
});
export type Called = z.infer<typeof CALLED>;

export interface CallOptions {
  /** Asks for log messages of a request of 2026-07-28; sessions have `setLevel`. */
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

/** A connected client of any SDK. Texts are those of all content blocks. */
export interface PeerClient extends AsyncDisposable {
  readonly revision: string;
  /** The first notification of this kind that `is` takes, past or to come. @throws {Error} when it does not come. */
  hear(method: string, limitMs: number, is?: (heard: Heard) => boolean): Promise<Heard>;
  tools(): Promise<readonly string[]>;
  call(name: string, args?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<Called>;
  resources(): Promise<readonly string[]>;
  templates(): Promise<readonly string[]>;
  read(uri: string): Promise<string>;
  prompts(): Promise<readonly string[]>;
  prompt(name: string, args: Readonly<Record<string, string>>): Promise<string>;
  complete(completion: Completion): Promise<readonly string[]>;
  setLevel(level: 'debug'): Promise<void>;
  /** Subscribes to a resource, or to the lists where no URI is given. */
  watch(uri?: string): Promise<void>;
  ping(): Promise<void>;
}
