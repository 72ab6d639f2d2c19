import { escapeUnseen, oneLine } from '../../peer-text.ts';

/** Returns rows as columns that are as wide as their longest cell, without trailing spaces. */
export function table(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [column, cell] of row.entries()) widths[column] = Math.max(widths[column] ?? 0, cell.length);
  }
  return rows
    .map(
      (row) =>
        `${row
          .map((cell, column) => cell.padEnd(widths[column] ?? 0))
          .join('  ')
          .trimEnd()}\n`,
    )
    .join('');
}

/** Returns a number with its noun: `1 tool`, `2 tools`. */
export function countText(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : noun.endsWith('ss') ? 'es' : 's'}`;
}

/** Returns a line about the replicas whose part is missing in an answer; empty if there are none. */
export function unansweredText(silent: readonly { readonly replica: string; readonly why: string }[] = []): string {
  if (silent.length === 0) return '';
  const names = silent.map(({ replica, why }) => oneLine(`${replica} (${why})`));
  return `Replicas that have not answered: ${names.join(', ')}\n`;
}

/** Prints an answer: as JSON, or as lines for people. */
export function printAnswer({ json }: { readonly json: boolean }, answer: unknown, lines: readonly string[]): void {
  print(json ? jsonText(answer) : `${lines.map(oneLine).join('\n')}\n`);
}

export function jsonText(value: unknown): string {
  return `${JSON.stringify(value, undefined, 2)}\n`;
}

const MINUTE = 60;
const HOUR = 3_600;
const DAY = 86_400;

/** Returns a duration for people: `8 s`, `3 min`, `5 h`, `2 d`. */
export function durationText(seconds: number): string {
  if (seconds < MINUTE) return `${Math.round(seconds)} s`;
  if (seconds < HOUR) return `${Math.round(seconds / MINUTE)} min`;
  return seconds < 2 * DAY ? `${Math.round(seconds / HOUR)} h` : `${Math.round(seconds / DAY)} d`;
}

export function megabytes(bytes: number): string {
  return `${Math.round(bytes / 1_000_000)} MB`;
}

/**
 * Writes to stdout, with characters of peers that a person cannot see as escapes. Commands end by themselves, so what they print is
 * never lost.
 */
export function print(text: string): void {
  process.stdout.write(escapeUnseen(text));
}

/** As {@link print}, to stderr. */
export function printError(text: string): void {
  process.stderr.write(escapeUnseen(text));
}
