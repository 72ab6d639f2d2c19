import type { LimitName } from '../../limits.ts';
import { TemplateIndex } from './template-index.ts';
import { parseTemplate } from './template.ts';
import { canonicalGlob, canonicalUri, spellingsOf } from './uri-form.ts';

/** A port that is an expression: canonical forms have no port. */
const PORT = /(?<=^[a-z][a-z+.-]*:\/\/[^/?#]*):\{[^{}]*\}/i;

/** What the lock withholds of the resources and templates of one upstream. */
export class WithheldUris {
  readonly #keys: ReadonlySet<string>;
  readonly #canonical: ReadonlySet<string>;
  readonly #templates: TemplateIndex;
  /** Whether one of them cannot be compared with a URI. */
  readonly #isUnclear: boolean;

  /** @param onLimit runs when a URI or template is too long, takes too many steps or has too many expressions. */
  constructor(uris: readonly string[], templates: readonly string[], onLimit?: (limit: LimitName) => void) {
    const canonical = uris.map((uri) => canonicalUri(uri));
    this.#keys = new Set([...uris, ...templates]);
    this.#canonical = new Set(canonical.filter((uri) => uri !== undefined));
    const spelled = templates.flatMap((template) => [
      template,
      canonicalGlob(template.replace(PORT, '')).toLowerCase(),
    ]);
    this.#templates = new TemplateIndex(
      spelled.map((template) => ({ upstream: '', template })),
      onLimit,
      true,
    );
    this.#isUnclear =
      canonical.includes(undefined) || !spelled.every((template) => parseTemplate(template) !== undefined);
  }

  /** Returns whether this is the URI of a withheld resource, or a withheld template. */
  has(key: string): boolean {
    return this.#keys.has(key);
  }

  /**
   * Returns whether the server may read a withheld resource by this URI, or one of a withheld template. Servers treat several spellings as
   * one URI. A URI that servers read in different ways may be any of them.
   */
  mayContain(uri: string): boolean {
    if (this.#isUnclear) return true;
    const spellings = spellingsOf(uri);
    if (spellings === undefined) return true;
    return (
      spellings.some((spelling) => this.#canonical.has(spelling)) ||
      [uri, ...spellings.map((spelling) => spelling.toLowerCase())].some(
        (spelling) => this.#templates.find(spelling).size > 0,
      )
    );
  }
}
