import { figure, table } from './table.ts';

/** Figures by the name of their column. */
export type Figures = Readonly<Record<string, number | undefined>>;

/** The figures of one subject at one point of a series. */
export interface Row {
  readonly point: string;
  readonly subject: string;
  readonly figures: Figures;
  /** The reason if there are no figures. */
  readonly failure?: string;
}

/** A bound on one figure, or on its ratio to the same figure of another row. */
export interface Bound {
  readonly point: string;
  readonly column: string;
  readonly atMost: number;
  /** The divisor: the same column at another point, or of another subject at this point. */
  readonly of?: { readonly point: string } | { readonly subject: string };
}

/** One series of points, measured. */
export interface Sheet {
  readonly id: string;
  readonly title: string;
  readonly rows: readonly Row[];
  readonly bounds: readonly Bound[];
}

interface BoundResult extends Bound {
  readonly series: string;
  readonly subject: string;
  readonly value: number | undefined;
  readonly isMet: boolean | undefined;
}

/** Returns the columns of all rows, in the order in which they first appear. */
function columnsOf(rows: readonly Row[]): readonly string[] {
  return [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))];
}

/** Counts are whole numbers; measures have three significant digits. */
function cell(value: number | undefined): string {
  return Number.isInteger(value) && Math.abs(value ?? 0) < 100 ? String(value) : figure(value);
}

/** Returns the series as a table, then the failures. */
export function sheetTable({ id, title, rows }: Sheet): string {
  const columns = columnsOf(rows);
  const lines = rows.flatMap(({ point, subject, figures, failure }) => {
    return failure === undefined ? [[`${point}, ${subject}`, ...columns.map((column) => cell(figures[column]))]] : [];
  });
  const failures = rows.flatMap(({ point, subject, failure }) => {
    return failure === undefined ? [] : [`  ${point}, ${subject}: ${failure}`];
  });
  return [`${id}: ${title}`, table([['', ...columns], ...lines]), ...failures, ''].join('\n');
}

function figureAt(sheet: Sheet, point: string, subject: string, column: string): number | undefined {
  return sheet.rows.find((row) => row.point === point && row.subject === subject)?.figures[column];
}

function divisorOf(sheet: Sheet, { point, column, of }: Bound, subject: string): number | undefined {
  if (of === undefined) return 1;
  return 'point' in of ? figureAt(sheet, of.point, subject, column) : figureAt(sheet, point, of.subject, column);
}

/** Returns whether `subject` meets the bounds of these series. */
export function boundResults(sheets: readonly Sheet[], subject: string): readonly BoundResult[] {
  return sheets.flatMap((sheet) =>
    sheet.bounds.map((bound) => {
      const measured = figureAt(sheet, bound.point, subject, bound.column);
      const divisor = divisorOf(sheet, bound, subject);
      const value = measured === undefined || divisor === undefined ? undefined : measured / divisor;
      const isMet = value === undefined ? undefined : value <= bound.atMost;
      return { ...bound, series: sheet.id, subject, value, isMet };
    }),
  );
}

function boundText({ series, point, column, of }: BoundResult): string {
  const divisor = of === undefined ? '' : ` ÷ ${'point' in of ? of.point : of.subject}`;
  return `${series}, ${point}: ${column}${divisor}`;
}

/** Returns the bounds as a table; empty if there are none. */
export function boundTable(results: readonly BoundResult[]): string {
  if (results.length === 0) return '';
  const rows = results.map((result) => [
    `${boundText(result)}, ${result.subject}`,
    figure(result.value),
    `≤ ${figure(result.atMost)}`,
    result.isMet === undefined ? 'not measured' : result.isMet ? 'met' : 'MISSED',
  ]);
  return `targets\n${table([['', 'value', 'target', ''], ...rows])}\n`;
}
