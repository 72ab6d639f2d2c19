import { Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, resultOf } from '../mcp-client.ts';
import { waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';
import { npxServers, type NpxServer, processFigures, StartCount } from './npx-servers.ts';
import { listAll } from './upstreams.ts';

const CLIENTS = 10;
const SERVERS = 10;

/** Returns the two servers that a client uses. */
function usedBy(client: number, servers: readonly NpxServer[]): readonly NpxServer[] {
  return servers.filter((_, index) => index === client % SERVERS || index === (client + 3) % SERVERS);
}

async function measure(bench: Bench): Promise<Figures> {
  const { dir, checkout } = bench;
  const servers = npxServers(SERVERS, dir);
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core: 'every',
    servers: Object.fromEntries(servers.map(({ id, entry }) => [id, entry])),
  });
  using starts = new StartCount(gateway.pid);
  const agent = keptConnections(CLIENTS);
  try {
    let failed = 0;
    let startsOfFirst = 0;
    let processesOfFirst = 0;
    for (let index = 0; index < CLIENTS; index++) {
      const client = await McpClient.open({ url: gateway.url, agent });
      if (index === 0) {
        await listAll(client);
        // The first session begins after every server was listed.
        await waitUntilIdle(gateway.pid);
      }
      for (const { id, tool, toolArguments } of usedBy(index, servers)) {
        const reply = await client.request('tools/call', { name: `${id}__${tool}`, arguments: toolArguments });
        if (resultOf(reply) === undefined) failed++;
      }
      if (index > 0) continue;
      starts.look();
      startsOfFirst = starts.most;
      processesOfFirst = processFigures(gateway.pid).processes;
    }
    starts.look();
    return {
      'starts of one server, first client': startsOfFirst,
      'processes, first client': processesOfFirst,
      starts: starts.total,
      ...processFigures(gateway.pid),
      'failed calls': failed,
    };
  } finally {
    agent.destroy();
  }
}

const LABEL = `${CLIENTS} clients × ${SERVERS} npx servers`;

export const PROCESSES: Series = {
  id: 'processes',
  title: 'each client uses two of the servers, one after another',
  points: [{ label: LABEL, measure }],
  bounds: [
    { point: LABEL, column: 'starts of one server, first client', atMost: 1 },
    { point: LABEL, column: 'failed calls', atMost: 0 },
  ],
};
