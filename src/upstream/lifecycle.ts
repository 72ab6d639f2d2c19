import { backoffMs } from './rpc/backoff.ts';

/** The state of one upstream, in one word for people and metrics. */
export const PHASES = ['configured', 'starting', 'ready', 'degraded', 'failed', 'stopped'] as const;
export type Phase = (typeof PHASES)[number];

/**
 * How an upstream is doing, as all its connections together tell.
 *
 * `degraded` still serves: it lost a connection or a list lately. `failed` is not tried again before `retryAtMs`.
 */
export interface Lifecycle {
  readonly phase: Phase;
  /** Why, in words that clients may read, where the phase is not self-explaining. */
  readonly reason: string | undefined;
  /** More of it, for operators alone: paths, the last words on stderr. */
  readonly detail: string | undefined;
  /** When it failed or crashed lately, in ms of a monotonic clock. */
  readonly failuresMs: readonly number[];
  /** Failures since it was last ready. */
  readonly attempts: number;
  readonly retryAtMs: number;
}

export type LifecycleEvent =
  | { readonly kind: 'starting' }
  | { readonly kind: 'connected' }
  | {
      readonly kind: 'start-failed';
      readonly reason: string;
      readonly detail: string | undefined;
      readonly permanent: boolean;
      /** Whether it is a server that runs elsewhere. An attempt costs a connection there, and not a process. */
      readonly isRemote?: boolean;
      /** When the attempt began. Attempts side by side fail of one cause, and that counts once. */
      readonly begunMs: number;
    }
  /** A connection ended by itself; `early` when it had not answered a single call. */
  | { readonly kind: 'lost'; readonly reason: string; readonly detail: string | undefined; readonly early: boolean }
  | { readonly kind: 'list-failed'; readonly reason: string }
  | { readonly kind: 'listed' }
  | { readonly kind: 'stopped' };

/** What a request that needs a new connection should do now. */
export type Admission =
  | { readonly kind: 'go' }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'refuse'; readonly reason: string; readonly retryAfterMs: number | undefined };

/** This many failures of a process within this time are a crash loop, and end all attempts for the pause. */
const LOOP_FAILURES = 5;
const LOOP_WINDOW_MS = 60_000;
const LOOP_PAUSE_MS = 60_000;
const SAME_CAUSE_MS = 100;

/** A request waits out a backoff this short instead of failing. */
const PATIENCE_MS = 2_000;

export const CONFIGURED: Lifecycle = {
  phase: 'configured',
  reason: undefined,
  detail: undefined,
  failuresMs: [],
  attempts: 0,
  retryAtMs: 0,
};

interface Failure {
  readonly reason: string;
  readonly detail: string | undefined;
  readonly isRemote?: boolean;
}

function failed(
  state: Lifecycle,
  phase: Phase,
  { reason, detail, isRemote = false }: Failure,
  nowMs: number,
  random: number,
): Lifecycle {
  // Many connections that end in the same moment end of one cause, and that counts once.
  if (nowMs - (state.failuresMs.at(-1) ?? -SAME_CAUSE_MS) < SAME_CAUSE_MS) return { ...state, phase, reason, detail };
  const failuresMs = [...state.failuresMs.filter((atMs) => nowMs - atMs < LOOP_WINDOW_MS), nowMs];
  const attempts = state.attempts + 1;
  if (failuresMs.length >= LOOP_FAILURES && !isRemote) {
    const loop = `crash loop: failed ${failuresMs.length} times within a minute, next try in a minute; last: ${reason}`;
    return { phase: 'failed', reason: loop, detail, failuresMs, attempts, retryAtMs: nowMs + LOOP_PAUSE_MS };
  }
  return { phase, reason, detail, failuresMs, attempts, retryAtMs: nowMs + backoffMs(attempts, random) };
}

/** Pure: the time (ms of a monotonic clock) and a random number in [0, 1) come in as arguments. */
export function step(state: Lifecycle, event: LifecycleEvent, nowMs: number, random: number): Lifecycle {
  if (state.phase === 'stopped') return state;
  switch (event.kind) {
    case 'starting':
      return isUp(state) ? state : { ...state, phase: 'starting' };
    case 'connected':
      return { ...state, phase: 'ready', reason: undefined, detail: undefined, attempts: 0, retryAtMs: 0 };
    case 'start-failed':
      return event.permanent
        ? { ...state, phase: 'failed', reason: event.reason, retryAtMs: Number.POSITIVE_INFINITY }
        : event.begunMs < (state.failuresMs.at(-1) ?? -1)
          ? { ...state, phase: 'failed', reason: event.reason, detail: event.detail }
          : failed(state, 'failed', event, nowMs, random);
    case 'lost':
      // A server that worked and then died may start again at once; one that dies young may be a crash loop.
      return event.early
        ? failed(state, 'degraded', event, nowMs, random)
        : { ...state, phase: 'degraded', reason: event.reason, detail: event.detail };
    case 'list-failed':
      return { ...state, phase: 'degraded', reason: event.reason, detail: undefined };
    case 'listed':
      return state.phase === 'degraded' ? { ...state, phase: 'ready', reason: undefined, detail: undefined } : state;
    case 'stopped':
      return { ...state, phase: 'stopped', reason: undefined, detail: undefined };
  }
}

/** Whether the upstream serves requests now. */
export function isUp({ phase }: Lifecycle): boolean {
  return phase === 'ready' || phase === 'degraded';
}

/** Sums up the states of the two eras. An era that is not used says nothing. */
export function overall(legacy: Lifecycle, modern: Lifecycle): Lifecycle {
  if (isUnused(modern)) return legacy;
  if (isUnused(legacy) || legacy.phase === modern.phase) return modern;
  const serving = [legacy, modern].find(isUp);
  if (serving === undefined) return legacy.phase === 'failed' ? legacy : modern;
  const other = serving === legacy ? modern : legacy;
  if (other.phase === 'starting') return serving;
  const reason =
    other.phase === 'failed'
      ? `for clients of the ${other === modern ? 'modern' : 'legacy'} era: ${other.reason}`
      : other.reason;
  return other.phase === 'ready' ? serving : { ...serving, phase: 'degraded', reason, detail: other.detail };
}

function isUnused({ phase }: Lifecycle): boolean {
  return phase === 'configured';
}

export function admit(state: Lifecycle, nowMs: number): Admission {
  if (state.phase === 'stopped') return { kind: 'refuse', reason: 'stopped', retryAfterMs: undefined };
  const ms = state.retryAtMs - nowMs;
  if (ms <= 0) return { kind: 'go' };
  if (ms <= PATIENCE_MS) return { kind: 'wait', ms };
  const retryAfterMs = Number.isFinite(ms) ? Math.ceil(ms) : undefined;
  return { kind: 'refuse', reason: state.reason ?? state.phase, retryAfterMs };
}
