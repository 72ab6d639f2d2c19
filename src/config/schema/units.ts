/**
 * Converts durations and sizes between text and numbers. Everywhere else, a duration is milliseconds and a size is
 * bytes.
 */

const MS: ReadonlyMap<string, number> = new Map([
  ['ms', 1],
  ['s', 1_000],
  ['m', 60_000],
  ['h', 3_600_000],
  ['d', 86_400_000],
]);

const BYTES: ReadonlyMap<string, number> = new Map([
  ['B', 1],
  ['KiB', 1_024],
  ['MiB', 1_048_576],
  ['GiB', 1_073_741_824],
]);

export const DURATION = /^\d{1,12}(?:ms|s|m|h|d)$/;
export const SIZE = /^\d{1,12}(?:B|KiB|MiB|GiB)$/;

function parse(text: string, units: ReadonlyMap<string, number>, what: string): number {
  const [, amount = '', unit = ''] = /^(\d{1,12})([A-Za-z]+)$/.exec(text) ?? [];
  const factor = units.get(unit);
  if (factor === undefined) throw new TypeError(`not ${what}`);
  return Number(amount) * factor;
}

/** `"30s"` → 30 000. @throws {TypeError} */
export function durationMs(text: string): number {
  return parse(text, MS, 'a duration');
}

/** `"4MiB"` → 4 194 304. @throws {TypeError} */
export function sizeBytes(text: string): number {
  return parse(text, BYTES, 'a size');
}

/** Returns the amount in the largest unit that divides it. */
function print(amount: number, units: ReadonlyMap<string, number>): string {
  const [unit, factor] = [...units].toReversed().find(([, factor]) => amount % factor === 0) ?? ['', 1];
  return `${amount / factor}${unit}`;
}

/** 30 000 → `"30s"`. */
export function durationText(ms: number): string {
  return print(ms, MS);
}

/** 4 194 304 → `"4MiB"`. */
export function sizeText(bytes: number): string {
  return print(bytes, BYTES);
}

const DURATION_WORDS: readonly (readonly [RegExp, string])[] = [
  [/^(?:ms|msecs?|millis|milliseconds?)$/i, 'ms'],
  [/^(?:s|secs?|seconds?)$/i, 's'],
  [/^(?:m|mins?|minutes?)$/i, 'm'],
  [/^(?:h|hrs?|hours?)$/i, 'h'],
  [/^(?:d|days?)$/i, 'd'],
];

const SIZE_WORDS: readonly (readonly [RegExp, string])[] = [
  [/^(?:b|bytes?)$/i, 'B'],
  [/^(?:k|kb|kib)$/i, 'KiB'],
  [/^(?:m|mb|mib)$/i, 'MiB'],
  [/^(?:g|gb|gib)$/i, 'GiB'],
];

function withStandardUnit(text: string, words: readonly (readonly [RegExp, string])[]): string | undefined {
  const [, amount = '', word = ''] = /^\s*(\d{1,12})\s*([A-Za-z]+)\s*$/.exec(text) ?? [];
  const unit = words.find(([pattern]) => pattern.test(word))?.[1];
  return unit === undefined ? undefined : `${amount}${unit}`;
}

/**
 * Suggests a valid duration for a value that is not one, or undefined. A number below 1 000 counts as seconds, a larger
 * one as milliseconds.
 */
export function suggestDuration(value: unknown): string | undefined {
  const number = typeof value === 'string' && /^\d{1,12}$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number > 0) {
    return number < 1_000 ? `${number}s` : durationText(number);
  }
  return typeof value === 'string' ? withStandardUnit(value, DURATION_WORDS) : undefined;
}

/** Suggests a valid size for a value that is not one, or undefined. A bare number counts as bytes. */
export function suggestSize(value: unknown): string | undefined {
  const number = typeof value === 'string' && /^\d{1,12}$/.test(value) ? Number(value) : value;
  if (typeof number === 'number' && Number.isSafeInteger(number) && number > 0) return sizeText(number);
  return typeof value === 'string' ? withStandardUnit(value, SIZE_WORDS) : undefined;
}
