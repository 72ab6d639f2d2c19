import { getHeapStatistics } from 'node:v8';
import type { Logger } from 'pino';
import type { UpdatedSettings } from '../config/changes/change-effects.ts';
import type { Config } from '../config/values/config.ts';
import type { HttpTarget, StdioTarget, UpstreamConfig, UpstreamTimeouts } from '../config/values/upstream-config.ts';
import { upstreamCredentials, type UpstreamCredentials } from '../credentials/upstream-credentials.ts';
import { IdentityKeys } from '../credentials/identity-keys.ts';
import { DIRECT_EGRESS, type EgressConfig } from '../config/values/credentials.ts';
import { Egress } from '../egress/egress.ts';
import type { GatewayError } from '../errors.ts';
import { bypassesProxy } from '../egress/proxy-bypass.ts';
import type { Wire } from '../http1/wire.ts';
import type { LimitName } from '../limits.ts';
import { Callers } from '../policy/callers.ts';
import type { Era } from '../protocol/revisions.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { CredentialOutcome } from '../telemetry/upstream-metrics.ts';
import type { CredentialSource } from '../upstream/connection-key.ts';
import { DroppedMessages } from '../upstream/rpc/dropped-messages.ts';
import { ReceivingBudget } from '../upstream/rpc/receiving-budget.ts';
import { AuthorizedWire } from '../upstream/http/authorized-wire.ts';
import { type HttpOptions, httpTransport } from '../upstream/http/http.ts';
import { modernHttpTransport } from '../upstream/http/http-modern.ts';
import { type ProxyOf, WireOpeners } from '../upstream/http/http-wire.ts';
import { sseTransport } from '../upstream/http/sse.ts';
import { UndeliveredMessages } from '../upstream/http/undelivered-messages.ts';
import type { StartTransport, TransportOption } from '../upstream/rpc/transport.ts';
import { mayDownload } from '../upstream/stdio/launch/downloads.ts';
import { WrapperCommands } from '../upstream/stdio/launch/wrapper-commands.ts';
import { MemoryWatch } from '../upstream/stdio/memory-watch.ts';
import { ProcessGuard } from '../upstream/stdio/process-guard.ts';
import { type ProcessUsage, ProcessUsages } from '../upstream/stdio/process-usage.ts';
import { stdioTransport } from '../upstream/stdio/stdio.ts';
import { VERSION } from '../version.ts';

export interface UpstreamTransport {
  /** In order of preference. */
  readonly options: readonly TransportOption[];
  /** The credentials that the upstream gets. */
  readonly credentials: CredentialSource;
  /** Applies headers, timeouts and limits. Open connections use them for their next request, and open event streams when they are opened again. */
  update(upstream: UpstreamConfig, limits: Config['limits']): void;
  /** Closes the sockets of the upstream. Its connections must be closed before. */
  close(): Promise<void>;
}

/** The transports to upstreams, and the resources that they share. */
export interface UpstreamTransports extends AsyncDisposable {
  /** Sends requests to issuers, and questions about access. */
  readonly egress: Egress;
  /** Resolves when transports to the upstreams of a config can be made, and its questions about access can be sent. */
  prepare(config: Pick<Config, 'upstreams' | 'access'>): Promise<void>;
  transportTo(upstream: UpstreamConfig, limits: Config['limits']): UpstreamTransport;
  /** Resolves with the number and memory of the processes of stdio upstreams, by upstream id. */
  processUsage(): Promise<ReadonlyMap<string, ProcessUsage>>;
}

const MAX_RECEIVING_BYTES = 64 * 1_048_576;
/** The default of the budget of received messages is this fraction (1/n) of the heap limit. */
const HEAP_FRACTION = 8;

type Mutable<T> = { -readonly [K in keyof T]: T[K] };

/** The parts that the credentials of upstreams share with other parts of the gateway. */
export interface CredentialSurroundings {
  /** The principals that the edge authenticates. */
  readonly callers?: Callers | undefined;
  /** The keys of identity tokens. */
  readonly identity?: IdentityKeys | undefined;
  /** Sends requests to issuers, and questions about access. Whoever gives it disposes of it. Default: one of the transports' own. */
  readonly egress?: Egress | undefined;
  /** Directory for the printers of wrapper commands. Default: the state directory. */
  readonly printerDir?: string | undefined;
}

