import { isGatewaysOwn } from './owner.ts';
import type { Behind, Endpoint } from './plan.ts';
import type { Score } from './score.ts';
import type { SelectionName } from './suite.ts';

/** The result of one cell. */
export interface Row {
  readonly target: string;
  /** Undefined in the client leg. */
  readonly server?: { readonly behind: Behind; readonly endpoint: Endpoint; readonly selection: SelectionName };
  readonly name: string;
  /** True if the scenarios are run again. Repetitions are not in the matrix. */
  readonly isRepeat: boolean;
  readonly seconds: number;
  readonly scores: readonly Score[];
}

const COLUMNS = ['legacy', 'modern', 'both'] as const;
const LINES = ['2025-06-18', '2025-11-25', '2026-07-28'] as const;

interface Counts {
  readonly passed: number;
  readonly of: number;
}

function count(scores: readonly Score[]): Counts {
  return { passed: scores.filter(({ passed }) => passed).length, of: scores.length };
}

const shown = ({ passed, of }: Counts): string => (of === 0 ? '' : `${passed}/${of}`);

const line = (label: string, figures: readonly string[]): string =>
  `${label.padEnd(28)}${figures.map((figure) => figure.padStart(10)).join('')}`;

export function rowLine({ target, name, seconds, scores }: Row): string {
  return `${target.padEnd(24)}${name.padEnd(28)}${shown(count(scores)).padStart(7)}${seconds.toFixed(1).padStart(7)} s`;
}

/** Up to this number of scenarios that failed for one reason are named. */
const NAMED = 3;

/** Returns `FAIL scenario: check: why`, one line per reason. */
export function failureLines({ scores }: Row): string[] {
  const failures = scores.flatMap(({ scenario, reasons }) => reasons.map((reason) => ({ scenario, reason })));
  const byReason = Map.groupBy(failures, ({ reason }) => reason);
  return [...byReason].flatMap(([reason, same]) => {
    if (same.length > NAMED) return [`  FAIL ${same.length} scenarios: ${reason}`];
    return same.map(({ scenario }) => `  FAIL ${scenario}: ${reason}`);
  });
}

/** Returns the revisions of clients by the eras of upstreams, for each transport and endpoint. Empty without rows. */
export function matrixLines(rows: readonly Row[]): string[] {
  const cells = rows.filter(({ server, isRepeat }) => !isRepeat && server !== undefined);
  const scoresOf = (target: string, behind: Behind | undefined, selection: SelectionName | undefined): Score[] =>
    cells
      .filter((row) => row.target.startsWith(`${target} `))
      .filter(({ server }) => (behind === undefined ? isColumn(server?.behind) : server?.behind === behind))
      .filter(({ server }) => (selection === undefined ? isLine(server?.selection) : server?.selection === selection))
      .flatMap(({ scores }) => scores);
  const targets = new Set(
    cells.filter(({ server }) => isColumn(server?.behind)).map(({ target }) => target.split(' ', 2).join(' ')),
  );
  return [...targets].flatMap((target) => [
    line(target, [...COLUMNS, 'sum']),
    ...LINES.map((revision) =>
      line(`  ${revision}`, [
        ...COLUMNS.map((era) => shown(count(scoresOf(target, era, revision)))),
        shown(count(scoresOf(target, undefined, revision))),
      ]),
    ),
    line('  sum', [
      ...COLUMNS.map((era) => shown(count(LINES.flatMap((revision) => scoresOf(target, era, revision))))),
      shown(count(scoresOf(target, undefined, undefined))),
    ]),
  ]);
}

const isColumn = (behind: Behind | undefined): boolean => COLUMNS.some((era) => era === behind);
const isLine = (selection: SelectionName | undefined): boolean => LINES.some((revision) => revision === selection);

/** Returns the numbers of scenarios about the gateway itself, and of those that it relays. */
export function ownerLines(rows: readonly Row[]): string[] {
  const scores = rows.filter(({ server, isRepeat }) => server !== undefined && !isRepeat).flatMap((row) => row.scores);
  const own = scores.filter(({ scenario }) => isGatewaysOwn(scenario));
  const carried = scores.filter(({ scenario }) => !isGatewaysOwn(scenario));
  return [
    ...(own.length === 0 ? [] : [line("the gateway's own", [shown(count(own))])]),
    ...(carried.length === 0 ? [] : [line('carried or bridged', [shown(count(carried))])]),
  ];
}
