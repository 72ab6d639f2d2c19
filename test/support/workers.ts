import { readFile } from 'node:fs/promises';
import { post, rpc } from '../downstream/client.ts';
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

/**
 * Lets each worker in turn accept one request while the others are stopped, since one worker may accept all connections of a client that opens
 * them one after the other. Resolves with the answers.
 */
export async function askEachWorker<T>(gateway: RunningGateway, ask: () => Promise<T>): Promise<readonly T[]> {
  const workers = await workersOf(gateway);
  const answers: T[] = [];
  for (const worker of workers) {
    const others = workers.filter((pid) => pid !== worker);
    for (const pid of others) process.kill(pid, 'SIGSTOP');
    const asked = ask();
    try {
      // Any worker answers this at once, in the order in which it accepts. The request may wait for the worker that has its session.
      await post(gateway.endpoint(), rpc(1, 'ping'), 'no-session');
    } finally {
      for (const pid of others) process.kill(pid, 'SIGCONT');
    }
    answers.push(await asked);
  }
  return answers;
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
