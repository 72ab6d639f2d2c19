import type { Logger } from 'pino';
import { RawObject } from '../../json/json.ts';
import { type Answer, type Result, parsed } from '../../protocol/jsonrpc.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { CloseReason, Link } from '../../upstream/link.ts';
import type { ConnectionHolder, StateLoss } from '../exchange/connection-holder.ts';
import type { Exchange } from '../exchange/exchange.ts';

const CAUSES: Readonly<Record<StateLoss['reason'], string>> = {
  idle: 'was ended because it was not used for the time that "idle" allows',
  crash: 'ended by itself',
  forgotten: 'does not know its session any more',
  restored: 'was ended when the gateway was restarted, or released this session as unused',
};

/**
 * Reports that an upstream has lost the state it kept for a client: in the log, in a metric, as a log message to the client,
 * and in the `_meta` of the next answer of that upstream.
 */
export class StateLosses {
  readonly #metrics: Metrics;
  readonly #log: Logger;

  constructor(metrics: Metrics, log: Logger) {
    this.#metrics = metrics;
    this.#log = log;
  }

  /** Reports it for every user of a link that has closed. State exists once a call was answered. */
  onLinkClosed(link: Link<Exchange, ConnectionHolder>, reason: CloseReason): void {
    if (reason === 'released' || !link.hasAnswered || link.users.size === 0) return;
    this.#report(link.upstream, reason, link.users);
  }

  /** Reports it for a session that was restored from its id, at the upstreams where it had state. */
  onRestored(holder: ConnectionHolder, upstreams: Iterable<string>): void {
    for (const upstream of upstreams) this.#report(upstream, 'restored', [holder]);
  }

  #report(upstream: string, reason: StateLoss['reason'], holders: Iterable<ConnectionHolder>): void {
    const loss: StateLoss = { upstream, reason, at: new Date().toISOString() };
    const message = `upstream "${upstream}" ${CAUSES[reason]}: the state that it kept for this client is lost`;
    const params = RawObject.of({ level: 'warning', logger: 'linkspan', data: { ...loss, message } });
    let clients = 0;
    for (const holder of holders) {
      clients++;
      holder.stateLosses ??= new Map();
      holder.stateLosses.set(upstream, loss);
      holder.sendLog('warning', params);
      this.#metrics.upstreamStateLost(upstream, reason);
    }
    this.#log.warn({ upstream, reason, clients }, 'upstream lost the state that it kept for clients');
  }
}

/** The answer of an upstream, with the loss of its state in `_meta` where that was not reported to this client yet. */
export function withStateLoss(holder: ConnectionHolder, upstream: string, answer: Answer): Answer {
  const loss = holder.stateLosses?.get(upstream);
  if (loss === undefined || answer.kind === 'error') return answer;
  holder.stateLosses?.delete(upstream);
  const { kind, parsedResult } = parsed(answer);
  const marked = withMeta(parsedResult, [[META.stateLost, JSON.stringify(loss)]]);
  return { kind, result: marked.toString(), parsedResult: marked } satisfies Result;
}
