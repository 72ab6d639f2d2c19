import { parseEnv } from 'node:util';

import { type HttpTarget, RESERVED_HEADERS, type StdioTarget } from '../values/upstream-config.ts';
import type { CheckedEntry, Fault } from './entry.ts';
import type { Places } from '../document/places.ts';
import { refusedKey, unusedKeys } from './misplaced.ts';
import { TYPES, type UpstreamEntry } from '../schema/upstream-schema.ts';
import { isSecureUrl, portFault } from '../schema/address.ts';
import { withoutValue } from '../document/problem.ts';
import { HEADER_VALUE } from '../schema/scalars.ts';
import { upstreamAuthOf } from '../schema/credentials-schema.ts';
import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';

type Found =
  | {
      readonly target: StdioTarget | HttpTarget;
      /** Reasons why it cannot be reached, besides texts that are not expanded. */
      readonly reasons: readonly Fault[];
      readonly warnings: readonly Fault[];
    }
  | { readonly fault: Fault };

export type TargetOf =
  /** With the keys that have no effect on it. */
  (Found & { readonly unused: readonly Fault[] }) | { readonly leftOut: string } | { readonly fault: Fault };

/** The keys of an entry that hold a URL, in the spelling of several clients. */
export const URL_KEYS = ['url', 'serverUrl', 'httpUrl', 'uri'] as const;

type Values = Readonly<Record<string, string | null>>;

/** Headers that the protocol decides, and that many configs have for other clients. */
const USUAL_HEADERS: ReadonlySet<string> = new Set(['accept', 'content-type']);

const NO_MEMORY_LIMIT = { key: 'processLimits', message: '"memory" has no effect on this system: it needs Linux' };
const URL_OF_GEMINI = {
  key: 'url',
  message: '"httpUrl" comes before it; it falls back by itself where that is needed',
};

/** Placeholder URL of an upstream that is never connected to (RFC 6761). */
export const UNUSABLE_URL = 'http://unusable.invalid/';

/** Returns the target of an entry, in our spelling or a client's. */
export function targetOf({ entry, unexpanded }: CheckedEntry, places: Places): TargetOf {
  const type = entry.type === undefined ? undefined : TYPES.get(entry.type);
  if (type === 'own') return { leftOut: `a client carries out type "${String(entry.type)}" itself; left out` };
  if (entry.source === 'extension' && entry.command === undefined) {
    return { leftOut: 'its program comes from an extension of the editor; left out' };
  }

  const commands = present(entry, ['command', 'cmd']);
  const urls = present(entry, URL_KEYS);
  // Gemini CLI allows both: `httpUrl` is Streamable HTTP and has precedence, `url` is HTTP+SSE.
  const url = urls.find((key) => key === 'httpUrl') ?? urls[0];
  const spare = urls.filter((key) => key !== url && !(url === 'httpUrl' && key === 'url'));
  const [command, otherCommand] = commands;
  if (otherCommand !== undefined) return twice(otherCommand, command);
  if (spare[0] !== undefined) return twice(spare[0], url);

  const kind = type ?? (command === undefined ? 'http' : 'stdio');
  if (command !== undefined && url !== undefined && type === undefined) {
    return { fault: { key: url, message: 'has "command" too; keep one, or say which with "type"' } };
  }
  const fault = refusedKey(entry, kind);
  const unused = unusedKeys(entry, kind);
  if (kind === 'stdio') {
    if (command === undefined) return missing('command', type, entry);
    return fault === undefined ? { unused, ...stdio(entry, places) } : { fault };
  }
  if (url === undefined) return missing('url', type, entry);
  if (fault !== undefined) return { fault };
  const isWhole = unexpanded.every(({ key }) => unused.some((one) => one.key === key));
  return { unused, ...http(entry, kind, url, places, !isWhole) };
}

function present<const K extends keyof UpstreamEntry>(entry: UpstreamEntry, keys: readonly K[]): K[] {
  return keys.filter((key) => entry[key] !== undefined);
}

function twice(key: string, other: string | undefined): TargetOf {
  return { fault: { key, message: `says the same as "${String(other)}"; keep one` } };
}

function missing(key: 'command' | 'url', type: string | undefined, entry: UpstreamEntry): TargetOf {
  if (type === undefined) return { fault: { key: undefined, message: 'expected "command" (stdio) or "url" (http)' } };
  return { fault: { key: 'type', message: `type "${String(entry.type)}" needs "${key}"` } };
}

function stdio(entry: UpstreamEntry, places: Places): Found {
  const { command = entry.cmd ?? '', args = [] } = entry;
  const [program = '', ...first] = Array.isArray(command)
    ? command
    : typeof command === 'string'
      ? [command]
      : [command.path];
  if (program.trim() === '') {
    return { fault: { key: entry.command === undefined ? 'cmd' : 'command', message: 'expected a program' } };
  }
  const inner = typeof command === 'object' && !Array.isArray(command) ? command : { args: [], env: {} };

  const env: Record<string, string> = {};
  const reasons: Fault[] = [];
  if (entry.envFile !== undefined) {
    const read = places.envFile(entry.envFile);
    const folder = /^[~/]/.test(entry.envFile) ? '' : '; its path begins at the folder of this config';
    if ('problem' in read) reasons.push({ key: 'envFile', message: `the file ${read.problem}${folder}` });
    else {
      const variables = parseEnv(withoutByteOrderMark(read.text));
      for (const [name, value] of Object.entries(variables)) if (value !== undefined) env[name] = value;
    }
  }
  for (const key of ['env_keys', 'env_vars'] as const) {
    for (const name of entry[key] ?? []) {
      const value = places.variable(name);
      if (value === undefined) reasons.push(unset(key, name));
      else env[name] = value;
    }
  }
  const given = [inner.env ?? undefined, entry.envs, entry.environment, entry.env];
  Object.assign(env, ...given.map(values));
  const names: Values = Object.assign({}, env, ...given);
  // In YAML, {NAME=value} and {NAME:value} are names without a value.
  const odd = Object.entries(names).find(
    ([name, value]) => /^$|[=\0]/.test(name) || (value === null && /[:\s]/.test(name)),
  );
  if (odd !== undefined) {
    const message = `${JSON.stringify(withoutValue(odd[0]))} cannot name a variable; write NAME: value`;
    return { fault: { key: 'env', message } };
  }

  const cwd = entry.cwd === undefined ? undefined : places.resolve(entry.cwd);
  return {
    target: {
      kind: 'stdio',
      command: places.untilde(program),
      args: [...first, ...(inner.args ?? []), ...args],
      env,
      cwd,
      ...confinementOf(entry, places),
    },
    reasons,
    warnings: entry.processLimits?.memory === undefined || process.platform === 'linux' ? [] : [NO_MEMORY_LIMIT],
  };
}

