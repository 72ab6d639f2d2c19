import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, resultOf } from '../mcp-client.ts';
import { parentOf } from '../process-cost.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';

const END_MS = 10_000;
const POLL_MS = 50;
const SCRIPT = fileURLToPath(new URL('upstream-orphans.ts', import.meta.url));

type Ending = 'DELETE' | 'SIGTERM' | 'SIGKILL';

async function grandchildren(file: string): Promise<readonly number[]> {
  return (await readFile(file, 'utf8')).trim().split('\n').map(Number);
}

/** Returns the processes that still exist after a while. */
async function survivorsOf(pids: readonly number[]): Promise<readonly number[]> {
  const untilMs = performance.now() + END_MS;
  for (;;) {
    const alive = pids.filter((pid) => parentOf(pid) > 0);
    if (alive.length === 0 || performance.now() > untilMs) return alive;
    await delay(POLL_MS);
  }
}

async function end(ending: Ending, gateway: Gateway, client: McpClient): Promise<void> {
  if (ending === 'DELETE') await client.close();
  else process.kill(gateway.pid, ending);
}

/** A server starts a process in a session of its own, and does not wait for it. */
async function measure(bench: Bench, ending: Ending): Promise<Figures> {
  const { dir, core, checkout } = bench;
  const file = join(dir, 'grandchildren');
  const hostile = { command: process.execPath, args: [SCRIPT, file] };
  await using gateway = await Gateway.start({ name: 'gateway', checkout, dir, core, servers: { hostile } });
  const agent = keptConnections(2);
  let started: readonly number[] = [];
  try {
    const client = await McpClient.open({ url: gateway.url, agent });
    const call = await client.request('tools/call', { name: 'hostile__small', arguments: {} });
    if (resultOf(call) === undefined) throw new Error(`the upstream does not answer: ${call.text.slice(0, 300)}`);
    started = await grandchildren(file);
    await end(ending, gateway, client);
    const survivors = await survivorsOf(started);
    return { grandchildren: started.length, survivors: survivors.length };
  } finally {
    agent.destroy();
    for (const pid of started) {
      try {
        process.kill(pid, 'SIGKILL');
      } catch {
        // The process has ended, as it should.
      }
    }
  }
}

const ENDINGS: readonly Ending[] = ['DELETE', 'SIGTERM', 'SIGKILL'];

export const ORPHANS: Series = {
  id: 'N-30',
  title: `a process that a server starts by setsid, ${END_MS / 1_000} s after the end`,
  points: ENDINGS.map((ending) => ({ label: ending, measure: (bench) => measure(bench, ending) })),
  bounds: ENDINGS.map((ending) => ({ point: ending, column: 'survivors', atMost: 0 })),
};
