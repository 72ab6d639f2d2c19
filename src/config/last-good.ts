import type { Loaded } from './load.ts';
import type { UpstreamConfig } from './values/upstream-config.ts';
import { ConfigError, problemOfWhole } from './document/problem.ts';
import type { LastGoodUpstreams } from './upstream-source.ts';
import { expected } from '../thrown.ts';

/** The upstreams of the last good file, or the reason why there are none, as a clause. */
export type KeptUpstreams = LastGoodUpstreams | { readonly missing: string };

/**
 * Loads a config for a start. A broken file gets the upstreams of the last good one; all other settings are its own, or the
 * start fails. As with a reload, a file is broken if one of its upstreams cannot be started that could before.
 *
 * @param load loads the file, with its own upstreams if it gets no others. It throws a ConfigError for a broken file.
 * @throws {ConfigError} if the file is broken and the last good upstreams cannot be used with it.
 */
export async function loadOrLastGood(
  load: (lastGood: LastGoodUpstreams | undefined) => Promise<Loaded>,
  kept: KeptUpstreams,
): Promise<Loaded> {
  const own = await load(undefined).catch(expected(ConfigError));
  const isSound = !(own instanceof ConfigError) && newlyFailing([], own.config.upstreams).length === 0;
  if (isSound) return own;
  if ('missing' in kept) {
    if (own instanceof ConfigError) throw refused(own, kept.missing);
    return own;
  }
  const earlier = await load(kept).catch(expected(ConfigError));
  if (earlier instanceof ConfigError) {
    // An entry that is wrong in both versions fails alone, as at any other start.
    if (!(own instanceof ConfigError)) return own;
    const why = `the upstreams of ${kept.savedAt} cannot be used with the rest of this file: ${earlier.problems[0]?.message ?? ''}`;
    throw refused(own, `${why}. Access, authentication and limits never come from an older file`);
  }
  const reason = own instanceof ConfigError ? own.message : failures(earlier, own);
  if (!(own instanceof ConfigError) && reason === '') return own;
  const files = own instanceof ConfigError ? earlier.files : new Map([...earlier.files, ...own.files]);
  return { ...earlier, files, lastGood: { savedAt: kept.savedAt, reason } };
}

/** Returns the reasons why upstreams of a config fail that did not fail in the earlier one, one line each. */
function failures(earlier: Loaded, { config }: Loaded): string {
  return newlyFailing(earlier.config.upstreams, config.upstreams)
    .map(({ title, problem = '' }) => `${config.file} mcpServers.${title}: ${problem}`)
    .join('\n');
}

function refused({ problems }: ConfigError, message: string): ConfigError {
  return new ConfigError([problemOfWhole('--last-good', message), ...problems]);
}

/**
 * Returns the upstreams that cannot be started although they could before, or that are new. A file with one of them is broken: a
 * typing error must not end an upstream that works.
 */
export function newlyFailing(
  before: readonly UpstreamConfig[],
  next: readonly UpstreamConfig[],
): readonly UpstreamConfig[] {
  const failedBefore = new Set(before.filter(({ problem }) => problem !== undefined).map(({ id }) => id));
  return next.filter(({ id, problem }) => problem !== undefined && !failedBefore.has(id));
}
