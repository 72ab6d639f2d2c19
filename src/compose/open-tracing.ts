import { readFile } from 'node:fs/promises';
import type { Logger } from 'pino';
import type { Config } from '../config/values/config.ts';
import type { EgressConfig } from '../config/values/credentials.ts';
import type { AgentOf } from '../telemetry/tracing/otel.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { Tracing } from '../telemetry/tracing/tracing.ts';
import { VERSION } from '../version.ts';

/** Starts tracing if the config or the environment asks for it. Loads the OpenTelemetry SDK only then. */
export async function openTracing(config: Config, metrics: Metrics, log: Logger): Promise<Tracing | undefined> {
  if (config.tracing === undefined) return undefined;
  const { startTracing } = await import('../telemetry/tracing/otel.ts');
  let isFailing = false;
  const events = {
    onExported: (count: number) => {
      metrics.countSpans('exported', count);
      if (isFailing) log.info('traces are exported again');
      isFailing = false;
    },
    onFailed: (count: number, error: Error | undefined) => {
      metrics.countSpans('failed', count);
      if (!isFailing) log.warn({ reason: error?.message }, 'traces cannot be exported');
      isFailing = true;
    },
    onDropped: () => metrics.countSpans('dropped', 1),
    onContextTooLong: () => metrics.countLimit('traceContextChars'),
  };
  return startTracing(config.tracing, VERSION, events, agentOf(config.egress, process.env));
}

/** Returns the agents for exports through the proxy of the config; undefined for direct connections. */
function agentOf(egress: EgressConfig | undefined, env: NodeJS.ProcessEnv): AgentOf | undefined {
  if (egress?.proxy === undefined) return undefined;
  return async (protocol) => {
    const { nodeAgent } = await import('../egress/node-agent.ts');
    const tls = protocol === 'https:' ? await certificatesIn(env) : undefined;
    return nodeAgent(protocol, { ...egress, tls });
  };
}

/** Reads the certificates that variables name. The exporter reads them only for agents of its own. */
async function certificatesIn(env: NodeJS.ProcessEnv): Promise<NonNullable<EgressConfig['tls']>> {
  const read = async (name: string) => {
    // An empty variable is like an absent one, as for the exporter.
    const files = [env[`OTEL_EXPORTER_OTLP_TRACES_${name}`], env[`OTEL_EXPORTER_OTLP_${name}`]];
    const file = files.map((text) => text?.trim()).find((text) => text !== undefined && text !== '');
    return file === undefined ? undefined : await readFile(file, 'utf8');
  };
  const [ca, cert, key] = await Promise.all([read('CERTIFICATE'), read('CLIENT_CERTIFICATE'), read('CLIENT_KEY')]);
  return { ca, cert, key };
}
