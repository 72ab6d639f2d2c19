import type { Agent } from 'node:http';
import { FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { builtProgram, Gateway } from '../gateway-program.ts';
import { heapBytes, WITH_HEAP_REPORT } from '../heap.ts';
import { keptConnections, McpClient, resultOf } from '../mcp-client.ts';
import { total } from '../metrics-text.ts';
import { descendantsOf, memory, startedWith, threads } from '../process-cost.ts';
import { waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { npxServers, SERVER_MARK } from './npx-servers.ts';

/** With those of the warm-up fewer than one principal may have. */
const SESSIONS = 500;
/** Sessions that are opened before the first measurement, so that compiled code is not counted. */
const WARM_SESSIONS = 400;
const AT_ONCE = 50;
const CLIENTS = 4;
const IDLE = '5s';
const LONGEST_MS = 60_000;

/** Measures a gateway that has no upstream and no client, as the package has it. */
async function idleGateway({ dir, checkout }: Bench): Promise<Figures> {
  const program = builtProgram(checkout);
  await using gateway = await Gateway.start({ name: 'gateway', checkout, dir, core: 'every', servers: {}, program });
  await waitUntilIdle(gateway.pid);
  const { rssMb, pssMb } = memory([gateway.pid]);
  return { 'RSS MB': rssMb, 'PSS MB': pssMb, threads: threads([gateway.pid]) };
}

/** Measures the processes of one server that `npx` starts, for a few clients. */
async function npxProcesses(index: number, { dir, checkout }: Bench): Promise<Figures> {
  const server = npxServers(index + 1, dir).at(-1);
  if (server === undefined) throw new Error(`there is no server ${index}`);
  const servers = { [server.id]: server.entry };
  await using gateway = await Gateway.start({ name: 'gateway', checkout, dir, core: 'every', servers });
  const agent = keptConnections(CLIENTS);
  try {
    const call = { name: `${server.id}__${server.tool}`, arguments: server.toolArguments };
    let failed = 0;
    for (let client = 0; client < CLIENTS; client++) {
      const opened = await McpClient.open({ url: gateway.url, agent });
      if (resultOf(await opened.request('tools/call', call)) === undefined) failed++;
    }
    await waitUntilIdle(gateway.pid);
    // Beside the servers there is the guard, which ends them if the gateway is killed.
    const pids = descendantsOf(gateway.pid).filter((pid) => startedWith(pid, SERVER_MARK) === server.id);
    return {
      processes: pids.length,
      'threads each': threads(pids) / pids.length,
      'RSS MB each': memory(pids).rssMb / pids.length,
      'PSS MB each': memory(pids).pssMb / pids.length,
      'gateway threads': threads([gateway.pid]),
      'failed calls': failed,
    };
  } finally {
    agent.destroy();
  }
}

function startUpstream(): Promise<FixtureServer> {
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ method }) => (method === 'tools/list' ? { tools: [toolNamed('one')] } : textResult('done')),
  });
}

/** Runs `act` for each item, a bounded number at a time. */
async function forEach<T>(all: readonly T[], act: (one: T) => Promise<unknown>): Promise<void> {
  for (let at = 0; at < all.length; at += AT_ONCE) await Promise.all(all.slice(at, at + AT_ONCE).map(act));
}

async function openClients(gateway: Gateway, agent: Agent, count: number): Promise<readonly McpClient[]> {
  const clients: McpClient[] = [];
  await forEach(Array.from({ length: count }), async () => {
    clients.push(await McpClient.open({ url: gateway.url, agent }));
  });
  return clients;
}

/** Resolves when a gateway has no session in memory, and no connection of one. */
async function waitForRelease(gateway: Gateway): Promise<void> {
  const isReleased = async () => {
    const samples = await gateway.metrics();
    return total(samples, 'linkspan_sessions') === 0 && total(samples, 'linkspan_upstream_connections') <= 1;
  };
  await gateway.program.until(async () => ((await isReleased()) ? true : undefined), LONGEST_MS);
  await waitUntilIdle(gateway.pid);
}

/** Measures the memory of sessions over that of a gateway which has served some. @param isReleased true if they become idle. */
async function sessions({ dir, checkout }: Bench, isReleased: boolean): Promise<Figures> {
  await using upstream = await startUpstream();
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core: 'every',
    servers: { bench: { url: upstream.url, ...(isReleased ? { idle: IDLE } : {}) } },
    settings: isReleased ? { sessions: { idle: IDLE } } : {},
    env: WITH_HEAP_REPORT,
  });
  const agent = keptConnections(SESSIONS + AT_ONCE);
  const call = { name: 'bench__one', arguments: {} };
  let failed = 0;
  const callOnce = async (client: McpClient) => {
    const reply = await client.request('tools/call', call);
    if (resultOf(reply) === undefined) failed++;
  };
  try {
    await forEach(await openClients(gateway, agent, WARM_SESSIONS), callOnce);
    if (isReleased) await waitForRelease(gateway);
    await waitUntilIdle(gateway.pid);
    const base = await heapBytes(gateway);
    const eachKb = async () => (await heapBytes(gateway).then((bytes) => bytes - base)) / SESSIONS / 1_000;

    const clients = await openClients(gateway, agent, SESSIONS);
    const opened = isReleased ? undefined : await eachKb();
    await forEach(clients, callOnce);
    const called = await eachKb();
    if (isReleased) {
      await waitForRelease(gateway);
      return { sessions: SESSIONS, 'failed calls': failed, 'called kB': called, 'released kB': await eachKb() };
    }
    await forEach(clients, (client) => client.openStream());
    await waitUntilIdle(gateway.pid);
    const streaming = await eachKb();
    const { rssMb } = memory([gateway.pid]);
    return {
      sessions: SESSIONS,
      'failed calls': failed,
      'opened kB': opened,
      'called kB': called,
      'with a stream kB': streaming,
      'RSS MB at the end': rssMb,
    };
  } finally {
    agent.destroy();
  }
}

const NPX: readonly Point[] = [
  'server-memory',
  'server-sequential-thinking',
  'server-filesystem',
  'server-everything',
].map((name, index) => ({ label: `npx ${name}`, measure: (bench) => npxProcesses(index, bench) }));

export const SIZING: Series = {
  id: 'sizing',
  title: `memory and threads, for docs/sizing.md; ${CLIENTS} clients of each npx server; heap per session after a full collection`,
  points: [
    { label: 'idle gateway', measure: idleGateway },
    ...NPX,
    { label: `${SESSIONS} sessions`, measure: (bench) => sessions(bench, false) },
    { label: `${SESSIONS} sessions, idle ${IDLE}`, measure: (bench) => sessions(bench, true) },
  ],
};
