import { TraceFlags } from '@opentelemetry/api';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { BatchSpanProcessor, type SpanExporter, type SpanProcessor } from '@opentelemetry/sdk-trace';
import { LIMITS } from '../../limits.ts';

/** Receives the outcome of exports. */
export interface ExportEvents {
  /** Called with the number of spans that the receiver has accepted. */
  onExported(count: number): void;
  /** Called with the number of spans that could not be exported and are lost. */
  onFailed(count: number, error: Error | undefined): void;
  /** Called when a span was dropped, because {@link LIMITS.traceSpans} wait already. */
  onDropped(): void;
}

/**
 * Returns a processor that exports ended spans in batches. The queue of the SDK alone does not count what it drops, and not
 * the spans that are being exported.
 */
export function exportQueue(exporter: SpanExporter, events: ExportEvents): SpanProcessor {
  let heldCount = 0;
  const onResult = (count: number, { code, error }: ExportResult) => {
    heldCount -= count;
    if (code === ExportResultCode.SUCCESS) events.onExported(count);
    else events.onFailed(count, error);
  };
  const counting: SpanExporter = {
    export: (spans, done) =>
      exporter.export(spans, (result) => {
        onResult(spans.length, result);
        done(result);
      }),
    shutdown: () => exporter.shutdown(),
  };
  const batches = new BatchSpanProcessor({ exporter: counting, maxQueueSize: LIMITS.traceSpans });
  return {
    onStart: () => undefined,
    onEnd: (span) => {
      if ((span.spanContext().traceFlags & TraceFlags.SAMPLED) === 0) return;
      if (heldCount >= LIMITS.traceSpans) {
        events.onDropped();
        return;
      }
      heldCount++;
      batches.onEnd(span);
    },
    forceFlush: () => batches.forceFlush(),
    shutdown: () => batches.shutdown(),
  };
}
