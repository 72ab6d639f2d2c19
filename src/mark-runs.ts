/**
 * Runs of combining marks. Normalizing sorts the marks of a run one by one, which takes a time that is quadratic in its length. One
 * message of a peer could take hours. Nobody writes runs of more than 30.
 *
 * @see https://www.unicode.org/reports/tr15/#Stream_Safe_Text_Format
 */
const MAX_MARKS = 30;

/** A mark, or one of the two letters that NFKC makes marks of. */
const MARK = String.raw`[\p{M}\uff9e\uff9f]`;
/** The lookbehind keeps the search from beginning again at each mark of a run. */
const LONG_RUN = new RegExp(`(?<!${MARK})(${MARK}{${MAX_MARKS}})${MARK}+`, 'gu');

/** Returns a text in a normal form of Unicode; undefined if it has a run of marks that is too long. */
export function normalized(text: string, form: 'NFC' | 'NFKC'): string | undefined {
  return text.search(LONG_RUN) < 0 ? text.normalize(form) : undefined;
}

export function withoutLongRuns(text: string): string {
  return text.replaceAll(LONG_RUN, '$1');
}
