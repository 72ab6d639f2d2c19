import { type LimitName, LIMITS } from '../../limits.ts';
import { TemplateIndex } from './template-index.ts';
import { parseTemplate } from './template.ts';
import { canonicalGlob, canonicalUri, spellingsOf } from './uri-form.ts';

const AUTHORITY = /^[a-z][a-z0-9+.-]*:\/\/[^/?#]*/i;

/** What the lock withholds of the resources and templates of one upstream. */
export class WithheldUris {
  readonly #keys: ReadonlySet<string>;
  readonly #canonical: ReadonlySet<string>;
  readonly #templates: TemplateIndex;
  /** True if one of them cannot be compared with a URI, or there are too many. */
  readonly #isUnclear: boolean;

  /** @param onLimit runs when one of them or all together are too long, or a template takes too many steps or has too many expressions. */
  constructor(uris: readonly string[], templates: readonly string[], onLimit?: (limit: LimitName) => void) {
    const chars = [...uris, ...templates].reduce((sum, one) => sum + one.length, 0);
    const isMany = chars > LIMITS.withheldUriChars;
    if (isMany) onLimit?.('withheldUriChars');
    const canonical = isMany ? [] : uris.map((uri) => canonicalUri(uri));
    this.#keys = new Set([...uris, ...templates]);
    this.#canonical = new Set(canonical.filter((uri) => uri !== undefined));
    const spelled = (isMany ? [] : templates).flatMap((template) => [
      template,
      canonicalGlob(withoutPort(template)).toLowerCase(),
    ]);
    this.#templates = new TemplateIndex(
      spelled.map((template) => ({ upstream: '', template })),
      onLimit,
      true,
    );
    this.#isUnclear =
      isMany || canonical.includes(undefined) || !spelled.every((template) => parseTemplate(template) !== undefined);
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

/** Removes a port that is an expression, since canonical forms have no port. Takes time in proportion to the length. */
function withoutPort(template: string): string {
  const [authority = ''] = AUTHORITY.exec(template) ?? [];
  return `${authority.replace(/:\{[^{}]*\}/, '')}${template.slice(authority.length)}`;
}
