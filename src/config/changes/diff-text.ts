import type { ConfigDiff, SettingChange } from './diff.ts';
import type { Secrecy } from '../schema/secret-fields.ts';
import { shownCommand } from '../shown-command.ts';
import { shownUrl } from '../shown-url.ts';

const HIDDEN = '(not shown)';

const MAX_CHARS = 200;

/**
 * Returns the difference as lines for people: `+` for what comes, `-` for what goes, `~` for what changes. It shows no
 * values that may hold secrets, such as variables, headers, arguments, credentials and the paths of URLs, and no certificates.
 */
export function diffLines(diff: ConfigDiff): string[] {
  return [
    ...diff.added.map(({ title, target }) => `+ mcpServers.${title} (${target.kind})`),
    ...diff.removed.map((id) => `- upstream ${id}`),
    ...diff.replaced.flatMap(({ changes }) => changes.map((change) => changeLine(change, 'in a new connection'))),
    ...diff.updated.flatMap(({ changes }) => changes.map((change) => changeLine(change))),
    ...diff.settings.map((change) => changeLine(change)),
    ...atRestartLines(diff),
  ];
}

/** Returns the changes that take effect at the next start, as {@link diffLines} does. */
export function atRestartLines({ atRestart }: Pick<ConfigDiff, 'atRestart'>): string[] {
  return atRestart.map((change) => changeLine(change, 'after a restart'));
}

function changeLine({ path, before, after, secrecy }: SettingChange, when?: string): string {
  const values =
    mayShow(before, secrecy) && mayShow(after, secrecy)
      ? `${valueText(before, secrecy)} → ${valueText(after, secrecy)}${hiddenUrlChange(before, after)}`
      : `${isSet(before)} → ${isSet(after)} ${HIDDEN}`;
  return `~ ${path}: ${values}${when === undefined ? '' : `, ${when}`}`;
}

/** Returns whether a value has no part that may be secret. Maps may have such members, and PEM texts have several lines. */
function mayShow(value: unknown, secrecy: Secrecy | undefined): boolean {
  if (value === undefined) return true;
  if (secrecy === 'command') return typeof value === 'string';
  if (secrecy !== undefined) return secrecy === 'url' && urlOf(value) !== null;
  if (Array.isArray(value)) return value.every((item) => mayShow(item, undefined));
  return typeof value === 'string' ? !value.includes('\n') : typeof value !== 'object';
}

/** The parts of a URL that are not shown, because they may be secrets. */
const HIDDEN_URL_PARTS = [
  ['username', 'user name'],
  ['password', 'password'],
  ['pathname', 'path'],
  ['search', 'query'],
  ['hash', 'fragment'],
] as const;

/** Returns a note that names the changed parts of a URL that are not shown, or nothing if there is none. */
function hiddenUrlChange(before: unknown, after: unknown): string {
  const [one, other] = [urlOf(before), urlOf(after)];
  if (one === null || other === null) return '';
  const parts = HIDDEN_URL_PARTS.filter(([part]) => one[part] !== other[part]).map(([, name]) => name);
  return parts.length === 0 ? '' : ` (changed, not shown: ${parts.join(', ')})`;
}

function urlOf(value: unknown): URL | null {
  return typeof value === 'string' ? URL.parse(value) : null;
}

function isSet(value: unknown): string {
  return value === undefined ? 'unset' : 'set';
}

function valueText(value: unknown, secrecy: Secrecy | undefined): string {
  if (value === undefined) return 'unset';
  const shown = secrecy === 'command' && typeof value === 'string' ? shownCommand(value) : value;
  const url = urlOf(shown);
  const text = url === null ? JSON.stringify(shown) : shownUrl(url);
  return text.length > MAX_CHARS ? `${text.slice(0, MAX_CHARS)}…` : text;
}
