/** Returns a text without a byte order mark at its start, which some programs write. */
export function withoutByteOrderMark(text: string): string {
  return text.startsWith('\uFEFF') ? text.slice(1) : text;
}
