import { z } from 'zod';

import { ON_CHANGE } from '../../lock/pins.ts';
import { CLIENT_FEATURES, ERA_SETTINGS, ISOLATIONS } from '../values/upstream-config.ts';
import { isHostPattern } from './address.ts';
import { upstreamAuth } from './credentials-schema.ts';
import { processLimits, sandbox } from './process-schema.ts';
import { clientTls } from './tls-schema.ts';
import { byHeader, count, duration, flag, textOrScalar, oneOf, refused, text, texts } from './scalars.ts';

/** Transports by the names that clients give them. `own`: the client runs such a server itself. */
export const TYPES: ReadonlyMap<string, 'stdio' | 'http' | 'sse' | 'own'> = new Map([
  ['stdio', 'stdio'],
  ['http', 'http'],
  ['sse', 'sse'],
  ['local', 'stdio'],
  ['streamable-http', 'http'],
  ['streamableHttp', 'http'],
  ['streamable_http', 'http'],
  ['remote', 'http'],
  ['builtin', 'own'],
  ['platform', 'own'],
  ['frontend', 'own'],
  ['inline_python', 'own'],
  ['sdk', 'own'],
]);

const PREFIX = 'expected at most 40 of letters, digits, "_" and "-"';
const HOST = 'expected a host such as "login.example.com" or "*.example.com"';

const limit = (least: string, most: string, fallback: string, what: string) =>
  duration(least, most).prefault(fallback).describe(what);

const timeouts = z.strictObject(
  {
    start: limit('1ms', '1h', '30s', 'From start to the answer to `initialize`.'),
    connect: limit('1ms', '10m', '5s', 'HTTP: until the connection stands.'),
    firstByte: limit(
      '1ms',
      '1h',
      '30s',
      'HTTP: until the response headers of a notification or an answer; requests have `call`.',
    ),
    call: duration('1ms', '1d')
      .optional()
      .describe('One request without progress. Default: 60s, and 5m for `tools/call`.'),
    max: limit('1ms', '1d', '1h', 'One request with any progress.'),
  },
  { error: 'expected a map such as {call: 30s}' },
);

const variables = (what: string) =>
  z
    .record(z.string(), textOrScalar().nullable(), { error: 'expected a map of environment variables' })
    .optional()
    .describe(what);
const headerMap = () => byHeader(textOrScalar().nullable(), 'expected a map of headers');
const headers = (what: string) => headerMap().optional().describe(what);
const tools = (what: string) => texts('expected a list of tool names').optional().describe(what);
const wait = (error: string, what: string) => z.number({ error }).positive({ error }).optional().describe(what);
const seconds = (what: string) => wait('expected a number of seconds', what);
const milliseconds = (what: string) => wait('expected a number of milliseconds', what);
const ignored = () => z.unknown().optional().describe("A client's own setting. Accepted and ignored.");

