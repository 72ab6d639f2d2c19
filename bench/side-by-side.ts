/**
 * Gateways of several checkouts in one process, started with the names and configurations on the command line. V8's state and the
 * slow moments of the machine are then the same for all of them. Prints a line `{"msg":"listening","url":…}` for each, in order.
 */
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import * as z from 'zod';

const PLACES = z.array(z.object({ checkout: z.string(), config: z.string() }));

const CALLABLE = z.custom<(...args: readonly unknown[]) => unknown>((value) => typeof value === 'function');

/** The modules of a checkout that are used here. Those of before the reload start differently, and are refused by these shapes. */
const START = z.object({ start: CALLABLE });
const SERVE = z.object({ serve: CALLABLE });
const RUNNING = z.object({ url: z.string(), stop: CALLABLE });
const STARTED = z.object({ loaded: z.unknown(), log: z.unknown(), load: CALLABLE, preview: CALLABLE });

async function load(checkout: string, path: string): Promise<unknown> {
  return await import(pathToFileURL(join(checkout, 'src', path)).href);
}

const stops: (() => unknown)[] = [];
for (const { checkout, config: file } of PLACES.parse(JSON.parse(process.argv[2] ?? '[]'))) {
  const { start } = START.parse(await load(checkout, 'cli/start.ts'));
  const { serve } = SERVE.parse(await load(checkout, 'compose/serve.ts'));
  const { loaded, log, ...ways } = STARTED.parse(await start('run', { config: file, logFormat: 'json' }));
  const { url, stop } = RUNNING.parse(await serve(loaded, log, ways));
  stops.push(stop);
  console.log(JSON.stringify({ msg: 'listening', url }));
}

process.once('SIGTERM', () => {
  void Promise.all(stops.map((stop) => stop())).then(() => process.exit(0));
});
