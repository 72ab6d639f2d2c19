/**
 * Writes the cells of `docs/limits.md`, `docs/errors.md` and `docs/metrics.md` that come from tables of the sources. `npm run pages`
 * runs it. The cells that explain a row are written by hand, in the pages.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { ERRORS } from '../src/errors.ts';
import { LIMITS } from '../src/limits.ts';
import { createMetrics } from '../src/telemetry/metrics.ts';

/** A page, the titles of the cells that come from the sources, and these cells by the name of the row. */
interface PageTable {
  readonly file: string;
  readonly titles: readonly string[];
  readonly cells: ReadonlyMap<string, readonly string[]>;
}

/** A page as it has to be, and what only a person can mend. */
export interface RefreshedPage {
  readonly file: string;
  readonly text: string;
  readonly problems: readonly string[];
}

const KIB = 1_024;
const UNITS = [
  ['GiB', KIB ** 3],
  ['MiB', KIB ** 2],
  ['KiB', KIB],
] as const;

function grouped(value: number): string {
  return String(value).replaceAll(/\B(?=(?:\d{3})+$)/g, ' ');
}

/** Returns a bound as people read it: `64 MiB`, `10 s`, `4 096`. */
function boundText(name: string, value: number): string {
  if (name.endsWith('Ms')) return value % 1_000 === 0 ? `${value / 1_000} s` : `${value} ms`;
  const unit = /bytes|chars/i.test(name) ? UNITS.find(([, size]) => value >= size && value % size === 0) : undefined;
  return unit === undefined ? grouped(value) : `${value / unit[1]} ${unit[0]}`;
}

function limitsTable(): PageTable {
  const cells = Object.entries(LIMITS).map(([name, value]) => [name, [boundText(name, value)]] as const);
  return { file: 'docs/limits.md', titles: ['Value'], cells: new Map(cells) };
}

function errorsTable(): PageTable {
  const cells = Object.entries(ERRORS).map(
    ([name, { rpc, http }]) => [name, [String(rpc).replace('-', '−'), String(http)]] as const,
  );
  return { file: 'docs/errors.md', titles: ['JSON-RPC', 'HTTP'], cells: new Map(cells) };
}

async function metricsTable(): Promise<PageTable> {
  const text = await createMetrics('0').text();
  const cells = [...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)]
    .map(([, name = '', type = '']) => [name, [type]] as const)
    .filter(([name]) => !/^(?:process|nodejs)_/.test(name));
  return { file: 'docs/metrics.md', titles: ['Type'], cells: new Map(cells) };
}

/** Matches a row whose first cell is code, perhaps with an anchor of that name. */
const ROW = /^\| `([A-Za-z_-]+)`(?: <a id="[a-z-]+"><\/a>)? \|/;

function refreshed(root: string, { file, titles, cells }: PageTable): RefreshedPage {
  const seen = new Set<string>();
  const problems: string[] = [];
  let isTable = false;
  const lines = readFileSync(join(root, file), 'utf8')
    .split('\n')
    .map((line) => {
      const [, first = '', ...rest] = line.split('|').map((cell) => cell.trim());
      if (!line.startsWith('|')) isTable = false;
      if (titles.every((title, n) => rest[n] === title)) isTable = true;
      const [, name] = ROW.exec(line) ?? [];
      if (!isTable || name === undefined) return line;
      const known = cells.get(name);
      if (known === undefined || seen.has(name)) problems.push(`${file}: remove the row ${name}`);
      seen.add(name);
      const texts = rest.slice(titles.length);
      if (texts.every((text) => text === '')) problems.push(`${file}: the row ${name} explains nothing`);
      const cellsOfRow = [first, ...(known ?? rest.slice(0, titles.length)), ...texts.slice(0, -1)];
      return `|${cellsOfRow.map((cell) => (cell === '' ? ' ' : ` ${cell} `)).join('|')}|`;
    });
  for (const name of cells.keys()) if (!seen.has(name)) problems.push(`${file} has no row ${name}: write one`);
  return { file, text: lines.join('\n'), problems };
}

/**
 * Returns the pages with the cells of the sources.
 *
 * @param root the folder of the project.
 */
export async function refreshedPages(root: string): Promise<RefreshedPage[]> {
  return [limitsTable(), errorsTable(), await metricsTable()].map((table) => refreshed(root, table));
}

if (import.meta.main) {
  const root = join(import.meta.dirname, '..');
  for (const { file, text, problems } of await refreshedPages(root)) {
    writeFileSync(join(root, file), text);
    for (const problem of problems) {
      console.error(problem);
      process.exitCode = 1;
    }
  }
}
