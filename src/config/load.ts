import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { isAbsolute, join, resolve } from 'node:path';

import { isLoopback, parseAddress, suggestAddress } from './address.ts';
import { findUpstreams } from './client-file.ts';
import type { Address, Config, UpstreamConfig } from './config.ts';
import { parseText } from './document.ts';
import type { Document } from './document.ts';
import { expandData, valueAt } from './expanded.ts';
import { gatewaySchema } from './gateway-schema.ts';
import type { GatewaySettings } from './gateway-schema.ts';
import { places } from './places.ts';
import type { Places } from './places.ts';
import { ConfigError, keyText, problemLine } from './problem.ts';
import type { Problem } from './problem.ts';
import { readProfiles } from './profiles.ts';
import { checkSection } from './section.ts';
import { didYouMean } from './suggest.ts';
import { upstreamId } from './upstream-id.ts';
import { readUpstream } from './upstream.ts';

const FILE_LIMIT_BYTES = 1_048_576;
const UPSTREAM_LIMIT = 500;

export interface LoadOptions {
  readonly env: NodeJS.ProcessEnv;
  /** Comes before `gateway.listen`. */
  readonly listen?: string | undefined;
}

export interface Loaded {
  /** Frozen all the way down. */
  readonly config: Config;
  /** What was ignored or looks unintended, a line each. */
  readonly warnings: readonly string[];
}

/**
 * Reads our config file, or any MCP client's, and never writes it.
 *
 * A variable that an upstream needs and that is not set becomes that upstream's `problem`; in the gateway's own settings it is an
 * error.
 *
 * @throws {ConfigError} with every problem found.
 */
export function loadConfig(file: string, { env, listen }: LoadOptions): Loaded {
  const absolute = resolve(file);
  const document = parseText(file, readText(file));
  const map = findUpstreams(document);
  if ('problems' in map) throw new ConfigError(map.problems);

  const where = places(absolute, env);
  const problems: Problem[] = [];
  const warnings: string[] = [];

  const settings = readGateway(document, where, problems);
  const upstreams: UpstreamConfig[] = [];
  const keys = new Map<string, string>();
  for (const key of map.keys) {
    const id = upstreamId(key);
    const other = keys.get(id);
    if (other === undefined) keys.set(id, key);
    else {
      const message = `has the id "${id}", as ${keyText([...map.path, other])} has; rename one`;
      problems.push(document.problem([...map.path, key], message, 'key'));
    }
    if (id.length > 64) problems.push(document.problem([...map.path, key], 'expected a name of at most 64', 'key'));
    const read = readUpstream(document, map, key, where);
    problems.push(...read.problems);
    warnings.push(...read.warnings);
    if (read.config !== undefined) upstreams.push(read.config);
  }
  if (map.keys.length > UPSTREAM_LIMIT) {
    problems.push(document.problem(map.path, `more than ${UPSTREAM_LIMIT} upstreams`, 'key'));
  }
  if (upstreams.length === 0 && problems.length === 0) {
    warnings.push(problemLine(document.problem(map.path, 'no upstream is left to serve', 'key')));
  }

  const override = listen === undefined ? undefined : listenOverride(listen, problems);
  if (settings === undefined) throw new ConfigError(problems);
  const address = override ?? settings.listen;
  const profiles = readProfiles(document, settings, upstreams, keys);
  problems.push(...profiles.problems, ...exposure(document, settings, address, override !== undefined));
  if (problems.length > 0) throw new ConfigError(problems);
  warnings.push(...profiles.warnings, ...exposureWarnings(document, settings, address));

  const config = assemble(absolute, settings, address, where);
  return { config: freeze({ ...config, upstreams, profiles: profiles.profiles }), warnings };
}

