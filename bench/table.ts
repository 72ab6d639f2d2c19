import { medianInterval, medianOf, ratio, ratios, type ScenarioResult, targetResults } from './results.ts';

/** Returns three significant digits; whole numbers from 100 on. */
export function figure(value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return '–';
  if (value >= 100) return Math.round(value).toLocaleString('en').replaceAll(',', ' ');
  return value.toFixed(value < 0.1 ? 3 : value < 10 ? 2 : 1);
}

export function table(rows: readonly (readonly string[])[]): string {
  const [first = []] = rows;
  const widths = first.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)));
  const line = (row: readonly string[]) =>
    row.map((cell, i) => (i === 0 ? cell.padEnd(widths[i] ?? 0) : cell.padStart(widths[i] ?? 0))).join('  ');
  return rows.map((row) => `  ${line(row).trimEnd()}`).join('\n');
}

export function scenarioTable(result: ScenarioResult): string {
  const { scenario, rows } = result;
  const header = ['', 'CPU µs', `× ${scenario.baseline}`, 'calls/s', 'p50 µs', 'p99 µs', 'RSS MB', 'peak MB', 'as'];
  const measured = rows.flatMap((row) => {
    const median = medianOf(row);
    if (median === undefined) return [];
    const { cpuUs, perSecond, p50Us, p99Us, rssMb, peakMb, answersAs } = median;
    const times = ratio(result, row.subject, scenario.baseline);
    const figures = [cpuUs, times, perSecond, p50Us, p99Us, rssMb, peakMb];
    return [[row.title, ...figures.map(figure), answersAs]];
  });
  const failures = rows.flatMap(({ title, failure }) => (failure === undefined ? [] : [`  ${title}: ${failure}`]));
  return [`${scenario.id}: ${scenario.title}`, table([header, ...measured]), ...pairs(result), ...failures, ''].join(
    '\n',
  );
}

/** Percentages need two digits behind the point of a ratio and one more to be compared. */
function ratioFigure(value: number | undefined): string {
  return value === undefined ? '–' : value.toFixed(3);
}

/** Returns the table of gateways of other checkouts, compared with the gateway. */
function pairs(result: ScenarioResult): readonly string[] {
  const others = result.rows.filter(({ isOtherCheckout }) => isOtherCheckout === true);
  if (others.length === 0) return [];
  const header = ['', '× gateway', '95 % from', 'to'];
  const lines = others.map(({ subject }) => {
    const [low, high] = medianInterval(ratios(result, subject, 'gateway')) ?? [];
    return [subject, ...[ratio(result, subject, 'gateway'), low, high].map(ratioFigure)];
  });
  return [table([header, ...lines])];
}

export function targetTable(results: readonly ScenarioResult[]): string {
  const rows = targetResults(results).map(({ scenario, subject, of, atMost, ratio, isMet }) => [
    `${scenario}: ${subject} × ${of}`,
    figure(ratio),
    `≤ ${figure(atMost)}`,
    isMet === undefined ? 'not measured' : isMet ? 'met' : 'MISSED',
  ]);
  return rows.length === 0 ? '' : `targets (CPU per request)\n${table([['', 'ratio', 'target', ''], ...rows])}\n`;
}
