import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import type { Header } from '../../protocol/framing/mcp-headers.ts';
import { upstreamErrorTypeOf } from '../../telemetry/operation.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { endOfOperation, nameOf } from '../../telemetry/tracing/mcp-spans.ts';
import type { Call } from '../../upstream/rpc/call.ts';
import type { StateLosses } from '../connections/state-losses.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';

export interface SendOptions {
  /** Default: the method of the exchange. */
  readonly method?: string;
  readonly params: RawObject;
  readonly paramHeaders?: readonly Header[];
  /** The time without a message of the upstream after which the request fails. Default: that of its method. */
  readonly silentMs?: number;
  /** For a call that may become a task: returns the call with another way to cancel it. */
  readonly asCancellable?: (call: Call<Exchange>) => Call<Exchange>;
}

/** Sends requests to upstreams on behalf of client requests, and counts them. */
export class Sender {
  readonly #metrics: Metrics;
  readonly #losses: StateLosses;

  constructor(metrics: Metrics, losses: StateLosses) {
    this.#metrics = metrics;
    this.#losses = losses;
  }

  send(exchange: OpenExchange, upstream: Upstream, link: Link, sending: SendOptions): Call<Exchange> {
    const { request, progressToken, client } = exchange;
    const { method = request.method, params, paramHeaders, silentMs, asCancellable } = sending;
    const { callMs, toolMs, maxMs } = upstream.config.timeouts;
    const progress = progressToken !== undefined && method === request.method;
    const dialect = UPSTREAM_DIALECTS[link.era];
    const span = exchange.span?.child('client', nameOf(method));
    // Taken before the end: a task keeps its call, which must not keep the arguments.
    const names = span === undefined ? {} : namesIn(method, params);
    let id: string | undefined;
    const call = link.connection.call(method, params, {
      timeoutMs: silentMs ?? (method === 'tools/call' ? toolMs : callMs),
      maxMs: Math.max(maxMs, silentMs ?? 0),
      progress,
      outlivesAnswer: progress && asCancellable !== undefined,
      context: exchange,
      sender: client,
      capabilities: dialect.envelopeCapabilities(upstream, client),
      logLevel: dialect.envelopeLogLevel(client),
      paramHeaders,
      trace: span?.context,
      onEnd: (answer, durationMs) => {
        const isAnswer = !(answer instanceof GatewayError);
        if (isAnswer) this.#losses.onAnswered(exchange.holder, link);
        const error = isAnswer ? upstreamErrorTypeOf(method, answer) : answer.code;
        exchange.outcome = { answer, error };
        const transport = upstream.config.target.kind === 'stdio' ? 'pipe' : 'tcp';
        // A request about the task of a call is none of the tool.
        const tool = method === 'tools/call' ? exchange.tool : undefined;
        const operation = { method, tool, error, revision: link.hello.revision, transport } as const;
        this.#metrics.recordUpstreamRequest(upstream.id, operation, durationMs / 1000);
        if (span === undefined) return;
        span.end(endOfOperation({ ...operation, ...names, id, answer, upstream: upstream.id }));
      },
    });
    if (span !== undefined) id = String(call.id);
    link.usedMs = call.startedMs;
    const attached = asCancellable === undefined ? call : asCancellable(call);
    exchange.attachCall(attached);
    return attached;
  }
}

/** Returns the name by which the upstream knows the tool or prompt of a request. */
function namesIn(method: string, params: RawObject): { readonly tool?: string; readonly prompt?: string } {
  const name = params.string('name');
  if (name === undefined) return {};
  if (method === 'tools/call') return { tool: name };
  return method === 'prompts/get' ? { prompt: name } : {};
}
