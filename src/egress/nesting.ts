/**
 * Returns whether JSON text is nested deeper than this. `JSON.parse` reads such text, and `JSON.stringify` of the value overflows the stack.
 * Text that is no JSON has any result.
 */
export function isNestedDeeper(text: string, levels: number): boolean {
  let depth = 0;
  let isInString = false;
  for (let at = 0; at < text.length; at++) {
    const char = text[at];
    if (isInString) {
      if (char === '\\') at++;
      else if (char === '"') isInString = false;
    } else if (char === '"') isInString = true;
    else if (char === '{' || char === '[') {
      if (++depth > levels) return true;
    } else if (char === '}' || char === ']') depth--;
  }
  return false;
}