/** Returns the limits and the sandbox of an entry, without members that it does not set. */
function confinementOf(
  { processLimits, sandbox }: UpstreamEntry,
  places: Places,
): Pick<StdioTarget, 'processLimits' | 'sandbox'> {
  const paths = (names: readonly string[]) => names.map((name) => places.resolve(name));
  return {
    ...(processLimits === undefined
      ? {}
      : {
          processLimits: {
            memoryBytes: processLimits.memory,
            openFiles: processLimits.openFiles,
            cpuMs: processLimits.cpuTime,
          },
        }),
    ...(sandbox === undefined
      ? {}
      : { sandbox: { read: paths(sandbox.read), write: paths(sandbox.write), network: sandbox.network } }),
  };
}

function http(
  entry: UpstreamEntry,
  kind: 'http' | 'sse',
  key: (typeof URL_KEYS)[number],
  places: Places,
  unexpanded: boolean,
): Found {
  const url = entry[key] ?? '';
  const reasons: Fault[] = [];
  if (/^(?:unix|pipe):/.test(url)) {
    reasons.push({ key, message: 'unix sockets and pipes are not supported' });
  } else if (!unexpanded) {
    const wrong = urlFault(url);
    if (wrong !== undefined) return { fault: { key, message: wrong } };
  }

  const warnings: Fault[] = key === 'httpUrl' && entry.url !== undefined ? [URL_OF_GEMINI] : [];
  const headers: Record<string, string> = {
    ...values(entry.requestOptions?.headers ?? undefined),
    ...values(entry.http_headers),
    ...values(entry.headers),
  };
  for (const [header, name] of Object.entries(entry.env_http_headers ?? {})) {
    const value = places.variable(name);
    if (value === undefined) reasons.push(unset('env_http_headers', name));
    else headers[header] = value;
  }
  if (entry.bearer_token_env_var !== undefined) {
    const token = places.variable(entry.bearer_token_env_var);
    if (token === undefined) reasons.push(unset('bearer_token_env_var', entry.bearer_token_env_var));
    else headers['Authorization'] = `Bearer ${token}`;
  }
  for (const [name, value] of Object.entries(headers)) {
    const lower = name.toLowerCase();
    if (RESERVED_HEADERS.has(lower) && !USUAL_HEADERS.has(lower)) {
      warnings.push({ key: 'headers', message: `"${name}" has no effect: the protocol decides it` });
    }
    if (!HEADER_VALUE.test(value)) {
      reasons.push({ key: 'headers', message: `${name} holds a character that no header can carry` });
    }
  }
  if (entry.tls !== undefined && !unexpanded && !/^https:/i.test(url)) {
    return { fault: { key: 'tls', message: 'the URL is not https; remove "tls", or write https://' } };
  }
  const tls = entry.tls === undefined ? {} : { tls: entry.tls };
  // A URL with an unset variable may be invalid. Its upstream is listed as failed and never connected to.
  const target = { kind, url: URL.canParse(url) ? url : UNUSABLE_URL, headers, ...tls };
  const auth = upstreamAuthOf(entry.auth, target.url);
  if (auth === undefined) return { target, reasons, warnings };
  if (Object.keys(headers).some((name) => name.toLowerCase() === 'authorization')) {
    return { fault: { key: 'auth', message: 'headers give an "Authorization" too; keep one' } };
  }
  if (!unexpanded && !isSecureUrl(target.url)) {
    warnings.push({ key: 'url', message: 'is not https, so that others may read the token on its way' });
  }
  return { target: { ...target, auth }, reasons, warnings };
}

function urlFault(text: string): string | undefined {
  const wrongPort = portFault(text);
  if (wrongPort !== undefined) return wrongPort;
  const url = URL.parse(text);
  if (url === null || !/^https?:$/.test(url.protocol)) return 'expected an http:// or https:// URL';
  if (url.username !== '' || url.password !== '') {
    return 'a URL with a password ends up in logs; write headers: {Authorization: …}';
  }
  return undefined;
}

/** Shows only usual names: a token that stands here by mistake must reach nobody. */
function unset(key: string, name: string): Fault {
  const which = /^[A-Z][A-Z0-9_]{0,63}$/.test(name) ? `environment variable ${name}` : 'the environment variable';
  return { key, message: `${which} is not set` };
}

/** Removes null members: some clients write null for "not set". */
function values(map: Values | undefined): Record<string, string> {
  return Object.fromEntries(
    Object.entries(map ?? {}).flatMap(([key, value]) => (value === null ? [] : [[key, value]])),
  );
}
