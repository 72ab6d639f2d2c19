import { isRecord } from '../../json/record.ts';
import type { ClientStyle, EntryPath } from './client-file.ts';
import { isLoopbackUrl } from '../schema/address.ts';
import {
  CLIENT_FEATURES,
  type ClientFeature,
  hasCallersLists,
  type UpstreamConfig,
  type UpstreamTimeouts,
} from '../values/upstream-config.ts';
import type { Data, Document } from '../document/document.ts';
import { type CheckedEntry, checkEntry, place } from './entry.ts';
import { valueAt } from '../document/expanded.ts';
import type { Places } from '../document/places.ts';
import { placeText, type Problem, problemLine } from '../document/problem.ts';
import { targetOf, UNUSABLE_URL, URL_KEYS } from './target.ts';
import { defaultPrefix, upstreamId } from './upstream-id.ts';
import { durationMs } from '../schema/units.ts';
import { type UpstreamEntry, upstreamSchema } from '../schema/upstream-schema.ts';

/** Defaults of stdio upstreams, where each connection is a process. */
const STDIO_DEFAULTS = { concurrency: 32, idleMs: 600_000, maxConnections: 64 } as const;
/** Defaults of remote upstreams: enough for thousands of sessions, 1 000 of which call at once. */
const REMOTE_DEFAULTS = { concurrency: 1_024, idleMs: 3_600_000, maxConnections: 10_000 } as const;
/** The default of `timeouts.call`, and that for tools: many work for minutes and report no progress. */
const CALL_MS = 60_000;
const TOOL_MS = 300_000;

