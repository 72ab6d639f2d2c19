import { backoffMs } from '../rpc/backoff.ts';

/** The states of one upstream, as operators and metrics see them. */
export const PHASES = [
  'configured',
  'starting',
  'ready',
  'degraded',
  'needs-authorization',
  'failed',
  'stopped',
] as const;
export type Phase = (typeof PHASES)[number];

/**
 * The state of an upstream in one era, from the events of all its connections.
 *
 * In `degraded`, the upstream serves clients, but has lost a connection, failed to open a further one, or failed to list. In `failed`, it is
 * not tried again before `retryAtMs`. `needs-authorization` is as `failed`; the cause are the credentials of the gateway, which somebody has to correct.
 */
export interface Lifecycle {
  readonly phase: Phase;
  /** The reason for the phase, as text that clients may read. */
  readonly reason: string | undefined;
  /** Details for operators only, such as paths or the last error on stderr. */
  readonly detail: string | undefined;
  /** The times of recent failures. Monotonic ms. */
  readonly failuresMs: readonly number[];
  /** Number of failures since the phase was last `ready`. */
  readonly attempts: number;
  /** The earliest time of the next attempt. Monotonic ms. */
  readonly retryAtMs: number;
}

/** The extent of a failure: the whole upstream, or one connection, whose credentials were refused or could not be got. */
export type FailureScope = 'upstream' | 'connection';

interface Failure {
  readonly reason: string;
  readonly detail: string | undefined;
  /** True if no process has run: the upstream is remote, or its program cannot be started. Such an attempt costs little. */
  readonly hasNoProcess?: boolean;
  /** True if it took longer than `timeouts.start`, so that it is no crash. */
  readonly isLate?: boolean;
  /** True if other connections are open, whose clients are served. */
  readonly isServing?: boolean;
}

export type LifecycleEvent =
  /** It cannot be used before the config changes. */
  | { readonly kind: 'unusable'; readonly reason: string }
  | { readonly kind: 'starting' }
  | { readonly kind: 'connected' }
  | ({
      readonly kind: 'start-failed';
      readonly scope: FailureScope;
      /** True if the upstream has refused the credentials of the gateway, or the gateway has none. */
      readonly lacksCredentials?: boolean;
      /** Start of the attempt, in monotonic ms. Failures of simultaneous attempts have one cause, so they count as one. */
      readonly startedMs: number;
    } & Failure)
  /** A connection closed unexpectedly; `early`: before it answered a call. */
  | ({ readonly kind: 'lost'; readonly early: boolean } & Failure)
  | { readonly kind: 'list-failed'; readonly reason: string }
  /** A request on an open connection was refused for the credentials of the gateway. */
  | { readonly kind: 'unauthorized'; readonly reason: string; readonly detail: string | undefined }
  | { readonly kind: 'listed' }
  /** A remote server was asked over an open connection, after a further one could not be opened. */
  | { readonly kind: 'asked'; readonly answers: boolean }
  | { readonly kind: 'stopped' };

export type OpeningDecision =
  | { readonly kind: 'go' }
  | { readonly kind: 'wait'; readonly ms: number }
  | { readonly kind: 'refuse'; readonly reason: string; readonly retryAfterMs: number | undefined };

/** A crash loop is this number of process failures within this time. It stops all attempts for the pause. */
export const LOOP_FAILURES = 5;
export const LOOP_WINDOW_MS = 60_000;
export const LOOP_PAUSE_MS = 60_000;
const SAME_CAUSE_MS = 100;

/** A request waits for the end of a backoff up to this long, instead of failing. */
const PATIENCE_MS = 2_000;

/** The initial state: nothing was started yet. */
export const CONFIGURED: Lifecycle = {
  phase: 'configured',
  reason: undefined,
  detail: undefined,
  failuresMs: [],
  attempts: 0,
  retryAtMs: 0,
};

function recordFailure(
  state: Lifecycle,
  phase: Phase,
  { reason, detail, hasNoProcess = false, isLate = false, isServing = false }: Failure,
  nowMs: number,
  random: number,
): Lifecycle {
  // Connections that close at the same moment have one cause, so they count as one failure.
  if (nowMs - (state.failuresMs.at(-1) ?? -SAME_CAUSE_MS) < SAME_CAUSE_MS) return again(state, phase, reason, detail);
  const failuresMs = [...state.failuresMs.filter((atMs) => nowMs - atMs < LOOP_WINDOW_MS), nowMs];
  const attempts = state.attempts + 1;
  if (failuresMs.length >= LOOP_FAILURES && !hasNoProcess) {
    const kind = isLate ? 'too slow to start' : 'crash loop';
    const words = `${kind}: failed ${failuresMs.length} times within a minute, next try in a minute; last: ${reason}`;
    const loopPhase = isServing ? 'degraded' : 'failed';
    return { phase: loopPhase, reason: words, detail, failuresMs, attempts, retryAtMs: nowMs + LOOP_PAUSE_MS };
  }
  return { phase, reason, detail, failuresMs, attempts, retryAtMs: nowMs + backoffMs(attempts, random) };
}

/**
 * Returns the state after a failure that has the cause of the last one. The words of that one stay, such as those about a crash loop, unless somebody
 * has to correct credentials.
 */
