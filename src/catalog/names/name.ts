import { hash } from 'node:crypto';
import type { ViewUpstream } from '../view.ts';

/** Characters that a person cannot see, or that reorder others: controls, bidi, zero-width, tags, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/u;
const EVERY_UNSEEN = new RegExp(UNSEEN.source, 'gu');

const HASH_CHARS = 6;
const MAX_SHOWN_CHARS = 120;

export function hasUnseen(text: string): boolean {
  return UNSEEN.test(text);
}

/** Returns text of an upstream fit for a sentence: bounded, with invisible characters written as escapes. */
export function shown(text: string): string {
  const cut = text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text;
  return cut.replaceAll(EVERY_UNSEEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

function plain(text: string): string {
  return /^[A-Za-z0-9_-]*$/.test(text) ? text : text.replaceAll(/[^A-Za-z0-9_-]/gu, '_');
}

/** The start of every published name of an upstream, unless it has to be cut. Empty for an upstream without a prefix. */
export function publishedPrefix(upstream: ViewUpstream): string {
  const prefix = plain(upstream.prefix);
  return prefix === '' || /^[A-Za-z_]/.test(prefix) ? prefix : `_${prefix}`;
}

/** Characters of a prefix that stay before the tool's own name is cut. */
const MIN_PREFIX_CHARS = 6;

/** Prefix and name in so many characters: the prefix gives way first, since the name says what the tool does. */
function shortened(prefix: string, name: string, maxChars: number): string {
  if (prefix.length + name.length <= maxChars) return prefix + name;
  // One separator: behind two, a cut prefix might be that of another upstream.
  const stem = prefix.replace(/[_-]+$/, '');
  const room = maxChars - name.length - 1;
  if (room >= stem.length) return `${stem}_${name}`;
  const stemChars = Math.max(room, Math.min(MIN_PREFIX_CHARS, maxChars >> 2));
  const start = stemChars >= stem.length ? prefix : `${stem.slice(0, stemChars).replace(/[_-]+$/, '')}_`;
  return (start + name).slice(0, maxChars);
}

/**
 * Returns the name under which a tool or prompt of an upstream is published: its own name when the prefix is empty, else
 * prefix and name in `[A-Za-z_][A-Za-z0-9_-]*` with at most `maxChars` characters.
 *
 * It depends on the config and the upstream's own name alone, never on what else is offered, so that policies and models
 * may remember it. A name with replaced or cut characters ends in a hash over upstream and name, which keeps it distinct.
 */
export function publishedName(upstream: ViewUpstream, name: string, maxChars: number): string {
  if (upstream.prefix === '') return name;
  const safe = plain(name);
  const full = publishedPrefix(upstream) + safe;
  if (safe === name && full.length <= maxChars) return full;
  const digest = hash('sha256', JSON.stringify([upstream.id, name])).slice(0, HASH_CHARS);
  return `${shortened(publishedPrefix(upstream), safe, maxChars - HASH_CHARS - 1)}_${digest}`;
}
