import type { Logger } from 'pino';
import { shownText } from '../../peer-text.ts';
import type { Offer } from '../../catalog/offer.ts';
import { pinnedOffer } from '../../catalog/pinned-offer.ts';
import type { Config } from '../../config/values/config.ts';
import { onChangeOf } from '../../config/sections/lock.ts';
import { compareLists, type Difference } from '../../lock/comparison.ts';
import { idOf } from '../../lock/definition.ts';
import { listsFor } from '../../lock/lock-file.ts';
import type { OnChange, Pins } from '../../lock/pins.ts';
import { eraOf } from '../../protocol/revisions.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { getOrMake, KeyedSums } from '../../map-entries.ts';

/** Differences of one offer whose changes are described, and that get a log line each. */
const MAX_EXPLAINED = 50;
/** The characters of these definitions, before and after, in all. */
const MAX_EXPLAINED_CHARS = 524_288;
const EXPLANATION_BOUNDS = { definitions: MAX_EXPLAINED, chars: MAX_EXPLAINED_CHARS };
/** Definitions that get a log line each when they are as in the lock again. */
const MAX_RETURNED = 1_000;
const MAX_TEXT_CHARS = 1_000;

/** An offer as clients get it, with the differences from the lock. */
interface Judged {
  readonly offer: Offer;
  readonly differences: readonly Difference[];
  readonly isInLock: boolean;
}

/** The pinned definitions of one upstream, compared with its lists. */
export interface LockState {
  readonly onChange: OnChange;
  /** Of both eras and all connections, each definition once. */
  readonly differences: readonly Difference[];
  /** Items that a client does not get; the largest number of all clients. */
  readonly withheld: number;
}

/** The pins of one upstream, and what they mean for its offers. */
interface PinnedUpstream {
  readonly pins: Pins;
  readonly onChange: OnChange;
  readonly judged: WeakMap<Offer, Judged>;
  /** Those of the last report. */
  current: ReadonlySet<Judged>;
  /** The number of them in which a definition differs, by its id. By its id and text, those in which it differs in the same way. */
  readonly reported: KeyedSums;
}

/** Compares the offers of upstreams with the lock, each once, and withholds what differs. */
export class PinnedOffers {
  readonly #log: Logger;
  readonly #metrics: Pick<Metrics, 'countLockDifference'>;
  /** By upstream id; only those that the lock applies to. */
  readonly #upstreams = new Map<string, PinnedUpstream>();

  constructor(log: Logger, metrics: Pick<Metrics, 'countLockDifference'>) {
    this.#log = log;
    this.#metrics = metrics;
  }

  setConfig(config: Config): void {
    const before = new Map(this.#upstreams);
    this.#upstreams.clear();
    for (const upstream of config.upstreams) {
      const onChange = onChangeOf(config, upstream);
      if (onChange === undefined || config.lock === undefined) continue;
      const { pins } = config.lock;
      const old = before.get(upstream.id);
      const isSame = old?.pins.sha256 === pins.sha256 && old.onChange === onChange;
      const { current, reported } = old ?? { current: new Set<Judged>(), reported: new KeyedSums() };
      const made = { pins, onChange, judged: new WeakMap<Offer, Judged>(), current, reported };
      this.#upstreams.set(upstream.id, isSame ? old : made);
    }
  }

  /** Returns the reaction to a definition of this upstream that differs from the lock; undefined if nothing of it is pinned. */
  onChange(upstream: string): OnChange | undefined {
    return this.#upstreams.get(upstream)?.onChange;
  }

  /** Returns an offer as clients get it: the same object for the same offer until the config changes. */
  pinned(upstream: string, offer: Offer): Offer {
    const known = this.#upstreams.get(upstream);
    return known === undefined ? offer : this.#judge(upstream, known, offer).offer;
  }

  /** Returns what differs in these offers of an upstream; undefined if nothing of it is pinned. */
  state(upstream: string, offers: Iterable<Offer>): LockState | undefined {
    const known = this.#upstreams.get(upstream);
    if (known === undefined) return undefined;
    const differences = new Map<string, Difference>();
    let withheld = 0;
    for (const offer of offers) {
      const judged = this.#judge(upstream, known, offer);
      for (const one of judged.differences) differences.set(idOf(one), one);
      withheld = Math.max(withheld, judged.offer.withheld?.length ?? 0);
    }
    return { onChange: known.onChange, differences: [...differences.values()], withheld };
  }

  #judge(upstream: string, known: PinnedUpstream, offer: Offer): Judged {
    return getOrMake(known.judged, offer, () => {
      const pinned = listsFor(known.pins.lists.get(upstream), eraOf(offer.revision));
      const differences = compareLists(pinned, offer, EXPLANATION_BOUNDS);
      const isInLock = pinned !== undefined;
      return { offer: pinnedOffer(offer, differences, known.onChange), differences, isInLock };
    });
  }

  /**
   * Logs and counts the differences that no offer of the last report has, and the definitions that differ in none any more.
   *
   * @param offers all that clients of this upstream get now.
   */
  report(upstream: string, offers: Iterable<Offer>): void {
    const known = this.#upstreams.get(upstream);
    if (known === undefined) return;
    const now = new Set([...new Set(offers)].map((offer) => this.#judge(upstream, known, offer)));
    // An upstream in the place of another has listed nothing yet.
    if (now.size === 0) return;
    const { current } = known;
    known.current = now;
    for (const judged of now.difference(current)) this.#reportNew(upstream, known, judged);
    const gone = [...current.difference(now)].flatMap(({ differences }) => differences);
    for (const one of gone) known.reported.add(wayOf(one), -1);
    const returned = gone.map(idOf).filter((id) => known.reported.add(id, -1) === 0);
    for (const id of returned.slice(0, MAX_RETURNED))
      this.#log.info({ upstream, definition: shownText(id) }, 'definition is as in the lock again');
  }

  #reportNew(upstream: string, { reported, onChange }: PinnedUpstream, { differences, isInLock }: Judged): void {
    for (const one of differences) reported.add(idOf(one), 1);
    const fresh = differences.filter((one) => reported.add(wayOf(one), 1) === 1);
    for (const { status } of fresh) this.#metrics.countLockDifference(upstream, status);
    if (fresh.length === 0) return;
    if (!isInLock) {
      this.#log.warn({ upstream, definitions: fresh.length, onChange }, 'upstream is not in the lock');
      return;
    }
    for (const one of fresh.slice(0, MAX_EXPLAINED)) {
      const { kind, key, status } = one;
      const fields = { upstream, kind, definition: shownText(key), status, changes: differenceText(one), onChange };
      this.#log.warn(fields, 'definition differs from the lock');
    }
    if (fresh.length > MAX_EXPLAINED) {
      this.#log.warn({ upstream, more: fresh.length - MAX_EXPLAINED }, 'further definitions differ from the lock');
    }
  }
}

/** Returns a text that is equal only if a definition differs in the same way. It is no {@link idOf} of another one. */
function wayOf(difference: Difference): string {
  return JSON.stringify([idOf(difference), differenceText(difference)]);
}

/** Returns the changes of a definition as one line. */
function differenceText({ status, changes }: Difference): string {
  const text = [status, ...changes.map((one) => one.text)].join('; ');
  return text.length > MAX_TEXT_CHARS ? `${text.slice(0, MAX_TEXT_CHARS)}…` : text;
}