function again(state: Lifecycle, phase: Phase, reason: string, detail: string | undefined): Lifecycle {
  const isKept = state.reason !== undefined && phase !== 'needs-authorization';
  return isKept ? { ...state, phase } : { ...state, phase, reason, detail };
}

/**
 * Returns the state after an event. Pure.
 *
 * @param nowMs monotonic.
 * @param random in [0, 1), for the backoff.
 */
export function step(state: Lifecycle, event: LifecycleEvent, nowMs: number, random: number): Lifecycle {
  if (state.phase === 'stopped') return state;
  switch (event.kind) {
    case 'unusable':
      return { ...state, phase: 'failed', reason: event.reason, retryAtMs: Number.POSITIVE_INFINITY };
    case 'starting':
      return isUp(state) ? state : { ...state, phase: 'starting' };
    case 'connected':
      return { ...state, phase: 'ready', reason: undefined, detail: undefined, attempts: 0, retryAtMs: 0 };
    case 'start-failed':
      if (event.scope === 'connection') return state.phase === 'starting' ? { ...state, phase: 'configured' } : state;
      return afterStartFailure(state, event, nowMs, random);
    case 'lost':
      // A server that has answered calls may start again at once. An early end may be part of a crash loop.
      return event.early
        ? recordFailure(state, 'degraded', event, nowMs, random)
        : { ...state, phase: 'degraded', reason: event.reason, detail: event.detail };
    case 'list-failed':
      return { ...state, phase: 'degraded', reason: event.reason, detail: undefined };
    case 'unauthorized':
      return { ...state, phase: 'needs-authorization', reason: event.reason, detail: event.detail };
    case 'asked':
      if (event.answers) return afterAnswer(state);
      return state.phase === 'degraded' ? { ...state, phase: 'failed' } : state;
    case 'listed': {
      // A listing over an open connection does not end the pause before further ones.
      const isOver = state.phase === 'needs-authorization' || state.retryAtMs <= nowMs;
      return isOver && (state.phase === 'degraded' || isFailed(state))
        ? { ...state, phase: 'ready', reason: undefined, detail: undefined, attempts: 0, retryAtMs: 0 }
        : afterAnswer(state);
    }
    case 'stopped':
      return { ...state, phase: 'stopped', reason: undefined, detail: undefined };
  }
}

/** Returns the state of a remote server that answers over an open connection, though a further one could not be opened. That pauses as before. */
function afterAnswer(state: Lifecycle): Lifecycle {
  return state.phase === 'failed' && Number.isFinite(state.retryAtMs) ? { ...state, phase: 'degraded' } : state;
}

function afterStartFailure(
  state: Lifecycle,
  event: Extract<LifecycleEvent, { readonly kind: 'start-failed' }>,
  nowMs: number,
  random: number,
): Lifecycle {
  const { reason, detail, lacksCredentials, startedMs, isServing } = event;
  const other = isServing === true ? 'degraded' : 'failed';
  const phase = lacksCredentials === true ? 'needs-authorization' : other;
  if (startedMs < (state.failuresMs.at(-1) ?? -1)) return again(state, phase, reason, detail);
  return recordFailure(state, phase, event, nowMs, random);
}

/** Returns whether the upstream cannot be used, so that an operator may have to act. */
export function isFailed({ phase }: Pick<Lifecycle, 'phase'>): boolean {
  return phase === 'failed' || phase === 'needs-authorization';
}

/** Returns whether a state goes on in another one: an upstream that cannot be used is `starting` at each attempt. */
export function goesOn(before: Phase, after: Phase): boolean {
  const isOut = (phase: Phase) => phase === 'starting' || isFailed({ phase });
  return before === after || (isOut(before) && isOut(after));
}

/** Returns whether the upstream serves requests now. */
export function isUp({ phase }: Lifecycle): boolean {
  return phase === 'ready' || phase === 'degraded';
}

/** Returns the combined state of the two eras. An unused era is ignored. */
export function overall(legacy: Lifecycle, modern: Lifecycle): Lifecycle {
  if (isUnusedEra(modern)) return legacy;
  if (isUnusedEra(legacy) || legacy.phase === modern.phase) return modern;
  const serving = [legacy, modern].find(isUp);
  if (serving === undefined) return isFailed(legacy) ? legacy : modern;
  const other = serving === legacy ? modern : legacy;
  // While the upstream is stopped, one era is stopped before the other.
  if (other.phase === 'starting' || other.phase === 'stopped') return serving;
  const reason = isFailed(other)
    ? `for clients of the ${other === modern ? 'modern' : 'legacy'} era: ${other.reason}`
    : other.reason;
  return other.phase === 'ready' ? serving : { ...serving, phase: 'degraded', reason, detail: other.detail };
}

function isUnusedEra({ phase }: Lifecycle): boolean {
  return phase === 'configured';
}

/** Decides whether a new connection may be opened now. Pure. @param nowMs monotonic. */
export function decideOpening(state: Lifecycle, nowMs: number): OpeningDecision {
  if (state.phase === 'stopped') return { kind: 'refuse', reason: 'stopped', retryAfterMs: undefined };
  const ms = state.retryAtMs - nowMs;
  if (ms <= 0) return { kind: 'go' };
  if (ms <= PATIENCE_MS) return { kind: 'wait', ms };
  const retryAfterMs = Number.isFinite(ms) ? Math.ceil(ms) : undefined;
  return { kind: 'refuse', reason: state.reason ?? state.phase, retryAfterMs };
}
