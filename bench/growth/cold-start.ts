import { setTimeout as delay } from 'node:timers/promises';
import { Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, member } from '../mcp-client.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';
import { npxServers, type NpxServer, processFigures } from './npx-servers.ts';
import { listAll } from './upstreams.ts';

const SERVERS = 20;
/** Changes of the list are counted for this long. */
const WATCH_MS = 30_000;
const CHANGED = 'notifications/tools/list_changed';

/** Returns how many of the servers have a tool in the list. */
function serversIn(tools: readonly unknown[]): number {
  const names = tools.map((tool) => String(member(tool, 'name')));
  return new Set(names.map((name) => name.split('__', 1)[0])).size;
}

async function start(bench: Bench, servers: readonly NpxServer[], name: string): Promise<Figures> {
  const { dir, checkout } = bench;
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core: 'every',
    servers: Object.fromEntries(servers.map(({ id, entry }) => [id, entry])),
  });
  const agent = keptConnections(4);
  try {
    const beganMs = performance.now();
    const client = await McpClient.open({ url: gateway.url, agent });
    const initializeMs = performance.now() - beganMs;
    let changes = 0;
    const stream = await client.openStream();
    stream.on('data', (chunk: Buffer) => {
      changes += chunk.toString().split(CHANGED).length - 1;
    });
    stream.resume();
    const tools = await listAll(client);
    const listMs = performance.now() - beganMs;
    await delay(WATCH_MS);
    const { processes, 'PSS MB': pssMb } = processFigures(gateway.pid);
    return {
      [`${name} initialize ms`]: initializeMs,
      [`${name} listed ms`]: listMs,
      [`${name} servers missing`]: SERVERS - serversIn(tools),
      [`${name} tools`]: tools.length,
      [`${name} list_changed`]: changes,
      [`${name} tools after`]: (await listAll(client)).length,
      [`${name} processes`]: processes,
      [`${name} PSS MB`]: pssMb,
    };
  } finally {
    agent.destroy();
  }
}

async function measure(bench: Bench): Promise<Figures> {
  const servers = npxServers(SERVERS, bench.dir);
  return { ...(await start(bench, servers, 'cold')), ...(await start(bench, servers, 'warm')) };
}

const LABEL = `${SERVERS} npx servers`;

export const COLD_START: Series = {
  id: 'cold-start',
  title: `until the first list, and changes of the list in the ${WATCH_MS / 1_000} s after it`,
  points: [{ label: LABEL, measure }],
  bounds: [
    { point: LABEL, column: 'cold list_changed', atMost: 4 },
    { point: LABEL, column: 'warm servers missing', atMost: 1 },
    { point: LABEL, column: 'warm listed ms', atMost: 1_500 },
  ],
};
