import { fileURLToPath } from 'node:url';
import { workersOf } from '../test/support/workers.ts';
import { Gateway, writeConfig } from './gateway-program.ts';
import { type Guard, GUARDS } from './guards.ts';
import { startNginx } from './nginx.ts';
import { pinned, Program } from './program.ts';
import { startReplicas } from './replicas.ts';
import type { UpstreamKind } from './scenarios.ts';
import type { UpstreamAddress } from './upstream-address.ts';

/** The surroundings of a running subject: its folder, its core, and the upstream behind it. */
export interface Place {
  /** The folder of its files, removed afterwards. */
  readonly dir: string;
  readonly upstream: UpstreamAddress;
  readonly core: number | undefined;
  readonly connections: number;
  /** The folder of the checkout whose gateway is measured. */
  readonly checkout: string;
}

export interface Running {
  /** The MCP endpoint. */
  readonly url: string;
  /** The processes whose CPU and memory are counted. */
  readonly pids: readonly number[];
  readonly program: Program;
  /** The endpoint that the requests in sessions go to, if it is not `url`. */
  readonly askUrl?: string;
  /** The header that every request needs. */
  readonly authorization?: string;
  /** Further programs of the subject. */
  readonly helpers?: readonly Program[];
}

export interface Subject {
  readonly id: string;
  readonly title: string;
  /** True if the subject takes part only when the command line names it. */
  readonly onRequest?: true;
  /** True if the subject passes messages on as they are, so that client and upstream need one revision. */
  readonly onlyRelays?: true;
  /** True if the subject does not support 2026-07-28. */
  readonly isLegacyOnly?: true;
  /**
   * True if the subject runs the scenario with 2025-11-25 on both sides, for comparison; only if the scenario differs
   * from that.
   */
  readonly staysLegacy?: true;
  readonly serves: readonly UpstreamKind['kind'][];
  /** The prefix of the upstream's tool names. */
  readonly toolPrefix: string;
  /** @throws {Error} with the reason, if it cannot start. */
  start(place: Place): Promise<Running>;
}

function beside(file: string): string {
  return fileURLToPath(new URL(file, import.meta.url));
}

async function toRunning(program: Program, url: Promise<string>): Promise<Running> {
  try {
    return { url: await url, pids: [program.pid], program };
  } catch (thrown) {
    await program[Symbol.asyncDispose]();
    throw thrown;
  }
}

/** Starts one of our own programs with the upstream on its command line. */
async function startScript(name: string, place: Place): Promise<Running> {
  const command = [process.execPath, beside(`${name}.ts`), JSON.stringify(place.upstream)];
  const program = await Program.start(name, pinned(place.core, command), place.dir);
  return await toRunning(program, program.listening());
}

/** @param checkout its folder. @param nodeArgs in front of the program. */
async function startGateway(
  name: string,
  place: Place,
  checkout: string,
  nodeArgs: readonly string[] = [],
): Promise<Running> {
  const { dir, core } = place;
  const servers = serversFor(place);
  const { url, program, pid } = await Gateway.start({ name, checkout, dir, core, servers, nodeArgs });
  return { url, pids: [pid], program };
}

/** Returns the configuration's entry for the upstream. */
function serversFor({
  upstream,
  connections,
}: Pick<Place, 'upstream' | 'connections'>): Readonly<Record<string, object>> {
  const server =
    upstream.kind === 'http'
      ? { url: upstream.url }
      : { command: upstream.command, args: upstream.args, isolation: upstream.isolation };
  // Defaults are measured, except if they would refuse the load.
  const concurrency = Math.max(32, connections);
  return { bench: { ...server, concurrency, maxConnections: Math.max(64, connections) } };
}

/** Starts the gateways of these checkouts in one process, and returns them in the same order. @throws {Error} */
export async function startSideBySide(
  checkouts: readonly { readonly id: string; readonly folder: string }[],
  place: Omit<Place, 'checkout'>,
): Promise<readonly Running[]> {
  const servers = serversFor(place);
  const places = await Promise.all(
    checkouts.map(async ({ id, folder }) => {
      const config = await writeConfig({ name: id, checkout: folder, dir: place.dir, servers });
      return { checkout: folder, config };
    }),
  );
  const command = [process.execPath, beside('side-by-side.ts'), JSON.stringify(places)];
  const program = await Program.start('side-by-side', pinned(place.core, command), place.dir);
  const urls = await program.listeningAll(places.length);
  return urls.map((url) => ({ url, pids: [program.pid], program }));
}

