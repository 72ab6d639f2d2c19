import type { Act, Step } from '../fixtures/servers/nonce-acts.ts';
import type { RpcId } from './swarm-client.ts';

/** An upstream, and the steps whose messages the gateway can attribute on its connections. */
export interface PlannedUpstream {
  readonly id: string;
  readonly steps: readonly Step[];
}

/** The time at which a call is cancelled: with the call, at its first message, after this many ms, or never. */
export type Cancel = 'at once' | 'at its first message' | number | undefined;

export interface PlannedCall {
  readonly id: RpcId;
  readonly token: RpcId | undefined;
  readonly upstream: string;
  readonly act: Act;
  readonly cancel: Cancel;
  /** The time that the client takes to answer a question. */
  readonly thinkMs: number;
}

export interface PlannedSession {
  readonly number: number;
  readonly revision: string;
  /** True if the client keeps a GET stream open besides the streams of its calls. */
  readonly listens: boolean;
  readonly calls: readonly PlannedCall[];
}

interface Swarm {
  readonly seed: number;
  readonly sessions: number;
  readonly callsPerSession: number;
  /** The upstreams that a session uses. */
  readonly upstreamsOf: (session: number) => readonly PlannedUpstream[];
}

const REVISIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'] as const;
const ASKING: readonly Step[] = ['elicit', 'sample'];

/** Mulberry32: the same numbers in [0, 1) for the same seed. */
export function randomFrom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 4_294_967_296;
  };
}

function nonceOf(session: number, call: number): string {
  return `nonce:${session}:${call};`;
}

/** Plans the calls of hundreds of clients. The seed decides everything. Their ids and progress tokens are the same. */
export function planSwarm({ seed, sessions, callsPerSession, upstreamsOf }: Swarm): PlannedSession[] {
  const random = randomFrom(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  const one = <T>(of: readonly T[]): T => {
    const item = of[below(of.length)];
    if (item === undefined) throw new RangeError('nothing to choose from');
    return item;
  };
  const cancel = (): Cancel =>
    random() < 0.1 ? one(['at once', 'at its first message', 1 + below(30), 1 + below(1_000)] as const) : undefined;
  /** Returns 1, "1", 2, "2" and so on: only the type distinguishes the two of a pair. */
  const twin = (n: number): RpcId => (n % 2 === 0 ? n / 2 : String((n + 1) / 2));

  const planCall = (session: number, revision: string, n: number): PlannedCall => {
    const { id: upstream, steps } = one(upstreamsOf(session));
    // A token may equal the id of another call.
    const token = random() < 0.9 ? twin(callsPerSession - n + 1) : undefined;
    const possible = steps.filter((step) => {
      if (step === 'progress') return token !== undefined;
      return step !== 'elicit' || revision >= '2025-06-18';
    });
    // Questions are rarer than other steps.
    const kinds = random() < 0.4 ? possible.filter((step) => !ASKING.includes(step)) : possible;
    const asks = kinds.filter((step) => ASKING.includes(step));
    const count = kinds.length === 0 || random() < 0.45 ? 0 : 1 + below(4);
    const act: Act = {
      nonce: nonceOf(session, n),
      // A question at the start is still open when the call is cancelled.
      steps: Array.from({ length: count }, (_, step) =>
        step === 0 && asks.length > 0 && random() < 0.5 ? one(asks) : one(kinds),
      ),
      pauseMs: below(12),
      fails: random() < 0.05,
    };
    return { id: twin(n), token, upstream, act, cancel: cancel(), thinkMs: below(30) };
  };

  return Array.from({ length: sessions }, (_, number) => {
    const revision = random() < 0.6 ? REVISIONS[0] : one(REVISIONS);
    const listens = revision === '2024-11-05' || random() < 0.5;
    const calls = Array.from({ length: callsPerSession }, (_, n) => planCall(number, revision, n + 1));
    return { number, revision, listens, calls };
  });
}
