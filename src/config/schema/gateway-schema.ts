import { z } from 'zod';

import { accessSchema } from './access-schema.ts';
import { ON_CHANGE } from '../../lock/pins.ts';
import { ACCESS_LOGS, LOG_LEVELS } from '../values/config.ts';
import { auditSchema } from './audit-schema.ts';
import { apiKey, authSchema } from './auth-schema.ts';
import { egressSchema } from './credentials-schema.ts';
import { otlpEndpoint } from './otlp-schema.ts';
import { KEY_COMMAND, randomKey } from './random-key.ts';
import { parseRedisUrl } from './redis-url.ts';
import { serverTls } from './tls-schema.ts';
import { ratesSchema, repeatsSchema } from './rates-schema.ts';
import {
  address,
  count,
  duration,
  endpointPaths,
  flag,
  networks,
  oneOf,
  origin,
  pageOrigin,
  parsedBy,
  size,
  text,
  texts,
} from './scalars.ts';

const limits = z.strictObject({
  body: size('1KiB', '1GiB').prefault('4MiB').describe('One HTTP request from a client.'),
  message: size('1KiB', '1GiB').prefault('16MiB').describe('One message from an upstream.'),
  processes: count(0, 100_000).prefault(128).describe('stdio processes, all upstreams together.'),
  sessions: count(1, 10_000_000).prefault(100_000).describe('Open sessions of all principals in one process.'),
  sessionsPerPrincipal: count(1, 1_000_000).prefault(1_000).describe('Open sessions of one principal.'),
  parkedPerPrincipal: count(1, 1_000_000)
    .prefault(256)
    .describe(
      'Calls of one principal that wait at an older upstream for an answer of their 2026-07-28 client; and as many tasks.',
    ),
  parkedPerUpstream: count(1, 1_000_000).prefault(1_024).describe('The same calls at one upstream.'),
  inFlightPerSession: count(1, 100_000).prefault(256).describe('Requests in flight in one session.'),
  inFlightPerPrincipal: count(1, 1_000_000)
    .optional()
    .describe('Requests of one principal at upstreams, in all its sessions together. Default: no limit.'),
  streamsPerPrincipal: count(1, 1_000_000)
    .prefault(1_000)
    .describe('Open subscriptions/listen streams of one principal, and as many GET /sse streams.'),
  bodyTotal: size('1MiB', '1024GiB')
    .optional()
    .describe(
      'All unfinished request bodies together, and as much for bodies above 32 KiB whose requests are not answered. ' +
        'Half of it is for one principal, whose larger requests are refused. ' +
        'Default: an eighth of the heap limit, at most 128MiB, at least four times body.',
    ),
  messageTotal: size('1MiB', '1024GiB')
    .optional()
    .describe(
      'All unfinished messages from upstreams together; half of it for one upstream. Beyond it, upstreams have to wait. ' +
        'Default: an eighth of the heap limit, at most 64MiB.',
    ),
  unsentTotal: size('1MiB', '1024GiB')
    .optional()
    .describe(
      'All answers and events that wait for slow readers, together; half of it for one principal. ' +
        'Default: a quarter of the heap limit, at most 256MiB.',
    ),
});

const sessions = z.strictObject({
  required: flag()
    .prefault(true)
    .describe(
      'Whether clients before 2026-07-28 must send the id of their session. If not, a request without one is answered alone. ' +
        'Some hosted connectors never send it.',
    ),
  idle: duration('1s', '30d')
    .prefault('30m')
    .describe('A session unused for this long is released from memory. Its id stays valid.'),
  park: duration('1s', '1d')
    .prefault('10m')
    .describe('Longest wait of a parked call for the answer of its client. Then its questions are cancelled.'),
  maxAge: duration('1m', '365d').prefault('30d').describe('Longest validity of a session id.'),
  keepAlive: duration('1s', '10m').prefault('15s').describe('Interval between comments on a silent event stream.'),
  events: count(0, 1_000_000).prefault(1_000).describe('Events kept for Last-Event-ID, per session.'),
  eventBytes: size('0B', '1GiB').prefault('8MiB').describe('Size of those events, per session.'),
  eventBytesTotal: size('0B', '1024GiB')
    .optional()
    .describe(
      'Size of those events, all sessions together; half of it for one principal. ' +
        'Default: an eighth of the heap limit, at most 128MiB.',
    ),
});

