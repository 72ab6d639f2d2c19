import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError, toGatewayError } from '../errors.ts';
import type { RawObject } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { errorTypeOf, type ErrorType } from '../telemetry/operation.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Link } from '../upstream/link.ts';
import type { Upstream } from '../upstream/upstream.ts';
import { toClient } from './answers.ts';
import type { Exchange } from './exchange.ts';
import type { Links } from './links.ts';
import type { OpenExchange } from './open-exchange.ts';
import type { Party } from './party.ts';
import type { Route } from './route.ts';

export interface CallsParts {
  readonly upstreams: ReadonlyMap<string, Upstream<Exchange, Party>>;
  readonly links: Links;
  readonly metrics: Metrics;
}

/** How long after refusing a message an upstream's end has certainly been noticed. */
const RESEND_MS = 150;

/** Carries requests to the upstreams they belong to, at most once each, and brings the answers back in the client's words. */
export class Calls {
  readonly #parts: CallsParts;

  constructor(parts: CallsParts) {
    this.#parts = parts;
  }

  /** @throws {GatewayError} why there is no answer of the upstream. */
  async forward(exchange: OpenExchange, to: Route): Promise<Answer> {
    if (to.kind === 'nowhere') throw to.error;
    const upstream = this.#parts.upstreams.get(to.upstream);
    if (upstream === undefined) throw new GatewayError('internal-error');
    exchange.upstream = to.upstream;
    await exchange.enter(upstream.gate);
    try {
      const answer = await this.#call(exchange, upstream, to.params);
      return toClient(exchange, upstream.id, answer);
    } finally {
      exchange.leave();
    }
  }

  async #call(exchange: OpenExchange, upstream: Upstream<Exchange, Party>, params: RawObject): Promise<Answer> {
    const { party, request, progressToken } = exchange;
    const { callMs, maxMs } = upstream.config.timeouts;
    for (let attempt = 1; ; attempt++) {
      const { links } = this.#parts;
      const ready = links.ready(party, upstream.id);
      const link = ready ?? (await exchange.unlessCancelled(links.of(party, upstream.id)));
      link.usedMs = performance.now();
      const call = link.connection.call(request.method, params, {
        timeoutMs: callMs,
        maxMs,
        progress: progressToken !== undefined,
        owner: exchange,
      });
      exchange.begin(call);
      try {
        const answer = await call.answer;
        link.served = true;
        this.#called(exchange, upstream, link, errorTypeOf(request.method, answer));
        return answer;
      } catch (thrown) {
        this.#called(exchange, upstream, link, toGatewayError(thrown).code);
        if (attempt > 1 || !wasNeverSeen(thrown)) throw thrown;
        // A process that ended is known to be gone only a moment after it takes nothing any more.
        if (links.ready(party, upstream.id) === link) await sleep(RESEND_MS);
      } finally {
        upstream.release(link);
      }
    }
  }

  #called(
    { request, tool }: OpenExchange,
    upstream: Upstream<Exchange, Party>,
    link: Link<Exchange, Party>,
    error: ErrorType | undefined,
  ): void {
    const transport = upstream.config.target.kind === 'stdio' ? 'pipe' : 'tcp';
    const operation = { method: request.method, tool, error, revision: link.hello.revision, transport } as const;
    this.#parts.metrics.called(upstream.id, operation, (performance.now() - link.usedMs) / 1000);
  }
}

/** Only what the upstream said it did not take may be sent again. */
function wasNeverSeen(thrown: unknown): boolean {
  if (!(thrown instanceof GatewayError)) return false;
  const executed = thrown.detail.executed ?? thrown.row.executed;
  return executed === 'no' && (thrown.code === 'upstream-session-lost' || thrown.code === 'upstream-lost');
}
