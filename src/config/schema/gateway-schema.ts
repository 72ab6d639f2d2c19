import { z } from 'zod';

import { isLoopback } from './address.ts';
import { ACCESS_LOGS, LOG_LEVELS } from '../config.ts';
import { address, count, duration, flag, oneOf, origin, refused, size, text, texts } from './scalars.ts';

/** Asymmetric algorithms only: a key that verifies a symmetric signature can also create one. */
const ALGORITHMS = [
  'RS256',
  'RS384',
  'RS512',
  'PS256',
  'PS384',
  'PS512',
  'ES256',
  'ES384',
  'ES512',
  'EdDSA',
  'Ed25519',
] as const;

const HASH_COMMAND = `printf %s "$KEY" | sha256sum`;
const EMPTY_SHA256 = 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855';

const jwksUrl = text('expected an https:// URL')
  .refine(
    (value) => {
      if (!URL.canParse(value)) return false;
      const { protocol, hostname } = new URL(value);
      return protocol === 'https:' || (protocol === 'http:' && isLoopback(hostname.replace(/^\[|\]$/g, '')));
    },
    { error: 'expected an https:// URL (http:// only to this machine)' },
  )
  .describe("URL of the issuer's public keys (JWK Set): https, or http to this machine.");

const jwt = z.strictObject({
  issuer: text('expected the issuer, exactly as the tokens spell it').describe('`iss` of the tokens, exactly.'),
  jwksUrl,
  audiences: texts()
    .prefault([])
    .describe("Accepted `aud` values. Empty: the endpoint's own URI, made from publicUrl."),
  algorithms: z
    .array(oneOf(ALGORITHMS), { error: 'expected a list of algorithms' })
    .min(1, { error: 'expected at least one algorithm' })
    .prefault(['RS256', 'ES256', 'EdDSA'])
    .describe('Accepted signature algorithms. Symmetric ones are never accepted.'),
  requiredScopes: texts().prefault([]).describe('Scopes that every token must have.'),
});

const apiKey = z.strictObject({
  name: text().describe('Name of the client or user of the key. It is the principal, and appears in logs.'),
  sha256: text('expected 64 hex digits')
    .regex(/^[0-9a-fA-F]{64}$/, { error: `expected 64 hex digits; make them with: ${HASH_COMMAND}` })
    .toLowerCase()
    .refine((hash) => hash !== EMPTY_SHA256, { error: 'this is the hash of an empty key' })
    .describe(`SHA-256 of the key, hex: ${HASH_COMMAND}`),
  key: refused(`keys are not kept in plain text; write sha256 instead, made with: ${HASH_COMMAND}`),
});

const auth = z.strictObject({
  jwt: z.array(jwt, { error: 'expected a list' }).prefault([]).describe('Issuers whose bearer tokens are accepted.'),
  apiKeys: z.array(apiKey, { error: 'expected a list' }).prefault([]).describe('Static keys, sent as bearer tokens.'),
});

const limits = z.strictObject({
  body: size('1KiB', '1GiB').prefault('4MiB').describe('One HTTP request from a client.'),
  message: size('1KiB', '1GiB').prefault('16MiB').describe('One message from an upstream.'),
  processes: count(0, 100_000).prefault(128).describe('stdio processes, all upstreams together.'),
  sessionsPerPrincipal: count(1, 1_000_000).prefault(1_000).describe('Open sessions of one principal.'),
  parkedPerPrincipal: count(1, 1_000_000)
    .prefault(256)
    .describe(
      'Calls of one principal that wait at an older upstream for an answer of their 2026-07-28 client; and as many tasks.',
    ),
  parkedPerUpstream: count(1, 1_000_000).prefault(1_024).describe('The same calls at one upstream.'),
  inFlightPerSession: count(1, 100_000).prefault(256).describe('Requests in flight in one session.'),
  streamsPerPrincipal: count(1, 1_000_000)
    .prefault(1_000)
    .describe('Open subscriptions/listen streams of one principal, and as many GET /sse streams.'),
  bodyTotal: size('1MiB', '1024GiB')
    .optional()
    .describe(
      'All unfinished request bodies together; half of it for one principal. ' +
        'Default: an eighth of the heap limit, at most 128MiB, at least four times body.',
    ),
  unsentTotal: size('1MiB', '1024GiB')
    .optional()
    .describe(
      'All answers and events that wait for slow readers, together; half of it for one principal. ' +
        'Default: a quarter of the heap limit, at most 256MiB.',
    ),
});

