import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { Header } from '../../protocol/framing/mcp-headers.ts';
import { errorTypeOf } from '../../telemetry/operation.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import type { StateLosses } from '../connections/state-losses.ts';
import type { Exchange } from '../exchange/exchange.ts';
import { modernCapabilities } from '../exchange/client-capabilities.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';

/** What is sent to an upstream for an exchange. */
export interface Sending {
  /** The exchange's own, unless given. */
  readonly method?: string;
  readonly params: RawObject;
  readonly headers?: readonly Header[];
  /** How long the upstream may say nothing, where that is more than for other calls. Milliseconds. */
  readonly silentMs?: number;
  /** Of a call that may become a task: the call as one that a cancel ends in another way. */
  readonly cancelled?: (call: Call<Exchange>) => Call<Exchange>;
}

/** Sends one request to an upstream, on behalf of a client's, and counts it. */
export class Sender {
  readonly #metrics: Metrics;
  readonly #losses: StateLosses;

  constructor(metrics: Metrics, losses: StateLosses) {
    this.#metrics = metrics;
    this.#losses = losses;
  }

  send(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    sending: Sending,
  ): Call<Exchange> {
    const { request, progressToken, client } = exchange;
    const { method = request.method, params, headers, silentMs, cancelled } = sending;
    const { callMs, maxMs } = upstream.config.timeouts;
    const progress = progressToken !== undefined && method === request.method;
    const isModern = link.era === 'modern';
    const call = link.connection.call(method, params, {
      timeoutMs: silentMs ?? callMs,
      maxMs: Math.max(maxMs, silentMs ?? 0),
      progress,
      outlivesAnswer: progress && cancelled !== undefined,
      context: exchange,
      capabilities: isModern ? upstream.usableCapabilities(modernCapabilities(client)) : undefined,
      logLevel: isModern ? client.logLevel : undefined,
      headers,
      onEnd: (answer, durationMs) => {
        const isAnswer = !(answer instanceof GatewayError);
        if (isAnswer) this.#losses.onAnswered(exchange.holder, link);
        const error = isAnswer ? errorTypeOf(method, answer) : answer.code;
        exchange.outcome = { answer, error };
        const transport = upstream.config.target.kind === 'stdio' ? 'pipe' : 'tcp';
        const operation = { method, tool: exchange.tool, error, revision: link.hello.revision, transport } as const;
        this.#metrics.called(upstream.id, operation, durationMs / 1000);
      },
    });
    link.usedMs = call.startedMs;
    const begun = cancelled === undefined ? call : cancelled(call);
    exchange.attachCall(begun);
    return begun;
  }
}