/** Starts two replicas. The sessions are at the first one. @param asked the replica that gets the requests in sessions. */
async function startReplicated(name: string, place: Place, asked: 0 | 1): Promise<Running> {
  const { dir, core, checkout } = place;
  const servers = serversFor(place);
  const redisCore = core === undefined ? undefined : 1 - core;
  const { gateways, programs } = await startReplicas({ name, checkout, dir, core, servers }, redisCore);
  const [owner] = gateways;
  return {
    url: owner.url,
    ...(asked === 0 ? {} : { askUrl: gateways[asked].url }),
    pids: gateways.map(({ pid }) => pid),
    program: owner.program,
    helpers: programs,
  };
}

/** Starts a gateway with two workers. The costs are those of its three processes. */
async function startWorkers(name: string, place: Place): Promise<Running> {
  const { dir, core, checkout } = place;
  const settings = { workers: 2 };
  const { url, program, pid } = await Gateway.start({
    name,
    checkout,
    dir,
    core,
    servers: serversFor(place),
    settings,
  });
  return { url, pids: [pid, ...(await workersOf({ pid }))], program };
}

/** Starts a gateway that checks its clients. */
async function startGuarded(name: string, place: Place, guard: Guard): Promise<Running> {
  const { dir, core, checkout } = place;
  const { settings, authorization, program: issuer } = await guard(dir, core === undefined ? undefined : 1 - core);
  const gateway = await Gateway.start({ name, checkout, dir, core, servers: serversFor(place), settings });
  const { url, program, pid } = gateway;
  return { url, authorization, pids: [pid], program, helpers: issuer === undefined ? [] : [issuer] };
}

/** Returns the gateway of another checkout as a subject. */
export function gatewayOf(id: string, checkout: string): Subject {
  return {
    id,
    title: id,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startGateway(id, place, checkout),
  };
}

export const SUBJECTS: readonly Subject[] = [
  {
    id: 'nginx',
    title: 'nginx as a plain proxy',
    onlyRelays: true,
    serves: ['http'],
    toolPrefix: '',
    start: startNginx,
  },
  {
    id: 'bare',
    title: 'bare prototype',
    isLegacyOnly: true,
    serves: ['stdio'],
    toolPrefix: 'bench__',
    start: (place) => startScript('bare-stdio', place),
  },
  {
    id: 'gateway',
    title: 'gateway',
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startGateway('gateway', place, place.checkout),
  },
  {
    id: 'gateway-legacy',
    title: 'gateway, 2025-11-25 on both sides',
    staysLegacy: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startGateway('gateway-legacy', place, place.checkout),
  },
  {
    id: 'gateway-semi16',
    title: 'gateway, --max-semi-space-size=16',
    onRequest: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startGateway('gateway-semi16', place, place.checkout, ['--max-semi-space-size=16']),
  },
  {
    id: 'gateway-redis',
    title: 'two replicas, requests to the owner',
    onRequest: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startReplicated('gateway-redis', place, 0),
  },
  {
    id: 'gateway-forwarded',
    title: 'two replicas, requests passed on to the owner',
    onRequest: true,
    // Modern requests are served where they land.
    isLegacyOnly: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startReplicated('gateway-forwarded', place, 1),
  },
  {
    id: 'gateway-workers',
    title: 'gateway with two workers',
    onRequest: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startWorkers('gateway-workers', place),
  },
  ...GUARDS.map(({ id, title, guard }): Subject => ({
    id,
    title,
    onRequest: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startGuarded(id, place, guard),
  })),
  {
    id: 'sdk',
    title: 'SDK v1 client and server glued together',
    isLegacyOnly: true,
    serves: ['http', 'stdio'],
    toolPrefix: 'bench__',
    start: (place) => startScript('sdk-glue', place),
  },
];
