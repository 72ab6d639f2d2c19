import type { UpstreamMap } from './client-file.ts';
import type { UpstreamConfig, UpstreamTimeouts } from './config.ts';
import type { Document } from './document.ts';
import { checkEntry, place } from './entry.ts';
import type { CheckedEntry } from './entry.ts';
import type { Places } from './places.ts';
import { problemLine } from './problem.ts';
import type { Problem } from './problem.ts';
import { targetOf } from './target.ts';
import { defaultPrefix, upstreamId } from './upstream-id.ts';

/** Each connection is a process. */
const STDIO_DEFAULTS = { concurrency: 32, idleMs: 600_000, maxConnections: 64 } as const;
/** Enough for thousands of sessions of one upstream, 1 000 of which call at once. */
const REMOTE_DEFAULTS = { concurrency: 1_024, idleMs: 3_600_000, maxConnections: 10_000 } as const;

export interface UpstreamRead {
  /** Undefined where the entry is disabled, not ours to run, or wrong. */
  readonly config?: UpstreamConfig;
  readonly problems: readonly Problem[];
  readonly warnings: readonly string[];
}

/** Reads one entry of the map of upstreams. */
export function readUpstream(document: Document, map: UpstreamMap, key: string, places: Places): UpstreamRead {
  const path = [...map.path, key];
  const checked = checkEntry(document, path, places, map);
  if ('problems' in checked) return { problems: checked.problems, warnings: [] };
  const { entry } = checked;
  if (entry.disabled === true || entry.enabled === false) return { problems: [], warnings: [] };

  const warnings = [...checked.warnings];
  const warn = (key: string | undefined, message: string): void => {
    warnings.push(problemLine(document.problem(key === undefined ? path : [...path, key], message, 'key')));
  };
  const wrong = (inside: readonly string[], message: string): UpstreamRead => {
    return { problems: [document.problem([...path, ...inside], message, 'key')], warnings };
  };

  const found = targetOf(checked, places);
  if ('leftOut' in found) {
    warn(undefined, found.leftOut);
    return { problems: [], warnings };
  }
  if ('fault' in found) return wrong(found.fault.key === undefined ? [] : [found.fault.key], found.fault.message);
  for (const { key, message } of found.warnings) warn(key, message);

  const timeouts = timeoutsOf(checked, map, warn);
  if (timeouts.callMs > timeouts.maxMs) return wrong(['timeouts', 'max'], 'is shorter than timeouts.call');
  const include = [entry.includeTools, entry.enabled_tools, entry.tools, emptyIsAll(entry.available_tools)];
  const includes = include.filter((list) => list !== undefined);
  if (includes.length > 1) return wrong([], 'says twice which tools to include; keep includeTools');

  const id = upstreamId(key);
  const prefix = entry.prefix ?? defaultPrefix(key);
  const defaults = found.target.kind === 'stdio' ? STDIO_DEFAULTS : REMOTE_DEFAULTS;
  const concurrency = entry.concurrency ?? defaults.concurrency;
  const reasons = [
    ...checked.reasons,
    ...found.reasons.map(
      ({ key, message }) => `${message} (${place(document, key === undefined ? path : [...path, key])})`,
    ),
  ];
  return {
    config: {
      id,
      title: key,
      target: found.target,
      prefix,
      rawUris: entry.rawUris ?? prefix === '',
      isolation: entry.isolation,
      era: entry.era,
      start: entry.start,
      required: entry.required,
      timeouts,
      concurrency,
      queue: entry.queue ?? 2 * concurrency,
      queueMs: entry.queueWait,
      idleMs: entry.idle ?? defaults.idleMs,
      maxConnections: entry.maxConnections ?? defaults.maxConnections,
      includeTools: includes[0],
      excludeTools: [...entry.excludeTools, ...(entry.disabled_tools ?? []), ...(entry.disabledTools ?? [])],
      problem: reasons.length === 0 ? undefined : reasons.join('; '),
    },
    problems: [],
    warnings,
  };
}

/** Our own spelling comes first, then a client's, then the default. */
function timeoutsOf(
  { entry, given }: CheckedEntry,
  { timeout }: UpstreamMap,
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

  const theirStart =
    (entry.startup_timeout_sec === undefined ? entry.startup_timeout_ms : entry.startup_timeout_sec * 1_000) ??
    (timeout.bounds === 'start' ? theirs : undefined);
  const theirCall =
    (entry.tool_timeout_sec === undefined ? undefined : entry.tool_timeout_sec * 1_000) ??
    (timeout.bounds === 'call' ? theirs : undefined);
  const callMs = given.has('timeouts.call') ? call : (theirCall ?? call);
  return {
    startMs: given.has('timeouts.start') ? start : (theirStart ?? start),
    connectMs: connect,
    firstByteMs: firstByte,
    callMs,
    maxMs: given.has('timeouts.max') ? max : Math.max(max, callMs),
  };
}

function emptyIsAll(list: readonly string[] | undefined): readonly string[] | undefined {
  return list?.length === 0 ? undefined : list;
}
