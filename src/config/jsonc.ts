/** One JSON string, line comment or block comment. What a string holds is not a comment. */
const TOKENS = /"(?:[^"\\\n]|\\.)*"|\/\/[^\n\r]*|\/\*[^]*?(?:\*\/|$)/g;

/** The same text with comments blanked out, so that every offset, line and column stays what it was. */
export function blankComments(text: string): string {
  return text.replace(TOKENS, (token) => (token.startsWith('"') ? token : token.replace(/[^\n\r]/g, ' ')));
}

/** Whether a file is JSON, by its name, or by how it begins where the name does not say. */
export function isJson(file: string, text: string): boolean {
  if (/\.jsonc?$/i.test(file)) return true;
  if (/\.ya?ml$/i.test(file)) return false;
  return /^\s*(?:\{|\/\/|\/\*)/.test(text);
}
