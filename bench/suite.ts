import { mkdir, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { named, type Options } from './options.ts';
import { type Bound, type Figures, type Row, type Sheet, sheetTable } from './sheet.ts';
import { OTHERS_CORE, SUBJECT_CORE } from './stage.ts';

/** The surroundings of one measurement. */
export interface Bench {
  /** The folder for files, removed after the point. */
  readonly dir: string;
  /** The folder of the checkout whose gateway is measured. */
  readonly checkout: string;
  /** The core of the subject; undefined if the kernel chooses. */
  readonly core: number | undefined;
  /** The core of everything else. */
  readonly othersCore: number | undefined;
  readonly seconds: number;
}

export interface Point {
  readonly label: string;
  /** Starts one gateway and measures it. @throws {Error} if it has no figures. */
  measure(bench: Bench): Promise<Figures>;
  /** Compared with the gateway in the same run, instead of another gateway. */
  readonly beside?: { readonly subject: string; measure(bench: Bench): Promise<Figures> };
}

export interface Series {
  readonly id: string;
  readonly title: string;
  readonly points: readonly Point[];
  readonly bounds?: readonly Bound[];
}

interface Contestant {
  readonly subject: string;
  readonly checkout: string;
  measure(bench: Bench): Promise<Figures>;
}

function contestants(point: Point, { checkout, against }: Options): readonly Contestant[] {
  const { beside } = point;
  const measure = (bench: Bench) => point.measure(bench);
  return [
    { subject: 'gateway', checkout, measure },
    ...against.map(({ id, folder }) => ({ subject: id, checkout: folder, measure })),
    ...(beside === undefined
      ? []
      : [{ subject: beside.subject, checkout, measure: (bench: Bench) => beside.measure(bench) }]),
  ];
}

async function rowOf(point: string, contestant: Contestant, bench: Bench): Promise<Row> {
  const { subject } = contestant;
  try {
    await mkdir(bench.dir);
    return { point, subject, figures: await contestant.measure(bench) };
  } catch (thrown) {
    return { point, subject, figures: {}, failure: thrown instanceof Error ? thrown.message : String(thrown) };
  } finally {
    await rm(bench.dir, { recursive: true, force: true });
  }
}

/**
 * Measures the chosen series, one point after another with the gateways in turns. Prints each series when it is done.
 */
export async function playSuite(all: readonly Series[], options: Options, dir: string): Promise<readonly Sheet[]> {
  const { only, isPinned, seconds } = options;
  const chosen = only === undefined ? all : named(all, only, 'only');
  const cores = { core: isPinned ? SUBJECT_CORE : undefined, othersCore: isPinned ? OTHERS_CORE : undefined };
  const sheets: Sheet[] = [];
  for (const { id, title, points, bounds = [] } of chosen) {
    const rows: Row[] = [];
    for (const point of points) {
      for (const contestant of contestants(point, options)) {
        const { checkout } = contestant;
        rows.push(await rowOf(point.label, contestant, { dir: join(dir, 'point'), checkout, seconds, ...cores }));
      }
    }
    const sheet = { id, title, rows, bounds };
    console.log(sheetTable(sheet));
    sheets.push(sheet);
  }
  return sheets;
}
