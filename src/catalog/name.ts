import { hash } from 'node:crypto';
import type { ViewUpstream } from './view.ts';

/** Characters a person cannot see or that reorder what they see: controls, bidi, zero-width, tags, lone surrogates. */
const UNSEEN = /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}\u2800]/u;
const EVERY_UNSEEN = new RegExp(UNSEEN.source, 'gu');

const HASH_CHARS = 6;
const MAX_SHOWN_CHARS = 120;

export function hasUnseen(text: string): boolean {
  return UNSEEN.test(text);
}

/** Text of an upstream made fit for a sentence: bounded, and with what cannot be seen spelled out. */
export function shown(text: string): string {
  const cut = text.length > MAX_SHOWN_CHARS ? `${text.slice(0, MAX_SHOWN_CHARS)}…` : text;
  return cut.replaceAll(EVERY_UNSEEN, (char) => `\\u{${(char.codePointAt(0) ?? 0).toString(16)}}`);
}

function plain(text: string): string {
  return /^[A-Za-z0-9_-]*$/.test(text) ? text : text.replaceAll(/[^A-Za-z0-9_-]/gu, '_');
}

/** What every published name of an upstream with a prefix starts with, unless it had to be cut. Empty for no prefix. */
export function publishedPrefix(upstream: ViewUpstream): string {
  const prefix = plain(upstream.prefix);
  return prefix === '' || /^[A-Za-z_]/.test(prefix) ? prefix : `_${prefix}`;
}

/**
 * The name under which a tool or prompt of an upstream is published: its own name when the prefix is empty, else prefix
 * and name in `[A-Za-z_][A-Za-z0-9_-]*` with at most `maxChars` characters.
 *
 * It depends on the config and the upstream's own name alone, never on what else is offered, so that policies and models
 * may remember it. What had to be replaced or cut is told apart by a hash over upstream and name.
 */
export function publishedName(upstream: ViewUpstream, name: string, maxChars: number): string {
  if (upstream.prefix === '') return name;
  const safe = plain(name);
  const full = publishedPrefix(upstream) + safe;
  if (safe === name && full.length <= maxChars) return full;
  const digest = hash('sha256', JSON.stringify([upstream.id, name])).slice(0, HASH_CHARS);
  return `${full.slice(0, Math.max(0, maxChars - HASH_CHARS - 1))}_${digest}`;
}
