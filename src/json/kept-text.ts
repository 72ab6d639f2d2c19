/**
 * Texts that outlive the message they come from. A substring retains the whole message in memory, so stored texts are copies. The
 * type {@link KeptText} lets the compiler check that: fields and keys of stored entries have it, and only {@link detach} makes it.
 */

/** A text that may be stored: it retains no other text in memory. */
export type KeptText = string & { readonly [kept]: true };
declare const kept: unique symbol;

function markKept(_text: string): asserts _text is KeptText {}

/** Returns a copy of a text that may be stored. */
export function detach(text: string): KeptText {
  // UTF-8 cannot encode lone surrogates, which JSON escapes can produce.
  const encoding = text.isWellFormed() ? 'utf8' : 'utf16le';
  const own = Buffer.from(text, encoding).toString(encoding);
  markKept(own);
  return own;
}

/** A `Map` for entries that outlive a message. Any text can be looked up; only kept texts can be keys. */
export interface KeptMap<V> extends Omit<Map<string, V>, 'set'> {
  set(key: KeptText, value: V): unknown;
}
export const KeptMap: new <V>() => KeptMap<V> = Map;

/** A `Set` of texts that outlive a message. Any text can be looked up; only kept texts can be members. */
export interface KeptSet extends Omit<Set<string>, 'add'> {
  add(text: KeptText): unknown;
}
export const KeptSet: new () => KeptSet = Set;
