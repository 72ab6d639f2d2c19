import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ExportResult, ExportResultCode } from '@opentelemetry/core';
import { type SpanExporter, TracerProvider } from '@opentelemetry/sdk-trace';
import { LIMITS } from '../../../src/limits.ts';
import { exportQueue } from '../../../src/telemetry/tracing/export-queue.ts';

/** An exporter that keeps each batch until the test ends it. */
class SlowExporter implements SpanExporter {
  readonly batches: { readonly count: number; readonly end: (result: ExportResult) => void }[] = [];
  #isSlow = true;

  export(spans: readonly unknown[], end: (result: ExportResult) => void): void {
    if (this.#isSlow) this.batches.push({ count: spans.length, end });
    else end({ code: ExportResultCode.SUCCESS });
  }

  /** Ends all batches, and every later one at once. */
  hurry(): void {
    this.#isSlow = false;
    for (const { end } of this.batches) end({ code: ExportResultCode.SUCCESS });
  }

  shutdown(): Promise<void> {
    return Promise.resolve();
  }
}

function queue() {
  const exporter = new SlowExporter();
  const counts = { exported: 0, failed: 0, dropped: 0 };
  const processor = exportQueue(exporter, {
    onExported: (count) => (counts.exported += count),
    onFailed: (count) => (counts.failed += count),
    onDropped: () => (counts.dropped += 1),
  });
  const tracer = new TracerProvider({ spanProcessors: [processor] }).getTracer('test');
  const end = (count: number) => {
    for (let i = 0; i < count; i++) tracer.startSpan('one').end();
  };
  return {
    exporter,
    counts,
    end,
    [Symbol.asyncDispose]: async () => {
      exporter.hurry();
      await processor.shutdown();
    },
  };
}

test('limit traceSpans: spans beyond it are dropped and counted, also during an export', async () => {
  await using slow = queue();
  const { exporter, counts, end } = slow;
  end(LIMITS.traceSpans + 3);
  assert.ok(exporter.batches.length > 0);
  assert.deepEqual(counts, { exported: 0, failed: 0, dropped: 3 });
});

test('an ended export makes room, whether it succeeded or failed', async () => {
  await using slow = queue();
  const { exporter, counts, end } = slow;
  end(LIMITS.traceSpans);
  const [batch] = exporter.batches;
  assert.ok(batch !== undefined);
  batch.end({ code: ExportResultCode.SUCCESS });
  end(batch.count);
  assert.deepEqual(counts, { exported: batch.count, failed: 0, dropped: 0 });
  end(1);
  assert.equal(counts.dropped, 1);
});
