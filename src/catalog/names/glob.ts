/** Whether `*` (any run of characters) and `?` (any one) make the glob fit the whole text. Case counts. */
export function matchesGlob(glob: string, text: string): boolean {
  let g = 0;
  let t = 0;
  let star = -1;
  let resume = 0;
  while (t < text.length) {
    if (glob[g] === '*') {
      star = g++;
      resume = t;
    } else if (g < glob.length && (glob[g] === '?' || glob[g] === text[t])) {
      g++;
      t++;
    } else if (star >= 0) {
      // Only the latest star needs another try, which keeps hostile globs from taking exponential time.
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (glob[g] === '*') g++;
  return g === glob.length;
}

/** What may be offered of an upstream's or a profile's tools. */
export interface ToolFilter {
  /** Globs; undefined includes every name. */
  readonly includeTools: readonly string[] | undefined;
  readonly excludeTools: readonly string[];
}

/** Exclusion beats inclusion. */
export function letsThrough(filter: ToolFilter, name: string): boolean {
  const included = filter.includeTools?.some((glob) => matchesGlob(glob, name)) ?? true;
  return included && !filter.excludeTools.some((glob) => matchesGlob(glob, name));
}

export function hasFilter(filter: ToolFilter): boolean {
  return filter.includeTools !== undefined || filter.excludeTools.length > 0;
}