export interface UpstreamRead {
  /**
   * Undefined if the entry is disabled, or of a type that only its client can run. With problems, an upstream that is
   * listed as failed.
   */
  readonly config?: UpstreamConfig;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** Reads one upstream entry. A mistake in it fails this upstream alone. */
export function readUpstream(document: Document, style: ClientStyle, at: EntryPath, places: Places): UpstreamRead {
  const { key: name, path } = at;
  if (name === '') return unusable(document, at, [document.problem(path, 'expected a name as the key', 'key')], []);
  const checked = checkEntry(document, path, places, style);
  if ('problems' in checked) return unusable(document, at, checked.problems, []);
  const { entry } = checked;
  if (entry.disabled === true || entry.enabled === false) return { problems: [], warnings: [] };

  const warnings = [...checked.warnings];
  const warn = (key: string | undefined, message: string): void => {
    warnings.push(problemLine(document.problem(key === undefined ? path : [...path, key], message, 'key')));
  };
  const wrong = (inside: readonly string[], message: string): UpstreamRead => {
    return unusable(document, at, [document.problem([...path, ...inside], message, 'key')], warnings);
  };

  const found = targetOf(checked, places);
  if ('leftOut' in found) {
    warn(undefined, found.leftOut);
    return { problems: [], warnings };
  }
  if ('fault' in found) return wrong(found.fault.key === undefined ? [] : [found.fault.key], found.fault.message);
  for (const { key, message } of [...found.unused, ...found.warnings]) warn(key, message);

  if (found.target.kind === 'sse' && entry.era === 'modern') {
    return wrong(['era'], 'HTTP+SSE is the transport of 2024-11-05; remove "era", or write type "http"');
  }
  const timeouts = timeoutsOf(checked, style, warn);
  if (timeouts.callMs > timeouts.maxMs) return wrong(['timeouts', 'max'], 'is shorter than timeouts.call');
  const isPersonal = hasCallersLists(found);
  const kind = entry.auth?.kind ?? 'static';
  if (isPersonal && entry.isolation === 'shared') {
    return wrong(
      ['isolation'],
      `"shared" is one connection for all, but auth.kind "${kind}" is for each principal; write "principal"`,
    );
  }
  if (isPersonal && entry.required) {
    warn('required', `has no use with auth.kind "${kind}": no connection is open before a caller needs it; ignored`);
  }
  if (entry.isolation === 'shared') {
    const message =
      'isolation "shared" allows no sampling and no roots: nobody of those who share could be asked; ignored';
    if (entry.clientFeatures?.some((feature) => feature !== 'elicitation') === true) warn('clientFeatures', message);
    if (checked.given.has('samplingBudget')) warn('samplingBudget', message);
  }
  const { includeTools, enabled_tools: enabled, available_tools: available, tools } = entry;
  // Empty means all to Goose. In Codex's file, `tools` is a map with settings of single tools.
  const include = [includeTools, enabled, available?.length === 0 ? undefined : available];
  const includes = [...include, Array.isArray(tools) ? tools : undefined].filter((list) => list !== undefined);
  if (includes.length > 1) return wrong([], 'says twice which tools to include; keep includeTools');

  const reasons = [
    ...checked.unexpanded.filter(({ key }) => !found.unused.some((one) => one.key === key)).map(({ reason }) => reason),
    ...found.reasons.map(
      ({ key, message }) => `${message} (${place(document, key === undefined ? path : [...path, key])})`,
    ),
  ];
  const problem = reasons.length === 0 ? undefined : reasons.join('; ');
  const config = upstreamConfigOf(name, entry, found.target, timeouts, includes[0], problem);
  return { config, problems: [], warnings };
}

function upstreamConfigOf(
  name: string,
  entry: UpstreamEntry,
  target: UpstreamConfig['target'],
  timeouts: UpstreamTimeouts,
  includeTools: readonly string[] | undefined,
  problem: string | undefined,
): UpstreamConfig {
  const id = upstreamId(name);
  const prefix = entry.prefix ?? defaultPrefix(name);
  const defaults = target.kind === 'stdio' ? STDIO_DEFAULTS : REMOTE_DEFAULTS;
  const concurrency = entry.concurrency ?? defaults.concurrency;
  const hosts = entry.elicitationHosts?.map((host) => host.toLowerCase());
  return {
    id,
    title: name,
    target,
    prefix,
    rawUris: entry.rawUris ?? prefix === '',
    isolation: entry.isolation,
    era: entry.era,
    clientFeatures: entry.clientFeatures ?? defaultFeatures(target),
    ...(hosts === undefined ? {} : { elicitationHosts: hosts }),
    samplingBudget: entry.samplingBudget,
    start: entry.start,
    required: entry.required && !hasCallersLists({ target }),
    timeouts,
    concurrency,
    queue: entry.queue ?? 2 * concurrency,
    queueMs: entry.queueWait,
    idleMs: entry.idle ?? defaults.idleMs,
    maxConnections: entry.maxConnections ?? defaults.maxConnections,
    includeTools,
    excludeTools: [...entry.excludeTools, ...(entry.disabled_tools ?? []), ...(entry.disabledTools ?? [])],
    ...(entry.lock === undefined ? {} : { lock: entry.lock }),
    problem,
  };
}

/** Sampling spends the client's money, and its user is not shown which of the gateway's upstreams asks. */
function defaultFeatures(target: UpstreamConfig['target']): readonly ClientFeature[] {
  const isLocal = target.kind === 'stdio' || isLoopbackUrl(new URL(target.url));
  return isLocal ? CLIENT_FEATURES : CLIENT_FEATURES.filter((feature) => feature !== 'sampling');
}

/** Returns an upstream that is listed as failed, with every problem of its entry as the reason. */
function unusable(
  document: Document,
  { key, path }: EntryPath,
  problems: readonly Problem[],
  warnings: readonly string[],
): UpstreamRead {
  const raw = valueAt(document.data, path);
  if (isDisabled(raw)) return { problems: [], warnings };
  const isRequired = isRecord(raw) && raw['required'] === true;
  const entry = upstreamSchema.parse({ required: isRequired });
  const target = isRemote(raw)
    ? ({ kind: 'http', url: UNUSABLE_URL, headers: {} } as const)
    : ({ kind: 'stdio', command: '', args: [], env: {}, cwd: undefined } as const);
  const reason = problems.map(reasonOf).join('; ');
  const { start, connect, firstByte, call, max } = entry.timeouts;
  const timeouts = { startMs: start, connectMs: connect, firstByteMs: firstByte, ...waitsOf(call, max) };
  return { config: upstreamConfigOf(key, entry, target, timeouts, undefined, reason), problems, warnings };
}

/** Returns an upstream that is listed as failed because of this problem; without one, as it is. */
export function withProblem(upstream: UpstreamConfig, problem: Problem | undefined): UpstreamConfig {
  if (problem === undefined) return upstream;
  return { ...upstream, problem: upstream.problem ?? reasonOf(problem) };
}

function reasonOf(problem: Problem): string {
  return `${problem.message} (${placeText(problem)})`;
}

/** Returns whether an entry of a file is left out, by its own words. */
export function isDisabled(raw: Data | undefined): boolean {
  return isRecord(raw) && (raw['disabled'] === true || raw['enabled'] === false);
}

function isRemote(raw: Data | undefined): boolean {
  return isRecord(raw) && URL_KEYS.some((key) => Object.hasOwn(raw, key));
}

/** Reads the timeouts. Our own spelling overrides a client's, which overrides the default. */
function timeoutsOf(
  { entry, given }: CheckedEntry,
  { timeout }: ClientStyle,
  warn: (key: string, message: string) => void,
): UpstreamTimeouts {
  const { start, connect, firstByte, call, max } = entry.timeouts;
  let theirs: number | undefined;
  if (typeof entry.timeout === 'object') theirs = entry.timeout.ms;
  else if (entry.timeout !== undefined) {
    const guessed = timeout.unit === 'guess' ? (entry.timeout < 1_000 ? 's' : 'ms') : timeout.unit;
    theirs = guessed === 's' ? entry.timeout * 1_000 : entry.timeout;
    if (timeout.unit === 'guess' && guessed === 's')
      warn('timeout', `taken for seconds; write "${entry.timeout}s" to be sure`);
  }

  /** Returns a wait of a client's file in whole ms, no longer than ours may be. */
  const bounded = (key: keyof UpstreamEntry, value: number | undefined, unitMs: number, most: string) => {
    if (value === undefined) return undefined;
    const mostMs = durationMs(most);
    if (value * unitMs > mostMs) warn(key, `is longer than the longest wait; ${most} is used`);
    return Math.min(Math.ceil(value * unitMs), mostMs);
  };
  const theirsFor = (bounds: 'call' | 'start') => (timeout.bounds === bounds ? theirs : undefined);
  const callMs =
    call ??
    bounded('tool_timeout_sec', entry.tool_timeout_sec, 1_000, '1d') ??
    bounded('timeout', theirsFor('call'), 1, '1d');
  const theirStart = () =>
    bounded('startup_timeout_sec', entry.startup_timeout_sec, 1_000, '1h') ??
    bounded('startup_timeout_ms', entry.startup_timeout_ms, 1, '1h') ??
    bounded('connectionTimeout', entry.connectionTimeout, 1, '1h') ??
    bounded('timeout', theirsFor('start'), 1, '1h');
  return {
    startMs: given.has('timeouts.start') ? start : (theirStart() ?? start),
    connectMs: connect,
    firstByteMs: firstByte,
    ...waitsOf(callMs, given.has('timeouts.max') ? max : Math.max(max, callMs ?? 0)),
  };
}

/** @param callMs as configured: for all methods. Only by default, a tool may be silent for longer. */
function waitsOf(callMs: number | undefined, maxMs: number): Pick<UpstreamTimeouts, 'callMs' | 'toolMs' | 'maxMs'> {
  return { callMs: callMs ?? Math.min(CALL_MS, maxMs), toolMs: callMs ?? Math.min(TOOL_MS, maxMs), maxMs };
}
