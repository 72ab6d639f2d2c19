import type { Logger } from 'pino';
import type { Config, HttpTarget, StdioTarget, UpstreamConfig, UpstreamTimeouts } from '../config/config.ts';
import type { Wire } from '../http1/wire.ts';
import type { LimitName } from '../limits.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { CredentialSource } from '../upstream/connection-key.ts';
import { httpTransport } from '../upstream/http/http.ts';
import { modernHttpTransport } from '../upstream/http/http-modern.ts';
import { WireOpeners } from '../upstream/http/http-wire.ts';
import { sseTransport } from '../upstream/http/sse.ts';
import type { TransportOption } from '../upstream/rpc/transport.ts';
import { WrapperCommands } from '../upstream/stdio/wrapper-commands.ts';
import { ProcessGuard } from '../upstream/stdio/process-guard.ts';
import { type ProcessUsage, ProcessUsages } from '../upstream/stdio/process-usage.ts';
import { stdioTransport } from '../upstream/stdio/stdio.ts';
import { VERSION } from '../version.ts';

/** The transports to one upstream. */
export interface UpstreamTransport {
  /** In order of preference. */
  readonly options: readonly TransportOption[];
  /** The credentials that the upstream gets. */
  readonly credentials: CredentialSource;
  /** Applies headers, timeouts and limits. Open connections use them for their next request, except for the size of messages. */
  update(upstream: UpstreamConfig, limits: Config['limits']): void;
  /** Closes the sockets of the upstream. Its connections must be closed before. */
  close(): Promise<void>;
}

/** The transports to upstreams, and the resources that they share. */
export interface UpstreamTransports extends AsyncDisposable {
  /** Resolves when transports to these upstreams can be made. */
  prepare(upstreams: readonly UpstreamConfig[]): Promise<void>;
  /** Returns the transports to one upstream. */
  transportTo(upstream: UpstreamConfig, limits: Config['limits']): UpstreamTransport;
  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
}

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** Creates transports over stdio and HTTP. Disposing closes the resources that they share. */
export async function upstreamTransports(config: Config, metrics: Metrics, log: Logger): Promise<UpstreamTransports> {
  const wires = new WireOpeners();
  const prepare = (upstreams: readonly UpstreamConfig[]) => wires.prepare(upstreams.map(({ target }) => target));
  await prepare(config.upstreams);
  const guard = new ProcessGuard(log);
  const onLimit = (limit: LimitName) => metrics.limitReached(limit);
  const wrappers = new WrapperCommands(config.stateDir, guard, log, onLimit);
  const usages = new ProcessUsages(guard.tagged, onLimit);
  const open = new Set<Wire>();

  const stdioTo = ({ id, era }: UpstreamConfig, target: StdioTarget, messageBytes: number): UpstreamTransport => {
    const onNonProtocolOutput = () => metrics.stdioJunk(id);
    const options = { upstream: id, messageBytes, log, guard, wrappers, onNonProtocolOutput, onLimit };
    const start = stdioTransport(target, options);
    return {
      options: [{ era: era === 'auto' ? 'either' : era, isProcess: true, hasCallStreams: false, start }],
      credentials: 'gateway',
      update: (_next, limits) => {
        options.messageBytes = limits.messageBytes;
      },
      close: () => Promise.resolve(),
    };
  };

  const httpTo = (upstream: UpstreamConfig, configured: HttpTarget, messageBytes: number): UpstreamTransport => {
    const { id, era } = upstream;
    // The transports read these when they send.
    const target: Mutable<HttpTarget> = { ...configured };
    const timeouts: Mutable<UpstreamTimeouts> = { ...upstream.timeouts };
    const wire = wires.open(target, timeouts);
    open.add(wire);
    const options = { upstream: id, timeouts, messageBytes, log, wire, userAgent: `linkspan/${VERSION}`, onLimit };
    const isProcess = false;
    const startSse = sseTransport(target, options);
    const sse: TransportOption = { era: 'legacy', isProcess, hasCallStreams: false, start: startSse };
    const startModern = modernHttpTransport(target, options);
    const modern: TransportOption = { era: 'modern', isProcess, hasCallStreams: true, start: startModern };
    const startHttp = httpTransport(target, options);
    const legacy: TransportOption = { era: 'legacy', isProcess, hasCallStreams: true, start: startHttp };
    const both = [...(era === 'legacy' ? [] : [modern]), ...(era === 'modern' ? [] : [legacy, sse])];
    return {
      options: target.kind === 'sse' ? [sse] : both,
      // The headers in the config.
      credentials: 'gateway',
      update: (next, limits) => {
        if (next.target.kind !== 'stdio') target.headers = next.target.headers;
        Object.assign(timeouts, next.timeouts);
        options.messageBytes = limits.messageBytes;
      },
      close: async () => {
        open.delete(wire);
        await wire.destroy();
      },
    };
  };

  return {
    prepare,
    transportTo: (upstream, { messageBytes }) => {
      const { target } = upstream;
      return target.kind === 'stdio' ? stdioTo(upstream, target, messageBytes) : httpTo(upstream, target, messageBytes);
    },
    processUsage: () => usages.byUpstream(),
    [Symbol.asyncDispose]: async () => {
      await Promise.all([...open].map((wire) => wire.destroy()));
      await guard[Symbol.asyncDispose]();
    },
  };
}
