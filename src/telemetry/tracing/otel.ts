import { randomUUID } from 'node:crypto';
import type { Agent } from 'node:http';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto';
import { defaultResource, detectResources, envDetector, resourceFromAttributes } from '@opentelemetry/resources';
import { TracerProvider } from '@opentelemetry/sdk-trace';
import type { TracingConfig } from '../../config/values/config.ts';
import { settlesWithin } from '../../deadline.ts';
import { readTraceContext, type TraceContext, traceContextIn } from '../../protocol/trace-context.ts';
import { type ExportEvents, exportQueue } from './export-queue.ts';
import { nameOf } from './mcp-spans.ts';
import { beginSpan, contextFrom } from './otel-spans.ts';
import { samplerOf } from './sampler.ts';
import type { Tracing } from './tracing.ts';

/** The longest wait for the export of the last spans. */
const LAST_EXPORT_MS = 3_000;

/** The parts that tracing needs of the rest of the program. */
export interface TracingEvents extends ExportEvents {
  /** A trace context of a client is longer than {@link LIMITS.traceContextChars}, and was ignored. */
  onContextTooLong(): void;
}

/** Returns an agent for connections by a protocol such as `https:`. */
export type AgentOf = (protocol: string) => Promise<Agent>;

/**
 * Starts to trace, and to export traces by OTLP over HTTP. Variables `OTEL_…` set what the config leaves out.
 *
 * @param agentOf by default, connections are direct.
 */
export function startTracing(
  { endpoint, sampling }: TracingConfig,
  version: string,
  events: TracingEvents,
  agentOf?: AgentOf,
): Tracing {
  const options = {
    ...(endpoint === undefined ? {} : { url: endpoint }),
    ...(agentOf === undefined ? {} : { httpAgentOptions: agentOf }),
  };
  const own = resourceFromAttributes({
    'service.name': 'linkspan',
    'service.version': version,
    'service.instance.id': randomUUID(),
  });
  const provider = new TracerProvider({
    resource: defaultResource()
      .merge(own)
      .merge(detectResources({ detectors: [envDetector] })),
    sampler: samplerOf(sampling, process.env),
    spanProcessors: [exportQueue(new OTLPTraceExporter(options), events)],
  });
  const tracer = provider.getTracer('linkspan', version);
  const parse = (sent: TraceContext | undefined) =>
    sent === undefined ? undefined : contextFrom(sent, () => events.onContextTooLong());

  return {
    beginRequest: ({ method, params }, header) => {
      const inMessage = parse(traceContextIn(params));
      const inHeaders = parse(header === undefined ? undefined : readTraceContext(header));
      const span = beginSpan(tracer, 'server', nameOf(method), inMessage ?? inHeaders);
      if (inMessage !== undefined && inHeaders !== undefined) span.linkTo(inHeaders);
      return span;
    },
    begin: (kind, name) => beginSpan(tracer, kind, name),
    [Symbol.asyncDispose]: async () => {
      // A failed export is reported as an event.
      await settlesWithin(provider.shutdown(), LAST_EXPORT_MS);
    },
  };
}
