import { type Era, ERAS, otherEra } from '../../protocol/revisions.ts';

/** States whether an upstream supports one era, with the evidence. */
export interface EraSupport {
  readonly speaks: 'yes' | 'no' | 'unknown';
  /** A few words for operators, such as `initialize answered`. Empty while `speaks` is `unknown`. */
  readonly evidence: string;
  /** The time of the evidence. Monotonic ms. */
  readonly sinceMs: number;
  /** The time for which this is valid, from `sinceMs`. */
  readonly validMs: number;
}

/** The known support of each era by one upstream. Immutable. */
export type Eras = Readonly<Record<Era, EraSupport>>;

export interface Finding {
  readonly era: Era;
  readonly speaks: 'yes' | 'no';
  readonly evidence: string;
  /** True if the finding rests on a transient failure, so that it is valid only for a short time. */
  readonly isDoubtful?: boolean;
}

/** The eras whose handshakes to try on a new connection, in order. */
export type HandshakePlan = readonly [Era, ...Era[]];

/** The time for which a `no` is valid: the upstream may be replaced by a newer version. */
export const NO_MS = 3_600_000;

/** The time for which a `no` is valid that rests on a transient failure. */
export const DOUBTFUL_NO_MS = 60_000;

/** The age from which a failed start drops a `yes` or `no`. Not less: each probe of a program that exits on it costs a start. */
export const REJUDGE_MS = 60_000;

const UNKNOWN: EraSupport = { speaks: 'unknown', evidence: '', sinceMs: 0, validMs: Infinity };
const EXCLUDED: EraSupport = { speaks: 'no', evidence: 'configured', sinceMs: 0, validMs: Infinity };

/** Returns the initial support: `unknown` for the eras of the configured transports, and a permanent `no` for the others. */
export function erasOver(carried: ReadonlySet<Era>): Eras {
  const support = (era: Era) => (carried.has(era) ? UNKNOWN : EXCLUDED);
  return { legacy: support('legacy'), modern: support('modern') };
}

/** Returns the support after a finding. An era that the config excludes stays excluded. */
export function recordFinding(eras: Eras, { era, speaks, evidence, isDoubtful = false }: Finding, nowMs: number): Eras {
  const before = eras[era];
  if (before === EXCLUDED) return eras;
  if (speaks === 'yes' && before.speaks === 'yes') return eras;
  const validMs = speaks === 'yes' ? Infinity : isDoubtful ? DOUBTFUL_NO_MS : NO_MS;
  return { ...eras, [era]: { speaks, evidence, sinceMs: nowMs, validMs } };
}

export function dropExpired(eras: Eras, nowMs: number): Eras {
  return dropWhere(eras, ({ sinceMs, validMs }) => nowMs - sinceMs >= validMs);
}

/** Returns the support after a failed start, without old findings: the upstream may have been replaced. */
export function dropAfterFailure(eras: Eras, nowMs: number): Eras {
  return dropWhere(eras, ({ sinceMs }) => nowMs - sinceMs >= REJUDGE_MS);
}

export function dropAll(eras: Eras): Eras {
  return dropWhere(eras, () => true);
}

function dropWhere(eras: Eras, isOld: (support: EraSupport) => boolean): Eras {
  let after = eras;
  for (const era of ERAS) {
    const support = eras[era];
    if (support === EXCLUDED || support.speaks === 'unknown' || !isOld(support)) continue;
    after = { ...after, [era]: UNKNOWN };
  }
  return after;
}

/**
 * Returns the handshakes to try for a client of this era: first of its own era, then of the other era. An era that the upstream
 * does not support is left out, unless that is so for both.
 */
export function planHandshakes(eras: Eras, client: Era): HandshakePlan {
  const other = otherEra(client);
  if (eras[client].speaks !== 'no') return eras[other].speaks === 'no' ? [client] : [client, other];
  if (eras[other].speaks !== 'no' || eras[client] === EXCLUDED) return [other];
  return eras[other] === EXCLUDED ? [client] : [client, other];
}

/** Returns the serving era for clients of this era; undefined before a probe has decided it. */
export function servingEra(eras: Eras, client: Era): Era | undefined {
  const own = eras[client].speaks;
  if (own === 'yes') return client;
  return own === 'no' && eras[otherEra(client)].speaks !== 'no' ? otherEra(client) : undefined;
}
