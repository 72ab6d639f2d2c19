import { randomFrom } from '../support/swarm-plan.ts';

export const REPLICAS = 3;

export const UPSTREAMS = ['stdio', 'legacy', 'modern', 'sse'] as const;
export type UpstreamName = (typeof UPSTREAMS)[number];

/** The upstreams that are processes of the trial. The gateway starts the other one. */
export const REMOTE = ['legacy', 'modern', 'sse'] as const satisfies readonly UpstreamName[];
export type RemoteName = (typeof REMOTE)[number];

/**
 * The ways in which an upstream ends a call that it has recorded: with an answer; with a question before the answer; never; with its
 * process; with text that is no answer; with two answers; or with the connection.
 */
export const WAYS = ['answer', 'ask', 'hang', 'crash', 'garbage', 'double', 'vanish'] as const;
export type Way = (typeof WAYS)[number];

/** Lies of an upstream that the checker must find: it runs a call twice, answers for another call, or records nothing. */
export const LIES = ['twice', 'foreign', 'skip'] as const;
export type Lie = (typeof LIES)[number];

export interface PlannedCall {
  /** Names the call in the ledgers. */
  readonly id: string;
  /** A text that only this call's messages may have. */
  readonly nonce: string;
  readonly atMs: number;
  readonly upstream: UpstreamName;
  readonly way: Way | Lie;
  /** Progress notifications before the end. */
  readonly steps: number;
  /** Pause of the upstream before each step and before the end. */
  readonly pauseMs: number;
  /** The client resets its connection this long after it has sent the call; undefined for never. */
  readonly resetMs: number | undefined;
  /** The client of 2026-07-28 sends the retry after a question twice at once. */
  readonly retriesTwice: boolean;
}

export const PRINCIPALS = ['ann', 'bob', 'cyd'] as const;
export type PrincipalName = (typeof PRINCIPALS)[number];

/** The program of a client: our own for either era, or the SDK, version 1 with a session or version 2 without. */
export type ClientKind = 'legacy' | 'modern' | 'sdk-legacy' | 'sdk-modern';

export interface PlannedClient {
  readonly name: string;
  readonly principal: PrincipalName;
  readonly kind: ClientKind;
  readonly revision: string;
  readonly calls: readonly PlannedCall[];
}

/** A fault begins at `atMs`. If it lasts, it is ended at `untilMs`. */
export type Fault = { readonly atMs: number; readonly untilMs: number } & (
  | { readonly kind: ReplicaFault; readonly replica: number }
  | { readonly kind: PartitionFault; readonly replica: number; readonly direction: Direction }
  | { readonly kind: RedisFault | FailoverFault }
  | { readonly kind: UpstreamFault; readonly upstream: UpstreamName }
);

/**
 * SIGKILL and a new start; SIGSTOP and SIGCONT; SIGTERM and a new start; SIGHUP with a wrong and with another config; no way to Redis; no
 * way from the other replicas.
 */
export const REPLICA_FAULTS = [
  'kill replica',
  'stop replica',
  'end replica',
  'reload wrong config',
  'reload config',
  'cut replica from Redis',
  'cut replica from others',
] as const;
export type ReplicaFault = (typeof REPLICA_FAULTS)[number];

/** Packets between a replica and these processes vanish. Only partitions.ts plans it, since it needs network namespaces. */
export const PARTITION_FAULTS = [
  'partition from Redis',
  'partition from others',
  'partition from Redis and others',
] as const;
export type PartitionFault = (typeof PARTITION_FAULTS)[number];

/** The packets that vanish: all, those that the replica sends, or those that are sent to it. */
export const DIRECTIONS = ['both', 'out', 'in'] as const;
export type Direction = (typeof DIRECTIONS)[number];

/** SIGKILL and a new start with its data; SIGSTOP and SIGCONT; FLUSHALL. */
export const REDIS_FAULTS = ['kill Redis', 'stop Redis', 'flush Redis'] as const;
export type RedisFault = (typeof REDIS_FAULTS)[number];

