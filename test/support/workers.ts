import { readFile } from 'node:fs/promises';
import type { RunningGateway } from './gateway.ts';
import { childrenOf } from './stdio.ts';

/** Returns the process ids of the workers of a gateway. */
export async function workersOf({ pid }: Pick<RunningGateway, 'pid'>): Promise<readonly number[]> {
  const commands = await Promise.all(
    childrenOf(pid).map(async (child) => ({
      child,
      command: await readFile(`/proc/${child}/cmdline`, 'utf8').catch(() => ''),
    })),
  );
  return commands.filter(({ command }) => command.endsWith('\0worker\0')).map(({ child }) => child);
}

/** Returns the sum of the series of a metric that the gateway reports; undefined if it has none. */
export async function metricOf({ operatorUrl }: RunningGateway, series: RegExp): Promise<number | undefined> {
  const text = await (await fetch(`${operatorUrl}/metrics`)).text();
  const values = text
    .split('\n')
    .filter((line) => series.test(line))
    .map((line) => Number(line.slice(line.lastIndexOf(' ') + 1)));
  return values.length === 0 ? undefined : values.reduce((sum, value) => sum + value, 0);
}
