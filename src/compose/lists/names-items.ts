import type { Config } from '../../config/values/config.ts';

/** Returns whether a config has globs or names that may match nothing in the lists of its upstreams. */
export function namesItems({ access, rates, repeats, upstreams, profiles }: Config): boolean {
  return (
    access !== undefined ||
    repeats !== undefined ||
    rates.some(({ tools }) => tools !== undefined) ||
    [...upstreams, ...profiles].some(
      ({ includeTools, excludeTools }) => includeTools !== undefined || excludeTools.length > 0,
    ) ||
    profiles.some(({ renames }) => Object.keys(renames).length > 0)
  );
}
