import type { GatewayError } from '../errors.ts';

/** Work that the gateway may refuse: a call at an upstream, another session, another event stream. */
export type Work = 'call' | 'session' | 'stream';

/** Decides whether the gateway begins further work. What has begun goes on. */
export interface Load {
  /** True if work may be refused. Nearly always false. */
  readonly isHigh: boolean;
  /** Returns the refusal of another piece of work; undefined if it may begin. */
  refusalOf(work: Work): LoadRefusal | undefined;
}

export interface LoadRefusal {
  readonly error: GatewayError;
  /** The time after which the client may try again, in whole seconds. */
  readonly retryAfterSeconds: number;
}