/** Settings in our own spelling. */
const OWN = {
  type: z
    .enum([...TYPES.keys()], {
      error: 'expected one of "stdio", "http", "sse"; MCP over WebSocket is not supported',
    })
    .optional()
    .describe(
      'Transport. Without it, a command means stdio and a url http. `http` is Streamable HTTP and falls back to the transport ' +
        'of 2024-11-05; `sse` is only that one.',
    ),
  command: z
    .union(
      [
        text(),
        z.array(textOrScalar()).min(1, { error: 'expected a program' }),
        z.strictObject({
          path: text(),
          args: z.array(textOrScalar()).nullish(),
          env: z.record(z.string(), textOrScalar().nullable()).nullish(),
        }),
      ],
      { error: 'expected a program' },
    )
    .optional()
    .describe('stdio: the program. No shell is involved. OpenCode writes a list, Zed a map.'),
  args: z.array(textOrScalar(), { error: 'expected a list of arguments' }).optional().describe('stdio: its arguments.'),
  env: variables('stdio: environment variables, besides the few that every child gets (PATH, HOME and others).'),
  envFile: text().optional().describe('stdio: a file of NAME=value lines, relative to this file; `env` overrides it.'),
  cwd: text().optional().describe('stdio: working directory, relative to this file.'),
  processLimits: processLimits.optional().describe('stdio: what one process may use.'),
  sandbox: sandbox
    .optional()
    .describe(
      'stdio: runs the process in a sandbox of bubblewrap (Linux), which sees the programs of the system and what is named here.',
    ),
  url: text('expected a URL').optional().describe('http, sse: the endpoint.'),
  headers: headers('http, sse: headers sent with every request.'),
  auth: upstreamAuth
    .optional()
    .describe('http, sse: credentials that the gateway gets for the upstream. Default: only `headers`.'),
  tls: clientTls.optional().describe('http, sse with an https URL: certificates.'),
  disabled: flag().optional().describe('Leaves this upstream out.'),
  enabled: flag().optional().describe('false leaves this upstream out.'),

  prefix: z
    .string({ error: PREFIX })
    .regex(/^[A-Za-z0-9_-]{0,40}$/, { error: PREFIX })
    .optional()
    .describe(
      'Prefix of tool and prompt names, exactly as written, so end it with a separator ("git_"). Empty for none. Of several such upstreams with a tool or prompt of one name, the first in the file has it. The others are left out. ' +
        'Default: the id, with the underscores of the name, and two more: `My_Server` gives `my_server__`.',
    ),
  rawUris: flag()
    .optional()
    .describe(
      'Whether resource URIs are published unchanged instead of as <id>+<scheme>:. Default: true where prefix is empty.',
    ),
  isolation: oneOf(ISOLATIONS)
    .prefault('session')
    .describe(
      'Which clients share a connection (for stdio: a process): each session has its own, each principal, or each call, or all clients ' +
        'share one. With `shared`, no client features are declared to the upstream.',
    ),
  era: oneOf(ERA_SETTINGS)
    .prefault('auto')
    .describe(
      'The era in which the upstream is used: `modern` is revision 2026-07-28, `legacy` all before it. `auto` is the era of each client if the upstream supports both, else the one that it supports.',
    ),
  clientFeatures: z
    .array(oneOf(CLIENT_FEATURES), {
      error: `expected a list of ${CLIENT_FEATURES.map((feature) => JSON.stringify(feature)).join(', ')}`,
    })
    .optional()
    .describe(
      'The client features that the upstream may use. The others are not declared to it. Default: all for stdio and for a URL on this ' +
        'machine; `elicitation` and `roots` for any other URL.',
    ),
  elicitationHosts: z
    .array(text(HOST).refine(isHostPattern, { error: HOST }), {
      error: 'expected a list of hosts',
    })
    .optional()
    .describe(
      'Hosts of the pages that the upstream may send users to (URL elicitation), such as `login.example.com`, or `*.example.com` for all below one. Default: ' +
        'any host with https.',
    ),
  samplingBudget: count(0, 1_000_000_000)
    .prefault(2_000_000)
    .describe(
      'Tokens that the upstream may ask the model of one principal for in an hour: the sum of `maxTokens` of its `sampling/createMessage`. Further questions are refused.',
    ),
  start: oneOf(['eager', 'lazy'])
    .prefault('lazy')
    .describe('Whether the upstream is started with the gateway (`eager`) or at its first use.'),
  required: flag()
    .prefault(false)
    .describe(
      'Whether the gateway is ready only while this upstream is up, and starts it as `eager` does. Has no effect with `auth.kind` `exchange` or `identity`.',
    ),
  timeouts: timeouts.prefault({}).describe('Timeouts of the upstream.'),
  concurrency: count(1, 100_000)
    .optional()
    .describe('Requests in flight at once. Default: 32 for stdio, 1 024 for remote upstreams.'),
  queue: count(0, 1_000_000)
    .optional()
    .describe(
      'Requests that wait when `concurrency` requests are in flight. Principals take turns. Default: twice `concurrency`.',
    ),
  queueWait: duration('0ms', '1h')
    .prefault('5s')
    .describe('Longest wait of such a request, and of a new client at `maxConnections`.'),
  idle: duration('1s', '7d')
    .optional()
    .describe(
      'A connection unused for this long is closed, and the state that the upstream keeps for the client is lost. ' +
        'Those that serve all clients, such as the process of `isolation: shared`, stay open and report changed lists. ' +
        'Default: 10m for stdio, 1h for remote upstreams.',
    ),
  maxConnections: count(1, 100_000)
    .optional()
    .describe(
      'Connections (for stdio: processes) at once. When all are in use, a client waits for `queueWait` and is then refused. ' +
        'Default: 64 for stdio, 10 000 for remote upstreams, together no more than the limit on open files allows.',
    ),
  includeTools: texts('expected a list of tool names; * matches any text')
    .optional()
    .describe('Tool names of the upstream to offer; * matches any text. Default: all.'),
  excludeTools: texts('expected a list of tool names; * matches any text')
    .prefault([])
    .describe('Tool names of the upstream to leave out; * matches any text.'),
  lock: oneOf([...ON_CHANGE, 'off'])
    .optional()
    .describe(
      'The reaction to a definition that differs from the lock file; comes before `gateway.lock.onChange`. `off` pins nothing of ' +
        'this upstream.',
    ),
};

