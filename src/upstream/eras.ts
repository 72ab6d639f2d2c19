import { type Era, ERAS, otherEra } from '../protocol/revisions.ts';

/** Whether an upstream speaks one era, and how that was found out. */
export interface EraVerdict {
  readonly speaks: 'yes' | 'no' | 'unknown';
  /** In a few words, for operators: `initialize answered`. Empty while nothing is known. */
  readonly evidence: string;
  /** When it was found out. Monotonic ms. */
  readonly sinceMs: number;
  /** How long a `no` is believed. */
  readonly holdsMs: number;
}

/** What is known of the eras that one upstream speaks. Immutable. */
export type Eras = Readonly<Record<Era, EraVerdict>>;

/** What a probe of one era found. */
export interface Finding {
  readonly era: Era;
  readonly speaks: 'yes' | 'no';
  readonly evidence: string;
  /** Whether the upstream was in trouble when it was probed, so that the finding is soon doubted. */
  readonly isDoubtful?: boolean;
}

/** Which handshakes to try on a new connection, in this order. */
export type Plan = readonly [Era, ...Era[]];

/** An upstream may be replaced by a newer version: a `no` is believed for this long. */
export const NO_MS = 3_600_000;

/** And for this long where the upstream was in trouble when it was probed. */
export const DOUBTFUL_NO_MS = 60_000;

/** After a failure, verdicts older than this are dropped. Not sooner: a program that exits when it is probed costs a start. */
export const REJUDGE_MS = 60_000;

const UNKNOWN: EraVerdict = { speaks: 'unknown', evidence: '', sinceMs: 0, holdsMs: Infinity };
const EXCLUDED: EraVerdict = { speaks: 'no', evidence: 'configured', sinceMs: 0, holdsMs: Infinity };

/** Starts with nothing known of the eras that the configured transports carry, and a lasting `no` for any other. */
export function erasOver(carried: ReadonlySet<Era>): Eras {
  const verdict = (era: Era) => (carried.has(era) ? UNKNOWN : EXCLUDED);
  return { legacy: verdict('legacy'), modern: verdict('modern') };
}

/** Records a finding. What the config excludes stays excluded. */
export function judge(eras: Eras, { era, speaks, evidence, isDoubtful = false }: Finding, nowMs: number): Eras {
  const before = eras[era];
  if (before === EXCLUDED) return eras;
  if (speaks === 'yes' && before.speaks === 'yes') return eras;
  const holdsMs = speaks === 'yes' ? Infinity : isDoubtful ? DOUBTFUL_NO_MS : NO_MS;
  return { ...eras, [era]: { speaks, evidence, sinceMs: nowMs, holdsMs } };
}

/** Drops each `no` that is too old to be believed. */
export function age(eras: Eras, nowMs: number): Eras {
  return dropWhere(eras, ({ sinceMs, holdsMs }) => nowMs - sinceMs >= holdsMs);
}

/** Drops verdicts after a failed start: the upstream may have been replaced since. */
export function doubt(eras: Eras, nowMs: number): Eras {
  return dropWhere(eras, ({ sinceMs }) => nowMs - sinceMs >= REJUDGE_MS);
}

function dropWhere(eras: Eras, isOld: (verdict: EraVerdict) => boolean): Eras {
  let after = eras;
  for (const era of ERAS) {
    const verdict = eras[era];
    if (verdict === EXCLUDED || verdict.speaks === 'unknown' || !isOld(verdict)) continue;
    after = { ...after, [era]: UNKNOWN };
  }
  return after;
}

/**
 * Plans the handshakes for a client of this era: its own era first, the other one where the upstream may speak it.
 * An era that the upstream does not speak is left out, unless it speaks neither.
 */
export function plan(eras: Eras, client: Era): Plan {
  const other = otherEra(client);
  if (eras[client].speaks !== 'no') return eras[other].speaks === 'no' ? [client] : [client, other];
  if (eras[other].speaks !== 'no' || eras[client] === EXCLUDED) return [other];
  return eras[other] === EXCLUDED ? [client] : [client, other];
}

/** The era in which clients of this era are served; undefined until a probe has shown it. */
export function servingEra(eras: Eras, client: Era): Era | undefined {
  const own = eras[client].speaks;
  if (own === 'yes') return client;
  return own === 'no' && eras[otherEra(client)].speaks !== 'no' ? otherEra(client) : undefined;
}
