import { membersOf, parsed } from './spy.ts';

/** The text in scripted bytes that becomes the id of the request as JSON. */
export const ID = '@ID@';
/** The text in a head that becomes the number of bytes after it. */
export const LENGTH = '@LENGTH@';
/** The text before a chunk that becomes its size: the bytes up to the empty chunk. */
export const SIZE = '@SIZE@';
const HEAD_END = '\r\n\r\n';
const LAST_CHUNK = '\r\n0\r\n\r\n';

/** The answer of a server whose tool `echo` writes the bytes that its caller names. */
export type RawAnswer =
  | { readonly kind: 'message'; readonly text: string }
  | { readonly kind: 'bytes'; readonly chunks: readonly Buffer[] }
  | { readonly kind: 'nothing' };

/** Returns the answer to a message of 2025-11-25. The bytes are in the arguments of a call as base64, with the places where they are cut. */
export function rawAnswer(body: string): RawAnswer {
  const { id, method, params } = membersOf(parsed(body));
  if (id === undefined) return { kind: 'nothing' };
  if (method === 'tools/call') {
    const { bytes, cuts } = membersOf(membersOf(params)['arguments']);
    const text = Buffer.from(String(bytes), 'base64').toString('latin1').replaceAll(ID, JSON.stringify(id));
    const places: readonly unknown[] = Array.isArray(cuts) ? cuts : [];
    return { kind: 'bytes', chunks: cut(Buffer.from(measured(text), 'latin1'), places.map(Number)) };
  }
  const result =
    method === 'initialize'
      ? { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo: { name: 'raw', version: '1' } }
      : method === 'tools/list'
        ? { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] }
        : {};
  return { kind: 'message', text: JSON.stringify({ jsonrpc: '2.0', id, result }) };
}

/** Fills in the length of a body and the size of its chunk. @param text one character for each byte. */
function measured(text: string): string {
  const body = text.slice(text.indexOf(HEAD_END) + HEAD_END.length);
  const chunk = text.slice(text.indexOf(SIZE) + SIZE.length + 2, text.lastIndexOf(LAST_CHUNK));
  return text.replace(LENGTH, String(body.length)).replace(SIZE, chunk.length.toString(16));
}

/** @param places in thousandths of the length. */
function cut(bytes: Buffer, places: readonly number[]): readonly Buffer[] {
  const inside = places.map((place) => Math.floor((bytes.length * place) / 1_000)).toSorted((a, b) => a - b);
  return [...inside, bytes.length].map((end, index) => bytes.subarray(inside[index - 1] ?? 0, end));
}
