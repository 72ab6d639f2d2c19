/**
 * Matches one JSON string, line comment or block comment. Strings match first, so that their content is not taken for a
 * comment.
 */
const TOKENS = /"(?:[^"\\\n]|\\.)*"|\/\/[^\n\r]*|\/\*[^]*?(?:\*\/|$)/g;

/** Replaces comments with spaces, so that every offset, line and column stays the same. */
export function blankComments(text: string): string {
  return text.replace(TOKENS, (token) => (token.startsWith('"') ? token : token.replace(/[^\n\r]/g, ' ')));
}

/** Returns whether a file is JSON: by its name, or else by its first characters. */
export function isJson(file: string, text: string): boolean {
  if (/\.jsonc?$/i.test(file)) return true;
  if (/\.ya?ml$/i.test(file)) return false;
  return /^\s*(?:\{|\/\/|\/\*)/.test(text);
}
