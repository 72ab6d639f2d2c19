import type { Logger } from 'pino';
import type { Config } from '../config/config.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import { VERSION } from '../version.ts';

/** Starts tracing if the config or the environment asks for it. Loads the OpenTelemetry SDK only then. */
export async function openTracing(config: Config, metrics: Metrics, log: Logger): Promise<Tracing | undefined> {
  if (config.tracing === undefined) return undefined;
  const { startTracing } = await import('../telemetry/tracing/otel.ts');
  let isFailing = false;
  return startTracing(config.tracing, VERSION, {
    onExported: (count) => {
      metrics.countSpans('exported', count);
      if (isFailing) log.info('traces are exported again');
      isFailing = false;
    },
    onFailed: (count, error) => {
      metrics.countSpans('failed', count);
      if (!isFailing) log.warn({ reason: error?.message }, 'traces cannot be exported');
      isFailing = true;
    },
    onDropped: () => metrics.countSpans('dropped', 1),
    onContextTooLong: () => metrics.countLimit('traceContextChars'),
  });
}