const TRACES_PATH = 'v1/traces';

const tracing = z.strictObject({
  enabled: flag()
    .optional()
    .describe(
      'Whether requests are traced. Default: true if the config has `tracing`, or if OTEL_EXPORTER_OTLP_ENDPOINT or ' +
        'OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set.',
    ),
  endpoint: otlpEndpoint(TRACES_PATH, 'OTEL_EXPORTER_OTLP_HEADERS')
    .optional()
    .describe(
      'URL of an OTLP receiver over HTTP with protobuf; /v1/traces is added to a URL without a path. ' +
        'Default: that of OTEL_EXPORTER_OTLP_ENDPOINT, else http://localhost:4318.',
    ),
  sampling: z
    .number({ error: 'expected a number from 0 to 1' })
    .min(0, { error: 'expected a number from 0 to 1' })
    .max(1, { error: 'expected a number from 0 to 1' })
    .optional()
    .describe(
      'Share of the requests that are traced, among those whose clients name no trace; a client that names one decides ' +
        'itself. Default: by OTEL_TRACES_SAMPLER, else 1.',
    ),
});

const globs = (what: string) => texts('expected a list of tool names; * matches any text').describe(what);

const profile = z.strictObject(
  {
    upstreams: texts('expected a list of upstreams')
      .optional()
      .describe('Upstreams in order, by id or by their key in this file. Default: all.'),
    includeTools: globs('Published tool names to offer; * matches any text. Default: all.').optional(),
    excludeTools: globs('Published tool names to leave out; * matches any text.').prefault([]),
    renames: z
      .record(
        text(),
        text().regex(/^[A-Za-z0-9_-]{1,128}$/, { error: 'expected a tool name of letters, digits, "_" and "-"' }),
        { error: 'expected a map from tool names to tool names' },
      )
      .prefault({})
      .describe('Published tool name → its name in this profile.'),
  },
  { error: 'expected a map such as {upstreams: [github]}' },
);

const REDIS_URL = 'expected a URL such as "redis://user:password@host:6379/0"';

const redis = z.strictObject({
  url: z
    .string({ error: REDIS_URL })
    .transform(parsedBy(parseRedisUrl, REDIS_URL))
    .describe(
      'redis://user:password@host:port/database; redis+sentinel://…@host:port,host:port/master; redis+cluster://…@host:port,host:port. ' +
        'With rediss instead of redis: over TLS.',
    ),
  caFile: text()
    .optional()
    .describe('PEM file with the certificates that sign the one of Redis. Default: those of the system.'),
  prefix: text()
    .regex(/^[A-Za-z0-9._-]{1,32}$/, { error: 'expected at most 32 letters, digits, ".", "_" and "-"' })
    .prefault('linkspan')
    .describe('Beginning of every key. Replicas of one gateway have the same, other gateways another.'),
  wrappingKeys: z
    .array(randomKey, { error: 'expected a list of keys' })
    .min(1, { error: `expected at least one key; "${KEY_COMMAND}" makes it` })
    .max(8, { error: 'expected at most 8 keys' })
    .describe(
      `Keys that encrypt all that Redis gets, the same for all replicas: ${KEY_COMMAND}. The first one encrypts, all of them decrypt. ` +
        'A change takes three steps: see docs/replicas.md.',
    ),
  internal: address()
    .optional()
    .describe(
      'host:port where other replicas connect. Default: the address by which this machine reaches Redis, and a free port.',
    ),
  advertise: address().optional().describe('host:port under which other replicas reach `internal`. Default: the same.'),
  events: flag()
    .prefault(false)
    .describe(
      'Keeps the events of streams in Redis too, so that a client resumes a stream after the loss of its replica. Each event of a session then ' +
        'waits for Redis before it is sent.',
    ),
});