/** A sentinel makes the replica of Redis its master: it is told to, or the master is killed. Only failovers.ts plans it, since it needs a sentinel. */
export const FAILOVER_FAULTS = ['fail Redis over', 'kill Redis master'] as const;
export type FailoverFault = (typeof FAILOVER_FAULTS)[number];

/** SIGKILL, with a new start of a remote upstream; SIGSTOP and SIGCONT; the loss of all sessions of a remote upstream. */
export const UPSTREAM_FAULTS = ['kill upstream', 'stop upstream', 'forget sessions'] as const;
export type UpstreamFault = (typeof UPSTREAM_FAULTS)[number];

export interface Plan {
  readonly seed: number;
  readonly clients: readonly PlannedClient[];
  readonly faults: readonly Fault[];
}

/** Calls and faults begin within this time, unless a shorter one is wanted. */
export const WINDOW_MS = 8_000; // subject
/** The pause between two calls of one client on average. */
const CALL_MS = 570; // subject
/** Half of the calls are sent this close to the begin or the end of a fault. */
const NEAR_MS = 300; // subject
const FEWEST_FAULTS = 3;
const MORE_FAULTS = 4;
/** After five crashes within a minute an upstream is not started for a minute, which is longer than a trial. */
const MAX_CRASHES = 2;

const CLIENTS: readonly Omit<PlannedClient, 'calls'>[] = [
  { name: 'ann-1', principal: 'ann', kind: 'legacy', revision: '2025-11-25' },
  { name: 'ann-2', principal: 'ann', kind: 'modern', revision: '2026-07-28' },
  { name: 'bob-1', principal: 'bob', kind: 'legacy', revision: '2025-11-25' },
  { name: 'bob-2', principal: 'bob', kind: 'legacy', revision: '2025-03-26' },
  { name: 'bob-3', principal: 'bob', kind: 'modern', revision: '2026-07-28' },
  { name: 'cyd-1', principal: 'cyd', kind: 'sdk-legacy', revision: '2025-11-25' },
  { name: 'cyd-2', principal: 'cyd', kind: 'sdk-modern', revision: '2026-07-28' },
];

/** Returns the text that only messages of this call may have. */
function nonceOf(client: string, call: string, random: number): string {
  return `nonce:${client}:${call}:${Math.floor(random * 1e9)};`;
}

export const NONCE = /nonce:[\w-]+:\w+:\d+;/g;

/** Returns the client that a nonce belongs to. */
export function clientOf(nonce: string): string {
  return nonce.split(':', 2)[1] ?? '';
}

/**
 * Returns the calls and faults of a seed, which begin within a time. The seed decides everything.
 *
 * @param given faults in place of those of the seed.
 */
export function planChaos(seed: number, windowMs: number = WINDOW_MS, given?: readonly Fault[]): Plan {
  const random = randomFrom(seed);
  const below = (limit: number) => Math.floor(random() * limit);
  const one = <T>(of: readonly T[]): T => {
    const item = of[below(of.length)];
    if (item === undefined) throw new RangeError('nothing to choose from');
    return item;
  };
  const crashes = new Map<UpstreamName, number>();

  const planWay = (upstream: UpstreamName, revision: string): Way => {
    const draw = random();
    if (draw < 0.55) return 'answer';
    if (draw < 0.82) return upstream === 'sse' || revision < '2025-06-18' ? 'answer' : 'ask';
    const way = one(['hang', 'crash', 'garbage', 'double', 'vanish'] as const);
    // Over stdio the connection is the process.
    const isCrash = way === 'crash' || (way === 'vanish' && upstream === 'stdio');
    if (!isCrash) return way;
    const count = (crashes.get(upstream) ?? 0) + 1;
    if (count > MAX_CRASHES) return 'answer';
    crashes.set(upstream, count);
    return way;
  };

  const faults = given ?? planFaults(windowMs, random, below, one);
  const planTime = () => {
    const { atMs, untilMs } = one(faults);
    const near = one([atMs, untilMs]) - NEAR_MS + below(2 * NEAR_MS);
    return random() < 0.5 && near < windowMs ? Math.max(0, near) : below(windowMs);
  };

  const planCall = ({ name, kind, revision }: (typeof CLIENTS)[number], n: number): PlannedCall => {
    const upstream = one(UPSTREAMS);
    const id = `${name}-${n}`;
    const isSdk = kind.startsWith('sdk');
    return {
      id,
      nonce: nonceOf(name, `${n}`, random()),
      atMs: planTime(),
      upstream,
      way: planWay(upstream, revision),
      steps: random() < 0.5 ? 0 : 1 + below(6),
      pauseMs: random() < 0.7 ? below(40) : below(500),
      resetMs: random() < 0.2 && !isSdk ? below(900) : undefined,
      // A modern upstream runs each retry that it gets.
      retriesTwice: upstream !== 'modern' && random() < 0.5,
    };
  };

  const clients = CLIENTS.map((client) => ({
    ...client,
    calls: Array.from({ length: Math.round(windowMs / CALL_MS) }, (_, n) => planCall(client, n + 1)).sort(
      (one, two) => one.atMs - two.atMs,
    ),
  }));
  return { seed, clients, faults };
}

