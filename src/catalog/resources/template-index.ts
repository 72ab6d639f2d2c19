import { type LimitName, LIMITS } from '../../limits.ts';
import { getOrMake } from '../../map-entries.ts';
import { isTooLong, matchesTemplate, type Matcher, parseTemplate } from './template.ts';

interface Entry {
  /** The literal text at the start of these templates. */
  readonly start: string;
  readonly templates: { readonly upstream: string; readonly matcher: Matcher }[];
  /** The entry with the longest start that is a prefix of this one's start. */
  shorter: Entry | undefined;
}

/** Finds the upstreams whose templates match a URI. Compares only templates whose literal start the URI has. */
export class TemplateIndex {
  /** Sorted by start. */
  readonly #entries: readonly Entry[];

  readonly #onLimit: (limit: LimitName) => void;
  readonly #matchesUnknown: boolean;

  /**
   * Ignores templates that cannot be parsed.
   *
   * @param onLimit runs when a URI or template is too long, takes too many steps or has too many expressions.
   * @param matchesUnknown whether a template matches a URI with its literal start that is too long or takes too many steps.
   */
  constructor(
    templates: readonly { readonly upstream: string; readonly template: string }[],
    onLimit: (limit: LimitName) => void = () => {},
    matchesUnknown = false,
  ) {
    this.#onLimit = onLimit;
    this.#matchesUnknown = matchesUnknown;
    const entries = new Map<string, Entry>();
    for (const { upstream, template } of templates) {
      const matcher = parseTemplate(template, onLimit);
      if (matcher === undefined) continue;
      const { start } = matcher;
      const entry = getOrMake(entries, start, () => ({ start, templates: [], shorter: undefined }));
      entry.templates.push({ upstream, matcher });
    }
    this.#entries = [...entries.values()].toSorted((a, b) => (a.start < b.start ? -1 : 1));
    let before: Entry | undefined;
    for (const entry of this.#entries) {
      while (before !== undefined && !entry.start.startsWith(before.start)) before = before.shorter;
      entry.shorter = before;
      before = entry;
    }
  }

  /**
   * Returns the upstreams with a matching template, in no order. The templates of each upstream share
   * `LIMITS.templateMatchSteps` steps; what is too long or needs more is unknown.
   */
  find(uri: string): ReadonlySet<string> {
    const found = new Set<string>();
    if (this.#entries.length === 0) return found;
    const isUnknown = isTooLong(uri);
    if (isUnknown) {
      this.#onLimit('templateUriBytes');
      if (!this.#matchesUnknown) return found;
    }
    const allowances = new Map<string, { steps: number }>();
    for (let entry = this.#lastUpTo(uri); entry !== undefined; entry = entry.shorter) {
      if (!uri.startsWith(entry.start)) continue;
      for (const { upstream, matcher } of entry.templates) {
        if (found.has(upstream)) continue;
        const allowance = getOrMake(allowances, upstream, () => ({ steps: LIMITS.templateMatchSteps }));
        if (allowance.steps <= 0) continue;
        allowance.steps -= 1 + (entry.start.length >> 4);
        if (isUnknown || matchesTemplate(matcher, uri, allowance)) found.add(upstream);
        else if (allowance.steps <= 0) {
          this.#onLimit('templateMatchSteps');
          if (this.#matchesUnknown) found.add(upstream);
        }
      }
    }
    return found;
  }

  /**
   * Returns the last entry that does not sort after the URI. Every entry whose start is a prefix of the URI is on its
   * chain of `shorter` entries.
   */
  #lastUpTo(uri: string): Entry | undefined {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#entries[middle]?.start ?? '') <= uri) low = middle + 1;
      else high = middle;
    }
    return this.#entries[low - 1];
  }
}
