/** Returns whether a glob matches the whole text: `*` is any number of characters, `?` is one. Case matters. */
export function matchesGlob(glob: string, text: string): boolean {
  let g = 0;
  let t = 0;
  let star = -1;
  let resume = 0;
  while (t < text.length) {
    if (glob[g] === '*') {
      star = g++;
      resume = t;
    } else if (glob[g] === '?') {
      g++;
      // A character beyond U+FFFF is two units of the text.
      t += (text.codePointAt(t) ?? 0) > 0xffff ? 2 : 1;
    } else if (g < glob.length && glob[g] === text[t]) {
      g++;
      t++;
    } else if (star >= 0) {
      // Only the latest star is tried again, so that hostile globs do not take exponential time.
      g = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  while (glob[g] === '*') g++;
  return g === glob.length;
}

/** Returns whether one of the globs matches one of the texts. */
export function matchesAny(globs: readonly string[], texts: readonly string[]): boolean {
  return globs.some((glob) => texts.some((text) => matchesGlob(glob, text)));
}

/** The tools of an upstream or a profile that are published. */
export interface ToolFilter {
  /** Globs; undefined includes every name. */
  readonly includeTools: readonly string[] | undefined;
  readonly excludeTools: readonly string[];
}

export function isIncluded(filter: ToolFilter, name: string): boolean {
  const included = filter.includeTools?.some((glob) => matchesGlob(glob, name)) ?? true;
  return included && !filter.excludeTools.some((glob) => matchesGlob(glob, name));
}

export function hasFilter(filter: ToolFilter): boolean {
  return filter.includeTools !== undefined || filter.excludeTools.length > 0;
}