/** Creates transports over stdio and HTTP. Disposing closes the resources that they share. */
export async function upstreamTransports(
  config: Config,
  metrics: Metrics,
  log: Logger,
  surroundings: CredentialSurroundings = {},
): Promise<UpstreamTransports> {
  const onLimit = (limit: LimitName) => metrics.countLimit(limit);
  const wires = new WireOpeners(proxyOf(config.egress), onLimit);
  const { identity = new IdentityKeys(), egress = new Egress(config.egress, undefined, onLimit) } = surroundings;
  const prepare = async ({ upstreams, access }: Pick<Config, 'upstreams' | 'access'>) => {
    // The deadline of a first question is too short for it.
    if (access?.external !== undefined) await egress.prepare();
    await wires.prepare(upstreams.map(({ target }) => target));
  };
  await prepare(config);
  const guard = new ProcessGuard(log);
  const { callers = new Callers(onLimit), printerDir = config.stateDir } = surroundings;
  const wrappers = new WrapperCommands(printerDir, guard, log, onLimit);
  const usages = new ProcessUsages(guard.tagged, onLimit);
  const memory = new MemoryWatch(guard.tagged);
  const ownFiles = { configFile: config.file, stateDir: config.stateDir };
  const open = new Set<Wire>();
  const receiving = receivingBudget(config.limits, metrics);

  const stdioTo = ({ id, era }: UpstreamConfig, target: StdioTarget, messageBytes: number): UpstreamTransport => {
    const onNonProtocolOutput = () => metrics.countNonProtocolOutput(id);
    const shared = { receiving, log, guard, wrappers, memory, ownFiles, onLimit };
    const options = { upstream: id, messageBytes, onNonProtocolOutput, ...shared };
    const start = stdioTransport(target, options);
    const option = { isProcess: true, mayDownload: mayDownload(target.command), hasCallStreams: false, start };
    return {
      options: [{ era: era === 'auto' ? 'either' : era, ...option }],
      credentials: 'gateway',
      update: (_next, limits) => {
        options.messageBytes = limits.messageBytes;
      },
      close: () => Promise.resolve(),
    };
  };

  const credentialsOf = ({ id }: UpstreamConfig, { auth }: HttpTarget): UpstreamCredentials | undefined => {
    const onAttempt = (outcome: CredentialOutcome) => metrics.countCredentials(id, outcome);
    const parts = { upstream: id, egress, callers, identity, log, onAttempt, onLimit };
    return auth === undefined ? undefined : upstreamCredentials(auth, parts);
  };

  const httpTo = (upstream: UpstreamConfig, configured: HttpTarget, messageBytes: number): UpstreamTransport => {
    const { id, era } = upstream;
    // The transports read these when they send.
    const target: HttpTarget = { ...configured };
    const timeouts: Mutable<UpstreamTimeouts> = { ...upstream.timeouts };
    const wire = wires.open(target, timeouts);
    open.add(wire);
    const userAgent = `linkspan/${VERSION}`;
    const undelivered = new UndeliveredMessages(onLimit);
    const ownLog = log.child({ upstream: id });
    const dropped = new DroppedMessages(ownLog);
    const shared = { receiving, undelivered, dropped, log: ownLog, wire, userAgent, onLimit };
    const options = { upstream: id, timeouts, messageBytes, ...shared };
    const credentials = credentialsOf(upstream, configured);
    const startWith = (transport: HttpTransportOf): StartTransport =>
      credentials === undefined
        ? transport(target, options)
        : authorized(transport, target, options, credentials, () => wires.open(target, timeouts));
    const optionOf = (optionEra: Era, hasCallStreams: boolean, transport: HttpTransportOf): TransportOption => ({
      era: optionEra,
      isProcess: false,
      hasCallStreams,
      start: startWith(transport),
    });
    const sse = optionOf('legacy', false, sseTransport);
    const modern = optionOf('modern', true, modernHttpTransport);
    const legacy = { ...optionOf('legacy', true, httpTransport), canAttach: true };
    const both = [...(era === 'legacy' ? [] : [modern]), ...(era === 'modern' ? [] : [legacy, sse])];
    return {
      options: target.kind === 'sse' ? [sse] : both,
      credentials: credentials?.source ?? 'gateway',
      update: (next, limits) => {
        if (next.target.kind !== 'stdio') {
          const updated: UpdatedSettings<HttpTarget> = { headers: next.target.headers };
          Object.assign(target, updated);
          if (next.target.auth !== undefined) credentials?.update(next.target.auth);
        }
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
    egress,
    prepare,
    transportTo: (upstream, { messageBytes }) => {
      const { target } = upstream;
      return target.kind === 'stdio' ? stdioTo(upstream, target, messageBytes) : httpTo(upstream, target, messageBytes);
    },
    processUsage: () => usages.byUpstream(),
    [Symbol.asyncDispose]: async () => {
      await Promise.all([...open].map((wire) => wire.destroy()));
      if (surroundings.egress === undefined) await egress[Symbol.asyncDispose]();
      await guard[Symbol.asyncDispose]();
    },
  };
}

/** Creates the budget of messages from upstreams, by default a fraction of the heap: a process with a small heap keeps less. */
function receivingBudget({ messageTotalBytes }: Config['limits'], metrics: Metrics): ReceivingBudget {
  const bytes = messageTotalBytes ?? Math.min(MAX_RECEIVING_BYTES, getHeapStatistics().heap_size_limit / HEAP_FRACTION);
  const budget = new ReceivingBudget(bytes, () => metrics.countBudgetRefusal('messages'));
  metrics.reportHeldBytes('messages', () => budget.bytes);
  return budget;
}

/** Returns the choice of the proxy for upstreams; undefined if there is no proxy. */
function proxyOf({ proxy, noProxy }: EgressConfig = DIRECT_EGRESS): ProxyOf | undefined {
  if (proxy === undefined) return undefined;
  return (host, port) => (bypassesProxy(noProxy, host, port) ? undefined : proxy);
}

type HttpTransportOf = (target: HttpTarget, options: HttpOptions) => StartTransport;

/**
 * Returns the start of a transport whose requests carry the credentials of its audience. The transports of each principal have sockets of their own.
 */
function authorized(
  transport: HttpTransportOf,
  target: HttpTarget,
  options: HttpOptions,
  { requests, source }: UpstreamCredentials,
  openWire: () => Wire,
): StartTransport {
  return async (events, signal, request) => {
    const { audience } = request;
    const own = source === 'gateway' ? undefined : openWire();
    const wire = new AuthorizedWire(own ?? options.wire, requests, audience);
    const start = transport(target, {
      ...options,
      wire,
      get messageBytes() {
        return options.messageBytes;
      },
    });
    if (own === undefined) return await start(events, signal, request);
    const onClose = (error: GatewayError) => {
      void own.destroy();
      events.onClose(error);
    };
    try {
      return await start({ ...events, onClose }, signal, request);
    } catch (thrown) {
      await own.destroy();
      throw thrown;
    }
  };
}
