import type { SharedParts } from '../records/shared-parts.ts';
import { isShown } from '../../catalog/catalog.ts';
import { RawObject } from '../../json/json.ts';
import { type Answer, type Result, parsed } from '../../protocol/jsonrpc.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import { LIMITS } from '../../limits.ts';
import { getOrMake, setLatest } from '../../map-entries.ts';
import type { CloseReason } from '../../upstream/link/link.ts';
import type { ConnectionHolder, Link, StateLoss } from '../exchange/connection-holder.ts';

const CAUSES: Readonly<Record<StateLoss['reason'], string>> = {
  idle: 'was ended because it was not used for the time that "idle" allows',
  crash: 'ended by itself',
  forgotten: 'does not know its session any more',
  replaced: 'was restarted, removed or changed by the operator of the gateway',
  restored: 'was ended when the gateway was restarted, or released this session as unused',
};

export interface StateLossesParts extends Pick<SharedParts, 'upstreams' | 'owners' | 'metrics' | 'log' | 'onLimit'> {}

/**
 * Reports that an upstream has lost the state it kept for a client. It does so in the log, in a metric, and as a log message to the client.
 * The next answer of that upstream says it in `_meta`.
 */
export class StateLosses {
  readonly #parts: StateLossesParts;
  /** Keys of sessions that were released as unused, by a link that goes on with their state. */
  readonly #unused = new WeakMap<Link, Map<string, true>>();

  constructor(parts: StateLossesParts) {
    this.#parts = parts;
  }

  /**
   * Records that a call was answered on a link: the upstream may keep state for the holder from then on. A record that could not be stored is tried
   * again by the next answer.
   */
  onAnswered(holder: ConnectionHolder, link: Link): void {
    link.hasAnsweredCall = true;
    const isUsed = holder.usedUpstreams?.has(link.upstream) === true;
    if (isUsed && holder.unrecordedStates?.has(link.upstream) !== true) return;
    if (!link.connection.mayKeepState || link.place.purpose === 'call') return;
    (holder.usedUpstreams ??= new Set()).add(link.upstream);
    const storing = holder.onStateKept(link.upstream);
    if (storing !== undefined) addRecord(holder, link.upstream, storing);
  }

  /** Reports the loss for every user of a link that has closed. */
  onLinkClosed(link: Link, reason: CloseReason): void {
    if (reason === 'released' || !link.hasAnsweredCall || !link.connection.mayKeepState) return;
    const users = [...link.users].filter((holder) => holder.usedUpstreams?.has(link.upstream) === true);
    if (users.length > 0) this.#report(link.upstream, reason, users);
  }

  /** Remembers the links of a session that is released as unused, if others use them too: they may go on with its state. */
  onUnused(holder: ConnectionHolder): void {
    // Another process may serve the session meanwhile.
    if (!this.#parts.owners.isAlone) return;
    for (const [upstream, link] of holder.links) {
      const isKept = holder.usedUpstreams?.has(upstream) === true && holder.stateLosses?.has(upstream) !== true;
      if (!isKept || link.place.closed !== undefined) continue;
      const unused = getOrMake(this.#unused, link, () => new Map<string, true>());
      if (setLatest(unused, holder.key, true, LIMITS.unusedSessionsPerConnection)) {
        this.#parts.onLimit('unusedSessionsPerConnection');
      }
    }
  }

  /**
   * Reports the loss for a session that was restored from its id, at the upstreams that kept state for it. Those that may still keep it are asked
   * first, or judged by the next link.
   */
  onRestored(holder: ConnectionHolder, upstreams: readonly string[]): void {
    if (upstreams.length === 0) return;
    holder.usedUpstreams = new Set(upstreams);
    for (const upstream of upstreams) {
      if (holder.attachments?.has(upstream) === true) continue;
      if (this.#mayKeep(upstream, holder)) (holder.keptUpstreams ??= new Set()).add(upstream);
      else this.#report(upstream, 'restored', [holder]);
    }
  }

  #mayKeep(upstream: string, { key }: ConnectionHolder): boolean {
    const links = this.#parts.upstreams.get(upstream)?.links() ?? [];
    return [...links].some((link) => this.#unused.get(link)?.has(key) === true);
  }

  /** Reports the loss for a restored session, unless its new link is the one that it had before. A link of a replaced upstream serves no later call. */
  onLinked(holder: ConnectionHolder, link: Link): void {
    if (holder.keptUpstreams?.delete(link.upstream) !== true) return;
    const isSame = this.#unused.get(link)?.delete(holder.key) === true;
    if (!isSame || link.isRetired) this.#report(link.upstream, isSame ? 'replaced' : 'restored', [holder]);
  }

  /**
   * Reports the loss of state that an upstream keeps here for a session which another process has by now. The answer that began the state
   * reports it, since the other process does not know of it.
   */
  onKeptForLeft(holder: ConnectionHolder, upstream: string): void {
    this.#report(upstream, 'restored', [holder]);
  }

  /** Counts whether an upstream has continued the session of a restored holder. If it has not, reports the loss of its state. */
  onAttachmentTried(holder: ConnectionHolder, { upstream, isReattached }: Link): void {
    this.#parts.metrics.countReattachment(upstream, isReattached ? 'continued' : 'refused');
    if (!isReattached && holder.usedUpstreams?.has(upstream) === true) this.#report(upstream, 'restored', [holder]);
  }

  #report(upstream: string, reason: StateLoss['reason'], holders: readonly ConnectionHolder[]): void {
    const { metrics, log } = this.#parts;
    const loss: StateLoss = { upstream, reason, at: new Date().toISOString() };
    const message = `upstream "${upstream}" ${CAUSES[reason]}: the state that it kept for this client is lost`;
    const params = RawObject.of({ level: 'warning', logger: 'linkspan', data: { ...loss, message } });
    for (const holder of holders) {
      (holder.stateLosses ??= new Map()).set(upstream, loss);
      if (isShown(holder.catalog, upstream)) holder.sendLog('warning', params);
      metrics.countStateLoss(upstream, reason);
    }
    log.warn({ upstream, reason, clients: holders.length }, 'upstream lost the state that it kept for clients');
  }
}

/** Lets answers of an upstream wait for the record of its state. */
function addRecord(holder: ConnectionHolder, upstream: string, storing: Promise<void>): void {
  const records = (holder.stateRecords ??= new Map());
  const stored = storing.then(() => {
    records.delete(upstream);
    if (records.size === 0 && holder.stateRecords === records) holder.stateRecords = undefined;
  });
  records.set(upstream, stored);
}

/**
 * Returns an upstream's answer, with the loss of its state in `_meta` if no answer has reported it to this client yet.
 */
export function withStateLoss(holder: ConnectionHolder, upstream: string, answer: Answer): Answer {
  const loss = holder.stateLosses?.get(upstream);
  if (loss === undefined || answer.kind === 'error') return answer;
  holder.stateLosses?.delete(upstream);
  const { kind, parsedResult } = parsed(answer);
  const marked = withMeta(parsedResult, [[META.stateLost, JSON.stringify(loss)]]);
  return { kind, result: marked.toString(), parsedResult: marked } satisfies Result;
}