/** Settings of the gateway itself: everything under `gateway`. */
export const gatewaySchema = z.strictObject({
  listen: address()
    .prefault('127.0.0.1:3000')
    .describe('host:port for MCP clients. An address that other machines can reach needs `auth`.'),
  operator: z
    .union([z.literal(false), address()], { error: 'expected host:port such as "127.0.0.1:3001", or false' })
    .prefault('127.0.0.1:3001')
    .describe(
      'host:port for health, metrics and status, or false for none. If the default port is in use, the next free one.',
    ),
  tls: serverTls
    .optional()
    .describe('Certificate for clients. With it, `listen` speaks HTTPS. A renewed file is used at once.'),
  publicUrl: origin()
    .optional()
    .describe(
      'Origin by which clients reach the gateway. Default: http:// (https:// with `tls`) and `listen`, where 0.0.0.0 is 127.0.0.1. Sign-in needs it.',
    ),
  allowedHosts: z
    .array(
      text()
        .regex(/^(?:\[[\da-fA-F:.]+\]|[A-Za-z0-9_.-]+)$/, { error: 'expected a host name without a port' })
        .toLowerCase(),
      { error: 'expected a list of host names' },
    )
    .prefault([])
    .describe('Host names accepted in `Host` besides loopback names and that of publicUrl.'),
  allowedOrigins: z
    .array(pageOrigin(), { error: 'expected a list of origins' })
    .prefault([])
    .describe(
      'Origins of web pages that may send requests, besides those of the gateway itself. Those of apps may have a scheme of their own, such as "tauri://localhost".',
    ),
  trustedProxies: networks()
    .prefault([])
    .describe(
      'Networks, such as "10.0.0.0/8", of proxies in front of the gateway. Their `X-Forwarded-For` says which client has sent a request. It is read from no one else.',
    ),
  stateDir: text()
    .optional()
    .describe(
      'Directory for sealing keys, session journal and the last good lists; relative to this file. ' +
        'Default: ${XDG_STATE_HOME:-~/.local/state}/linkspan/<12 hex digits made from the path of this file>.',
    ),
  auth: authSchema
    .prefault({})
    .describe('Accepted credentials. Without any, no authentication, which is allowed only on loopback.'),
  access: accessSchema.optional().describe('Who may use what. Default: every principal may use everything.'),
  operatorKeys: z
    .array(apiKey, { error: 'expected a list' })
    .prefault([])
    .describe(
      'Keys of operators for the admin API on the port of `operator`, sent as bearer tokens. The command line needs none ' +
        'on the machine of the gateway: each start makes a key in the state directory.',
    ),
  limits: limits.prefault({}).describe('Limits on the load of the gateway.'),
  sessions: sessions.prefault({}).describe('Sessions of clients: their duration, and the events kept for them.'),
  jsonAnswers: endpointPaths()
    .prefault([])
    .describe(
      'Paths of endpoints that answer each POST with JSON, never with an event stream, for clients that read nothing else. ' +
        'Progress and questions of such an answer are lost. Subscriptions stay streams.',
    ),
  legacySse: flag().prefault(true).describe('Whether clients of 2024-11-05 may connect with GET /sse.'),
  logLevel: oneOf(LOG_LEVELS).prefault('info').describe('Lowest level of the log lines that are written.'),
  accessLog: oneOf(ACCESS_LOGS)
    .prefault('auto')
    .describe(
      'Which requests get a log line. `auto` is `none` on a terminal, `errors` over stdio and if only this machine can ' +
        'connect (no publicUrl), and `all` elsewhere. Lines of requests have the level info.',
    ),
  tracing: tracing.optional().describe('Export of OpenTelemetry traces.'),
  audit: auditSchema.optional().describe('The audit log: who called what, with which outcome. Default: none.'),
  rates: ratesSchema.prefault([]).describe('Bounds on how often upstreams are called.'),
  repeats: repeatsSchema
    .optional()
    .describe('Refuses equal calls of a tool, as of a model in a loop. Default: equal calls are not counted.'),
  overload: z
    .strictObject({
      loopDelay: z
        .union([z.literal(false), duration('10ms', '1m')], { error: 'expected a duration such as "500ms", or false' })
        .prefault('500ms')
        .describe(
          'Delay of the event loop beyond which a growing share of new calls and sessions is refused. It counts while at least 100 ' +
            'requests are in flight. false: never.',
        ),
      memory: z
        .union([z.literal(false), size('64MiB', '1024GiB')], { error: 'expected a size such as "1GiB", or false' })
        .optional()
        .describe(
          'Memory of the gateway, without its upstreams. From 80% on it drops caches. From 90% on it refuses new calls, sessions and streams. ' +
            'From 95% on it closes the connections of slow readers. Default: the limit of the cgroup, for all its processes together. The ' +
            'limit of the heap counts always; false: it alone. With workers, each has its part.',
        ),
    })
    .prefault({})
    .describe('When new work is refused, so that the work that has begun is done.'),
  idempotency: z
    .strictObject({
      keep: duration('1m', '30d')
        .prefault('24h')
        .describe('The time for which a call with the same idempotency key gets the answer of the first one.'),
    })
    .prefault({})
    .describe('Calls that clients name by an idempotency key, and that are made once.'),
  names: z
    .strictObject({
      maxChars: count(16, 128)
        .prefault(48)
        .describe('Longest published tool or prompt name. Longer ones are shortened.'),
    })
    .prefault({})
    .describe('How published names are made.'),
  instructions: z
    .strictObject({
      maxChars: count(0, 1_000_000).prefault(4_000).describe('Longest merged instructions; 0 for none.'),
    })
    .prefault({})
    .describe("How the upstreams' instructions are merged."),
  lists: z
    .strictObject({
      wait: duration('0s', '1m')
        .prefault('8s')
        .describe(
          'Longest wait of a list for upstreams that were never listed. It does not wait for those whose last start failed. Also the longest wait of a call for the first lists of its upstream.',
        ),
    })
    .prefault({})
    .describe('How the lists of upstreams are fetched.'),
  reload: z
    .strictObject({
      watch: flag()
        .prefault(true)
        .describe(
          'Whether a change of this file, or of a file that it names, is loaded while the gateway runs. A rejected config is tried again every 5 s.',
        ),
      drain: duration('0s', '1h')
        .prefault('1m')
        .describe(
          'Longest time that requests in flight at a removed or changed upstream, endpoint or address get to finish.',
        ),
    })
    .prefault({})
    .describe('How a changed config is loaded while the gateway runs.'),
  egress: egressSchema.optional().describe('Connections of the gateway to upstreams and authorization servers.'),
  lock: z
    .strictObject({
      file: text()
        .optional()
        .describe(
          'The lock file that "linkspan lock" writes; relative to this file. Default: linkspan.lock beside this file.',
        ),
      onChange: oneOf(ON_CHANGE)
        .prefault('warn')
        .describe(
          'The reaction to a definition that differs from the lock file. `warn` serves it and logs the difference, `quarantine` ' +
            'withholds it, `refuse` withholds all items of its upstream.',
        ),
    })
    .optional()
    .describe(
      'Definitions of tools, prompts, resources and instructions that were reviewed; see docs/lock.md. Without this setting, a lock ' +
        'file beside this file is used with `warn`.',
    ),
  workers: count(1, 64)
    .prefault(1)
    .describe(
      'Processes that serve clients, on one machine and without Redis; at most one for each core is of use. 1: one process does everything. See docs/workers.md.',
    ),
  redis: redis
    .optional()
    .describe(
      'Redis 7 or newer, which several replicas of the gateway share. Default: one process, with its state in `stateDir`.',
    ),
  profiles: z
    .record(z.string().regex(/^[a-z][a-z0-9-]{0,63}$/), profile, {
      error: (issue) =>
        issue.code === 'invalid_key' ? 'expected a name of a-z, 0-9 and "-"' : 'expected a map of profiles',
    })
    .prefault({})
    .describe('Named selections, each served at /mcp/<name>.'),
});

export type GatewaySettings = z.output<typeof gatewaySchema>;
