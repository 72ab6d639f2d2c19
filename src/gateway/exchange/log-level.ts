import { isSeverity, SEVERITIES, type Severity } from '../../protocol/severity.ts';

/** Returns whether a client that has set `lowest` gets a message of this level. Unknown levels are sent. */
export function isWanted(level: string | undefined, lowest: Severity | undefined): boolean {
  if (lowest === undefined || !isSeverity(level)) return true;
  return SEVERITIES.indexOf(level) >= SEVERITIES.indexOf(lowest);
}

/** The level that most servers use for clients that have set none. */
export const DEFAULT_LEVEL: Severity = 'info';

/**
 * Returns the level at which a shared connection delivers what each user wants. Users without a level get the default
 * one. Returns undefined if no user has set a level.
 */
export function lowestLevel(users: Iterable<{ readonly logLevel: Severity | undefined }>): Severity | undefined {
  const levels = [...users].map(({ logLevel }) => logLevel);
  if (levels.every((level) => level === undefined)) return undefined;
  return SEVERITIES[Math.min(...levels.map((level) => SEVERITIES.indexOf(level ?? DEFAULT_LEVEL)))];
}
