import { isDeepStrictEqual } from 'node:util';

export type Members = Readonly<Record<string, unknown>>;
export type Id = string | number;

/** A parsed JSON-RPC message of either kind. */
export type Message = Members;

export function isMembers(value: unknown): value is Members {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Returns the object, or an empty one if the value is something else. */
export function object(value: unknown): Members {
  return isMembers(value) ? value : {};
}

export function array(value: unknown): readonly unknown[] {
  return Array.isArray(value) ? value : [];
}

export function string(value: unknown): string {
  return typeof value === 'string' ? value : '';
}

export function idOf(message: Message): Id | undefined {
  const { id } = message;
  return typeof id === 'string' || typeof id === 'number' ? id : undefined;
}

export function same(one: unknown, other: unknown): boolean {
  return isDeepStrictEqual(one, other);
}

/** Returns the object without some of its members. */
export function without(value: Members, ...names: readonly string[]): Members {
  return Object.fromEntries(Object.entries(value).filter(([name]) => !names.includes(name)));
}

/** @throws {SyntaxError} if the text is no JSON object. */
export function parse(text: string): Message {
  const value: unknown = JSON.parse(text);
  if (!isMembers(value)) throw new SyntaxError(`not a message: ${text.slice(0, 100)}`);
  return value;
}

export function tryParse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    // Text that is not JSON is compared as text.
    return text;
  }
}

/** Returns a description of the first place where two values differ; undefined if they are equal. */
export function difference(expected: unknown, actual: unknown, at = '$'): string | undefined {
  if (same(expected, actual)) return undefined;
  if (Array.isArray(expected) && Array.isArray(actual) && expected.length === actual.length) {
    for (const [i, one] of expected.entries()) {
      const found = difference(one, actual[i], `${at}[${i}]`);
      if (found !== undefined) return found;
    }
  }
  if (isMembers(expected) && isMembers(actual)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
      const found = difference(expected[key], actual[key], `${at}.${key}`);
      if (found !== undefined) return found;
    }
  }
  const show = (value: unknown) => (JSON.stringify(value) ?? 'nothing').slice(0, 160);
  return `${at}: expected ${show(expected)}, got ${show(actual)}`;
}