/** @throws {ConfigError} */
function readText(file: string): string {
  const refuse = (message: string, cause?: unknown): ConfigError => {
    return new ConfigError([{ file, line: 0, column: 0, key: '', message }], cause);
  };
  if (/\.toml$/i.test(file)) {
    throw refuse(
      'TOML is not read; write [mcp_servers.x] as YAML or JSON, where the same keys work: "mcp_servers: {x: {command: …}}"',
    );
  }
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (thrown) {
    const code = thrown instanceof Error && 'code' in thrown ? String(thrown.code) : 'unknown error';
    throw refuse(code === 'ENOENT' ? 'no such file' : `cannot be read (${code})`, thrown);
  }
  if (bytes.length > FILE_LIMIT_BYTES) throw refuse('is larger than 1 MiB');
  try {
    return new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch (thrown) {
    throw refuse('is not UTF-8 text', thrown);
  }
}

function readGateway(document: Document, where: Places, problems: Problem[]): GatewaySettings | undefined {
  const path = ['gateway'];
  const expanded = expandData(path, valueAt(document.data, path) ?? {}, where, 'plain');
  const unset = expanded.unexpanded.map(({ path, reason }) => document.problem(path, reason));
  const section = checkSection(gatewaySchema, document, path, expanded);
  const told = new Set(unset.map(({ key }) => key));
  problems.push(...unset);
  if ('value' in section) return section.value;
  problems.push(...section.problems.filter(({ key }) => !told.has(key)));
  return undefined;
}

function listenOverride(listen: string, problems: Problem[]): Address | undefined {
  const address = parseAddress(listen);
  if (address === undefined) {
    const message = `expected host:port such as "127.0.0.1:3000", got ${JSON.stringify(listen)}`;
    problems.push({
      file: '--listen',
      line: 0,
      column: 0,
      key: '',
      message: `${message}${didYouMean(suggestAddress(listen))}`,
    });
  }
  return address;
}

/** Refuses to be open to a network without asking anybody who they are. */
function exposure(document: Document, settings: GatewaySettings, listen: Address, overridden: boolean): Problem[] {
  const problems: Problem[] = [];
  const { auth, operator } = settings;
  if (!isLoopback(listen.host) && auth.jwt.length === 0 && auth.apiKeys.length === 0) {
    const message = `${listen.host} is open to the network, and nobody is asked for credentials; configure gateway.auth, or listen on 127.0.0.1`;
    problems.push(
      overridden
        ? { file: '--listen', line: 0, column: 0, key: '', message }
        : document.problem(['gateway', 'listen'], message),
    );
  }
  if (operator !== false && operator.port !== 0 && operator.port === listen.port && operator.host === listen.host) {
    problems.push(
      document.problem(['gateway', 'operator'], 'is the address of listen; operators have a port of their own'),
    );
  }
  return problems;
}

function exposureWarnings(document: Document, settings: GatewaySettings, listen: Address): string[] {
  const { operator, publicUrl, allowedHosts } = settings;
  const warnings: string[] = [];
  if (!isLoopback(listen.host) && publicUrl === undefined && allowedHosts.length === 0) {
    const message = 'without publicUrl or allowedHosts, requests that name the gateway by a host name are refused';
    warnings.push(problemLine(document.problem(['gateway', 'listen'], message)));
  }
  if (operator !== false && !isLoopback(operator.host)) {
    const message = 'nobody is asked for credentials on this port; let only operators reach it';
    warnings.push(problemLine(document.problem(['gateway', 'operator'], message)));
  }
  return warnings;
}

function assemble(
  file: string,
  settings: GatewaySettings,
  listen: Address,
  where: Places,
): Omit<Config, 'upstreams' | 'profiles'> {
  const { limits, sessions } = settings;
  return {
    file,
    listen,
    operator: settings.operator === false ? undefined : settings.operator,
    publicUrl: settings.publicUrl,
    allowedHosts: settings.allowedHosts,
    allowedOrigins: settings.allowedOrigins,
    stateDir: settings.stateDir === undefined ? defaultStateDir(file, where) : where.resolve(settings.stateDir),
    auth: {
      jwt: settings.auth.jwt,
      apiKeys: settings.auth.apiKeys.map(({ name, sha256 }) => ({ name, sha256 })),
    },
    limits: {
      bodyBytes: limits.body,
      messageBytes: limits.message,
      processes: limits.processes,
      sessionsPerPrincipal: limits.sessionsPerPrincipal,
      parkedPerPrincipal: limits.parkedPerPrincipal,
      parkedPerUpstream: limits.parkedPerUpstream,
      inFlightPerSession: limits.inFlightPerSession,
      streamsPerPrincipal: limits.streamsPerPrincipal,
      bodyTotalBytes: limits.bodyTotal,
      unsentTotalBytes: limits.unsentTotal,
    },
    sessions: {
      idleMs: sessions.idle,
      maxAgeMs: sessions.maxAge,
      parkMs: sessions.park,
      keepAliveMs: sessions.keepAlive,
      eventLimit: sessions.events,
      eventLimitBytes: sessions.eventBytes,
      eventTotalBytes: sessions.eventBytesTotal,
    },
    legacySse: settings.legacySse,
    logLevel: settings.logLevel,
    names: settings.names,
    instructions: settings.instructions,
  };
}

/** One for each config file, so that two gateways of one user do not share state. */
function defaultStateDir(file: string, where: Places): string {
  const base = where.variable('XDG_STATE_HOME');
  const root = base !== undefined && isAbsolute(base) ? base : join(where.home, '.local', 'state');
  return join(root, 'linkspan', createHash('sha256').update(file).digest('hex').slice(0, 12));
}

function freeze<T>(value: T): T {
  if (typeof value === 'object' && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) freeze(member);
  }
  return value;
}