/** The same settings in the spelling of clients. */
const SYNONYMS = {
  cmd: text().optional().describe('`command`, as Goose spells it.'),
  environment: variables('`env`, as OpenCode spells it.'),
  envs: variables('`env`, as Goose spells it.'),
  env_keys: texts().optional().describe('Variables of the gateway that the upstream gets, as Goose spells it.'),
  env_vars: z
    .array(
      z.union([text(), z.looseObject({ name: text() }).transform(({ name }) => name)], {
        error: 'expected a name, or a map with name',
      }),
      { error: 'expected a list of names' },
    )
    .optional()
    .describe('Variables of the gateway that the upstream gets, as Codex spells it.'),
  requestOptions: z
    .looseObject({ headers: headerMap().nullish() })
    .optional()
    .describe('`headers` inside it are headers, as Continue spells them; the rest is ignored.'),
  serverUrl: text('expected a URL').optional().describe('`url`, as Windsurf and Antigravity spell it.'),
  httpUrl: text('expected a URL').optional().describe('`url`, as Gemini CLI spells it; overrides `url`.'),
  uri: text('expected a URL').optional().describe('`url`, as Goose spells it.'),
  http_headers: headers('`headers`, as Codex spells it.'),
  env_http_headers: byHeader(text(), 'expected a map from headers to environment variables')
    .optional()
    .describe('Header → environment variable with its value, as Codex spells it.'),
  bearer_token_env_var: text().optional().describe('Environment variable with a bearer token, as Codex spells it.'),
  bearer_token: refused('tokens are not accepted here; write headers: {Authorization: "Bearer ${VARIABLE}"}'),
  timeout: z
    .union([z.number().positive(), duration('1ms', '1d').transform((ms) => ({ ms }))], {
      error: 'expected a duration such as "30s"',
    })
    .optional()
    .describe(
      "`timeouts.call`, as clients spell it: milliseconds, or seconds if the number is under 1000 or in Goose's file. " +
        'In the file of OpenCode, `timeouts.start`.',
    ),
  startup_timeout_sec: seconds('`timeouts.start` in seconds, as Codex spells it.'),
  startup_timeout_ms: milliseconds('`timeouts.start` in milliseconds, as Codex spells it.'),
  connectionTimeout: milliseconds('`timeouts.start` in milliseconds, as Continue spells it.'),
  tool_timeout_sec: seconds('`timeouts.call` in seconds, as Codex spells it.'),
  enabled_tools: tools('`includeTools`, as Codex spells it.'),
  disabled_tools: tools('`excludeTools`, as Codex spells it.'),
  disabledTools: tools('`excludeTools`, as Windsurf spells it.'),
  available_tools: tools('`includeTools`, as Goose spells it; empty means all.'),
  tools: z
    .union([texts(), z.record(z.string(), z.unknown())], { error: 'expected a list of tool names' })
    .optional()
    .describe("`includeTools`, as Copilot spells it. Codex's map of settings of single tools is ignored."),
};

/** Settings of clients that the gateway ignores. */
const IGNORED = {
  trust: ignored(),
  name: ignored(),
  display_name: ignored(),
  description: ignored(),
  bundled: ignored(),
  version: ignored(),
  gallery: ignored(),
  icon: ignored(),
  source: ignored(),
  settings: ignored(),
  dev: ignored(),
  autoApprove: ignored(),
  alwaysAllow: ignored(),
};

/** Our keys, as candidates for the correction of misspelled keys. */
export const OWN_KEYS: readonly string[] = Object.keys(OWN);

/** Keys of clients, which the reference only mentions. */
export const FOREIGN_KEYS: readonly string[] = [...Object.keys(SYNONYMS), ...Object.keys(IGNORED)];

/** Keys of clients without a meaning here. Their values stay as they are. */
export const IGNORED_KEYS: ReadonlySet<string> = new Set(Object.keys(IGNORED));

export const UPSTREAM_KEYS: ReadonlySet<string> = new Set([...OWN_KEYS, ...FOREIGN_KEYS]);

/** Schema of one upstream entry, in our spelling or a client's. Unknown keys are removed before the check. */
export const upstreamSchema = z
  .strictObject({ ...OWN, ...SYNONYMS, ...IGNORED }, { error: 'expected a map with "command" (stdio) or "url" (http)' })
  .meta({ id: 'upstream', title: 'One MCP server' });

export type UpstreamEntry = z.output<typeof upstreamSchema>;