/** The time of a failover, after which clients call for about as long again. */
const FAILOVER_AT_MS = 3_000; // subject
/** The longest time in which it is expected to be over. */
const FAILOVER_MS = 4_000; // subject

/** Returns the calls of a seed, with a failover of Redis in the middle as the only fault. */
export function planFailover(seed: number, kind: FailoverFault): Plan {
  return planChaos(seed, WINDOW_MS, [{ kind, atMs: FAILOVER_AT_MS, untilMs: FAILOVER_AT_MS + FAILOVER_MS }]);
}

function planFaults(
  windowMs: number,
  random: () => number,
  below: (limit: number) => number,
  one: <T>(of: readonly T[]) => T,
): readonly Fault[] {
  /** The time until which a target has another fault. */
  const busy = new Map<string, number>();
  const faults: Fault[] = [];
  const wanted = FEWEST_FAULTS + below(MORE_FAULTS);
  while (faults.length < wanted) {
    const atMs = 300 + below(windowMs - 300);
    const draw = random();
    // A lease lasts for 5 s: longer and shorter times than that.
    const untilMs = atMs + 200 + below(one([1_500, 6_500]));
    const [target, fault]: readonly [string, Fault] =
      draw < 0.6
        ? planReplicaFault(below(REPLICAS), one(REPLICA_FAULTS), atMs, untilMs)
        : draw < 0.8
          ? ['Redis', { kind: one(REDIS_FAULTS), atMs, untilMs: Math.min(untilMs, atMs + 4_000) }]
          : planUpstreamFault(one(UPSTREAMS), one(UPSTREAM_FAULTS), atMs, untilMs);
    const isOnceOnly = fault.kind === 'kill upstream';
    if ((busy.get(target) ?? 0) > atMs || (isOnceOnly && faults.some(({ kind }) => kind === fault.kind))) continue;
    busy.set(target, fault.untilMs + 1_000);
    faults.push(fault);
  }
  return faults.sort((one, two) => one.atMs - two.atMs);
}

function planReplicaFault(
  replica: number,
  kind: ReplicaFault,
  atMs: number,
  untilMs: number,
): readonly [string, Fault] {
  return [`replica ${replica}`, { kind, replica, atMs, untilMs }];
}

function planUpstreamFault(
  upstream: UpstreamName,
  kind: UpstreamFault,
  atMs: number,
  untilMs: number,
): readonly [string, Fault] {
  const hasSessions = upstream === 'legacy';
  const possible = kind === 'forget sessions' && !hasSessions ? 'kill upstream' : kind;
  return [upstream, { kind: possible, upstream, atMs, untilMs }];
}

/** Returns the call number `n` by which a client finds that an upstream works again. */
export function probe(client: PlannedClient, upstream: UpstreamName, n: number): PlannedCall {
  const id = `${client.name}-${upstream}${n}`;
  const nonce = nonceOf(client.name, `${upstream}${n}`, n / 1e9);
  return { id, nonce, atMs: 0, upstream, way: 'answer', steps: 0, pauseMs: 0, resetMs: undefined, retriesTwice: false };
}