const sessions = z.strictObject({
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
  endpoint: text('expected an http:// or https:// URL')
    .transform((value, context) => {
      const url = URL.parse(value);
      const isHttp = url?.protocol === 'http:' || url?.protocol === 'https:';
      if (url !== null && isHttp && url.username === '' && url.password === '') {
        return url.pathname === '/' ? new URL(TRACES_PATH, url).href : url.href;
      }
      const message =
        'expected an http:// or https:// URL without a user name; put credentials into OTEL_EXPORTER_OTLP_HEADERS';
      context.addIssue({ code: 'custom', message });
      return z.NEVER;
    })
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

const profile = z.strictObject({
  upstreams: texts('expected a list of upstreams')
    .optional()
    .describe('Upstreams in order, by id or by their key in this file. Default: all.'),
  includeTools: globs('Published tool names to offer; * matches any text. Default: all.').optional(),
  excludeTools: globs('Published tool names to leave out; * matches any text.').prefault([]),
  renames: z
    .record(
      z.string(),
      text().regex(/^[A-Za-z0-9_-]{1,128}$/, { error: 'expected a tool name of letters, digits, "_" and "-"' }),
      { error: 'expected a map from tool names to tool names' },
    )
    .prefault({})
    .describe('Published tool name → its name in this profile.'),
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
  publicUrl: origin().optional().describe('Origin by which clients reach the gateway. Default: http:// and `listen`.'),
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
    .array(origin(), { error: 'expected a list of origins' })
    .prefault([])
    .describe('Origins of web pages that may send requests, besides those of the gateway itself.'),
  stateDir: text()
    .optional()
    .describe(
      'Directory for sealing keys, session journal and the last good lists; relative to this file. ' +
        'Default: ${XDG_STATE_HOME:-~/.local/state}/linkspan/<12 hex digits made from the path of this file>.',
    ),
  auth: auth
    .prefault({})
    .describe('Accepted credentials. Without any, no authentication, which is allowed only on loopback.'),
  operatorKeys: z
    .array(apiKey, { error: 'expected a list' })
    .prefault([])
    .describe(
      'Keys of operators for the admin API on the port of `operator`, sent as bearer tokens. The command line needs none ' +
        'on the machine of the gateway: each start makes a key in the state directory.',
    ),
  limits: limits.prefault({}).describe('Limits on the load of the gateway.'),
  sessions: sessions.prefault({}).describe('Sessions of clients: their duration, and the events kept for them.'),
  legacySse: flag().prefault(true).describe('Whether clients of 2024-11-05 may connect with GET /sse.'),
  logLevel: oneOf(LOG_LEVELS).prefault('info').describe('Lowest level of the log lines that are written.'),
  accessLog: oneOf(ACCESS_LOGS)
    .prefault('auto')
    .describe(
      'Which requests get a log line. `auto` is `none` on a terminal, `errors` over stdio and if only this machine can ' +
        'connect (no publicUrl), and `all` elsewhere. Lines of requests have the level info.',
    ),
  tracing: tracing.optional().describe('Export of OpenTelemetry traces.'),
  names: z
    .strictObject({
      maxChars: count(16, 128)
        .prefault(48)
        .describe('Longest published tool or prompt name. Longer ones are shortened.'),
    })
    .prefault({})
    .describe('How published names are made.'),
  instructions: z
    .strictObject({ maxChars: count(0, 1_000_000).prefault(4_000).describe('Longest merged instructions.') })
    .prefault({})
    .describe("How the upstreams' instructions are merged."),
  lists: z
    .strictObject({
      wait: duration('0s', '1m')
        .prefault('8s')
        .describe(
          'Longest wait of a list for upstreams that were never listed. It does not wait for those whose last start failed.',
        ),
    })
    .prefault({})
    .describe('How the lists of upstreams are fetched.'),
  reload: z
    .strictObject({
      watch: flag()
        .prefault(true)
        .describe('Whether a change of this file, or of a file that it names, is loaded while the gateway runs.'),
      drain: duration('0s', '1h')
        .prefault('1m')
        .describe(
          'Longest time that requests in flight at a removed or changed upstream, endpoint or address get to finish.',
        ),
    })
    .prefault({})
    .describe('How a changed config is loaded while the gateway runs.'),
  profiles: z
    .record(z.string().regex(/^[a-z][a-z0-9-]{0,63}$/), profile, {
      error: (issue) =>
        issue.code === 'invalid_key' ? 'expected a name of a-z, 0-9 and "-"' : 'expected a map of profiles',
    })
    .prefault({})
    .describe('Named selections, each served at /mcp/<name>.'),
});

export type GatewaySettings = z.output<typeof gatewaySchema>;
