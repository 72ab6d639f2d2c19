import { hash } from 'node:crypto';
import type { Config } from '../../config/values/config.ts';
import type { ViewUpstream } from '../view.ts';

/** All that the names of an upstream's items depend on. */
type Named = Pick<ViewUpstream, 'id' | 'prefix'>;

const HASH_CHARS = 6;

function replaceSpecials(text: string): string {
  return /^[A-Za-z0-9_-]*$/.test(text) ? text : text.replaceAll(/[^A-Za-z0-9_-]/gu, '_');
}

/** Returns the prefix of an upstream in published names, before names are cut; `''` if it has none. */
export function publishedPrefix(upstream: Named): string {
  const prefix = replaceSpecials(upstream.prefix);
  return prefix === '' || /^[A-Za-z_]/.test(prefix) ? prefix : `_${prefix}`;
}

/** The tool's own name is cut only after the prefix has been cut to this many characters. */
const MIN_PREFIX_CHARS = 6;

/** Returns prefix and name in `maxChars` characters. Cuts the prefix first: the name says what the tool does. */
function shorten(prefix: string, name: string, maxChars: number): string {
  if (prefix.length + name.length <= maxChars) return prefix + name;
  // Exactly one separator: with two, a cut prefix could equal the prefix of another upstream.
  const stem = prefix.replace(/[_-]+$/, '');
  const room = maxChars - name.length - 1;
  if (room >= stem.length) return `${stem}_${name}`;
  const stemChars = Math.max(room, Math.min(MIN_PREFIX_CHARS, maxChars >> 2));
  const start = stemChars >= stem.length ? prefix : `${stem.slice(0, stemChars).replace(/[_-]+$/, '')}_`;
  return (start + name).slice(0, maxChars);
}

/** Returns whether the name of an upstream's item was cut or has replaced characters, so that it ends in a hash. */
export function isHashed(upstream: ViewUpstream, name: string, published: string): boolean {
  return upstream.prefix !== '' && published !== publishedPrefix(upstream) + name;
}

const HASHED = new RegExp(`_[0-9a-f]{${HASH_CHARS}}$`);

/** Returns whether a published name may have cut or replaced characters. Its prefix may then be cut too. */
export function mayBeHashed(published: string): boolean {
  return HASHED.test(published);
}

/**
 * Returns the name under which a tool or prompt of an upstream is published. It is the upstream's own name if the prefix is empty,
 * else prefix and name in `[A-Za-z_][A-Za-z0-9_-]*`, with at most `maxChars` characters.
 *
 * The name depends only on the config and the upstream's own name, never on other items. So policies and models can rely on it. A name with
 * replaced or cut characters ends in a hash of upstream and name, which keeps it unique.
 */
export function publishedName(upstream: Named, name: string, maxChars: number): string {
  if (upstream.prefix === '') return name;
  const safe = replaceSpecials(name);
  const full = publishedPrefix(upstream) + safe;
  if (safe === name && full.length <= maxChars) return full;
  const digest = hash('sha256', JSON.stringify([upstream.id, name])).slice(0, HASH_CHARS);
  return `${shorten(publishedPrefix(upstream), safe, maxChars - HASH_CHARS - 1)}_${digest}`;
}

/** Returns the names that a tool of an upstream has at all endpoints: at `/mcp` first, then its own one and those of profiles. */
export function namesOfTool(
  { upstreams, profiles, names }: Pick<Config, 'upstreams' | 'profiles' | 'names'>,
  upstream: string,
  own: string,
): readonly string[] {
  const named = upstreams.find(({ id }) => id === upstream);
  const merged = named === undefined ? own : publishedName(named, own, names.maxChars);
  const renamed = profiles.flatMap(({ renames }) =>
    Object.hasOwn(renames, merged) ? [renames[merged] ?? merged] : [],
  );
  return [...new Set([merged, own, ...renamed])];
}
