import { isSeverity, SEVERITIES, type Severity } from '../../protocol/severity.ts';

/** Whether a message of this level is wanted; one of a level we do not know is. */
export function isWanted(level: string | undefined, lowest: Severity | undefined): boolean {
  if (lowest === undefined || !isSeverity(level)) return true;
  return SEVERITIES.indexOf(level) >= SEVERITIES.indexOf(lowest);
}

/** What most servers send to clients that never asked for a level. */
const USUAL: Severity = 'info';

/** The level that leaves nobody short: those who set none get what is usual. Undefined when nobody has set one. */
export function lowestOf(levels: readonly (Severity | undefined)[]): Severity | undefined {
  if (levels.every((level) => level === undefined)) return undefined;
  return SEVERITIES[Math.min(...levels.map((level) => SEVERITIES.indexOf(level ?? USUAL)))];
}
