import type { Logger } from 'pino';
import type { Config, UpstreamConfig } from '../config/config.ts';
import type { Wire } from '../http1/wire.ts';
import type { LimitName } from '../limits.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import { httpTransport } from '../upstream/http/http.ts';
import { modernHttpTransport } from '../upstream/http/http-modern.ts';
import { wireOpener } from '../upstream/http/http-wire.ts';
import { sseTransport } from '../upstream/http/sse.ts';
import type { TransportOption } from '../upstream/rpc/transport.ts';
import { WrapperCommands } from '../upstream/stdio/wrapper-commands.ts';
import { ProcessGuard } from '../upstream/stdio/process-guard.ts';
import { type ProcessUsage, ProcessUsages } from '../upstream/stdio/process-usage.ts';
import { stdioTransport } from '../upstream/stdio/stdio.ts';
import { VERSION } from '../version.ts';

/** The transports to upstreams, and the resources that they share. */
export interface UpstreamTransports extends AsyncDisposable {
  /** Returns the transports for one upstream, in order of preference. */
  transportsTo(upstream: UpstreamConfig): readonly TransportOption[];
  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
}

/** Creates transports over stdio and HTTP. Disposing closes the resources that they share. */
export async function upstreamTransports(config: Config, metrics: Metrics, log: Logger): Promise<UpstreamTransports> {
  const openWire = await wireOpener(config.upstreams.map(({ target }) => target));
  const guard = new ProcessGuard(log);
  const onLimit = (limit: LimitName) => metrics.limitReached(limit);
  const wrappers = new WrapperCommands(config.stateDir, guard, log, onLimit);
  const usages = new ProcessUsages(guard.tagged, onLimit);
  const shared: Wire[] = [];
  return {
    transportsTo: ({ id, target, era, timeouts }) => {
      const { messageBytes } = config.limits;
      if (target.kind === 'stdio') {
        const onNonProtocolOutput = () => metrics.stdioJunk(id);
        const start = stdioTransport(target, {
          upstream: id,
          messageBytes,
          log,
          guard,
          wrappers,
          onNonProtocolOutput,
          onLimit,
        });
        return [{ era: era === 'auto' ? 'either' : era, isProcess: true, hasCallStreams: false, start }];
      }
      const wire = openWire(target, timeouts);
      shared.push(wire);
      const options = { upstream: id, timeouts, messageBytes, log, wire, userAgent: `linkspan/${VERSION}`, onLimit };
      const isProcess = false;
      const startSse = sseTransport(target, options);
      const sse: TransportOption = { era: 'legacy', isProcess, hasCallStreams: false, start: startSse };
      if (target.kind === 'sse') return [sse];
      const startModern = modernHttpTransport(target, options);
      const modern: TransportOption = { era: 'modern', isProcess, hasCallStreams: true, start: startModern };
      const startHttp = httpTransport(target, options);
      const legacy: TransportOption = { era: 'legacy', isProcess, hasCallStreams: true, start: startHttp };
      return [...(era === 'legacy' ? [] : [modern]), ...(era === 'modern' ? [] : [legacy, sse])];
    },
    processUsage: () => usages.byUpstream(),
    [Symbol.asyncDispose]: async () => {
      await Promise.all(shared.map((wire) => wire.destroy()));
      await guard[Symbol.asyncDispose]();
    },
  };
}
