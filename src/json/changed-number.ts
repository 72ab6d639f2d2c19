const INTEGER = /^-?\d+$/;

/**
 * Returns the first number of a JSON text that `JSON.parse` changes beyond the precision of fractions. It is an integer of too many digits,
 * such as an id, or a number that is too large.
 *
 * @param text valid JSON.
 */
export function changedNumber(text: string): string | undefined {
  return numberIn(text, isChanged);
}

/** Returns the first number of a JSON text that becomes infinite, which is written as `null`. @param text valid JSON. */
export function infiniteNumber(text: string): string | undefined {
  return numberIn(text, (value) => !Number.isFinite(value));
}

function numberIn(text: string, isWanted: (value: number, source: string) => boolean): string | undefined {
  let found: string | undefined;
  JSON.parse(text, (_name: string, value: unknown, { source = String(value) }: { readonly source?: string } = {}) => {
    if (typeof value === 'number' && isWanted(value, source)) found ??= source;
    return value;
  });
  return found;
}

function isChanged(value: number, source: string): boolean {
  if (!Number.isFinite(value)) return true;
  // The program sends the shortest text of a number, so that text is compared.
  return !Number.isSafeInteger(value) && INTEGER.test(source) && digitsOf(source) !== digitsOf(String(value));
}

/** Returns the digits of a number without zeros at its ends: `-1.20e+30` and `12` → `12`. */
export function digitsOf(number: string): string {
  return (
    number
      .replace(/[eE].*$/, '')
      .replaceAll(/[-.]/g, '')
      // Looks behind, so that a long run of zeros inside of the digits is read once.
      .replaceAll(/^0+|(?<!0)0+$/g, '')
  );
}
