/** The names of tests: a sentence of at most 80 characters. The numbers of requirements stand in comments above. */

/** Matches the number of a requirement: `T-005`, `SEC-34`, `R1`. Names of algorithms such as `RS256` have more digits. */
export const NUMBER = String.raw`(?:[TLMXSAOP]-\d{3}|(?:SEC|REL|N)-\d{2}|[GRD]\d{1,2})`;

const MAX_LENGTH = 80;

/** Returns whether a name has more than 80 characters. */
export function isTooLong(name: string): boolean {
  return name.length > MAX_LENGTH;
}

/** Returns a text for the name of a test, with an ellipsis in place of all behind the first `limit` characters. */
export function shortened(text: string, limit = 40): string {
  return text.length <= limit ? text : `${text.slice(0, limit)}…`;
}

/** Returns a value as JSON for the name of a test, shortened to `limit` characters. */
export function quote(value: unknown, limit = 40): string {
  return shortened(JSON.stringify(value), limit);
}
