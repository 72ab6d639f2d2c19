import { QUOTE } from './scan.ts';
import { checkedStringEnd } from './strings.ts';

const NUMBER = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/y;
const INTEGER = /^-?\d+$/;
const MINUS = 0x2d;
const [ZERO, NINE] = [0x30, 0x39];

/**
 * Returns the first number of a JSON text that `JSON.parse` changes beyond the precision of fractions. It is an integer of too many digits,
 * such as an id, or a number that is too large.
 *
 * @param text valid JSON.
 */
export function changedNumber(text: string): string | undefined {
  for (let at = 0; at < text.length;) {
    const c = text.charCodeAt(at);
    if (c === QUOTE) {
      at = checkedStringEnd(text, at);
    } else if (c === MINUS || (c >= ZERO && c <= NINE)) {
      NUMBER.lastIndex = at;
      const [number = ''] = NUMBER.exec(text) ?? [];
      if (isChanged(number)) return number;
      at += Math.max(number.length, 1);
    } else {
      at++;
    }
  }
  return undefined;
}

function isChanged(number: string): boolean {
  const value = Number(number);
  if (!Number.isFinite(value)) return true;
  // The program sends the shortest text of a number, so that text is compared.
  return !Number.isSafeInteger(value) && INTEGER.test(number) && digitsOf(number) !== digitsOf(String(value));
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

/** Returns the first number of a JSON text that becomes infinite, which is written as `null`. @param text valid JSON. */
export function infiniteNumber(text: string): string | undefined {
  let found: string | undefined;
  JSON.parse(text, (_name: string, value: unknown, at?: { readonly source?: string }) => {
    if (typeof value === 'number' && !Number.isFinite(value)) found ??= at?.source ?? String(value);
    return value;
  });
  return found;
}
