/**
 * Tries what passes directly through the gateway: every server, over every transport, with every client.
 *
 *     node test/peers/run.ts [--all] [--late] [--server ID] [--client NAME] [--mode legacy|modern]
 *                            [--way single|merged] [--check TEXT] [--json FILE]
 *
 * `--server` is part of an id such as `python2-stdio`. `--late` starts the servers over stdio 5 s late. Without `--all` each server
 * meets some of the clients. A check that fails directly is not counted.
 */
import { writeFile } from 'node:fs/promises';
import { parseArgs } from 'node:util';
import { inLanes } from '../conformance/lanes.ts';
import { offering } from '../conformance/offering.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { CHECKS, type View } from './checks.ts';
import { CLIENT_CELLS, type ClientCell, connectClient } from './clients.ts';
import { type PeerClient, type Place, QUESTIONS } from './clients/client.ts';
import { closePythonDrivers } from './clients/driven.ts';
import { missing, type RunningServer, SERVER_CELLS, startServer } from './servers.ts';

const { values: options } = parseArgs({
  options: {
    all: { type: 'boolean', default: false },
    late: { type: 'boolean', default: false },
    server: { type: 'string', default: '' },
    client: { type: 'string' },
    mode: { type: 'string' },
    way: { type: 'string' },
    check: { type: 'string', default: '' },
    json: { type: 'string' },
  },
});

const LANES = 2;
const LATE_SECONDS = 5;
const CHECK_MS = 25_000;
const UP_MS = 30_000;
/** Directly, nothing stands between; and what is missed there is not counted. */
const HEAR_MS = { direct: 2_500, through: 8_000 };
const WAYS = (['single', 'merged'] as const).filter((way) => options.way === undefined || way === options.way);

/** What each check saw: undefined where it passed. */
type Outcomes = ReadonlyMap<string, string | undefined>;

interface Loss {
  readonly where: string;
  readonly check: string;
  readonly why: string;
}

let passed = 0;
const losses: Loss[] = [];

const seconds = (since: number): string => `, ${((performance.now() - since) / 1000).toFixed(1)} s`;

const words = (thrown: unknown): string =>
  (thrown instanceof Error ? thrown.message : String(thrown)).replaceAll(/\s+/g, ' ').slice(0, 300);

async function within<T>(promise: Promise<T>, limitMs: number): Promise<T> {
  const late = Promise.withResolvers<never>();
  const timer = setTimeout(() => late.reject(new Error(`took longer than ${limitMs} ms`)), limitMs);
  try {
    return await Promise.race([promise, late.promise]);
  } finally {
    clearTimeout(timer);
  }
}

/** Makes the checks in order, those of `wanted`. A client that cannot connect fails all of them. */
async function tryAll(
  connect: (declares: Parameters<View['connect']>[0]) => Promise<PeerClient>,
  id: string,
  mode: ClientCell['mode'],
  hearMs: number,
  wanted: (check: string) => boolean,
): Promise<Outcomes> {
  const chosen = CHECKS.filter(({ name, modes }) => modes.includes(mode) && wanted(name));
  const outcomes = new Map<string, string | undefined>();
  if (chosen.length === 0) return outcomes;
  let client: PeerClient;
  try {
    client = await connect(QUESTIONS);
  } catch (thrown) {
    for (const { name } of chosen) outcomes.set(name, `cannot connect: ${words(thrown)}`);
    return outcomes;
  }
  try {
    for (const check of chosen) {
      try {
        await within(check.run({ client, id, hearMs, connect }), CHECK_MS);
        outcomes.set(check.name, undefined);
      } catch (thrown) {
        outcomes.set(check.name, words(thrown));
      }
    }
  } finally {
    // What a client says when it leaves is not what is tried.
    await Promise.allSettled([client[Symbol.asyncDispose]()]);
  }
  return outcomes;
}

/** Makes the checks directly, and those that passed through the gateway. */
async function compare(server: RunningServer, client: ClientCell, gateway: RunningGateway): Promise<void> {
  const { id } = server.cell;
  const began = performance.now();
  const direct = await tryAll(
    (declares) => connectClient(client, server.place, declares),
    id,
    client.mode,
    HEAR_MS.direct,
    (name) => name.includes(options.check),
  );
  const able = [...direct].flatMap(([name, why]) => (why === undefined ? [name] : []));
  for (const way of WAYS) {
    const where = `${id} ← ${client.client} ${client.mode}, ${way}`;
    const place: Place = { kind: 'http', url: gateway.endpoint(way === 'single' ? id : undefined) };
    const through = await tryAll(
      (declares) => connectClient(client, place, declares),
      id,
      client.mode,
      HEAR_MS.through,
      (name) => able.includes(name),
    );
    const lost = [...through].flatMap(([check, why]) => (why === undefined ? [] : [{ where, check, why }]));
    passed += able.length - lost.length;
    losses.push(...lost);
    console.log(
      `${where.padEnd(56)} direct ${able.length}/${direct.size}, kept ${able.length - lost.length}${seconds(began)}`,
    );
    for (const { check, why } of lost) console.log(`  LOST ${check}: ${why}`);
  }
}

/** Each server meets a client of either era, and each client a server of either era; `--all` is every pair. */
function clientsOf(index: number): readonly ClientCell[] {
  const clients = CLIENT_CELLS.filter(
    ({ client, mode }) =>
      (options.client === undefined || client === options.client) &&
      (options.mode === undefined || mode === options.mode),
  );
  if (options.all || options.client !== undefined) return clients;
  const byMode = Map.groupBy(clients, ({ mode }) => mode);
  return [...byMode.values()].flatMap((kind) => kind.filter((_, at) => at === index % kind.length));
}

/** One client after the other: what one does to the server, such as adding a tool, the next would see. */
async function tryServer(server: RunningServer, index: number): Promise<void> {
  for (const client of clientsOf(index)) await compare(server, client, gateway);
}

/** Waits until the gateway lists what every server offers, as a user would before the first call. */
async function awaitListed(gateway: RunningGateway, servers: readonly RunningServer[]): Promise<void> {
  const wanted = servers.map(({ cell }) => `${cell.id}__echo`);
  const connect = async () => {
    const client = await connectClient(
      { client: 'typescript1', mode: 'legacy' },
      { kind: 'http', url: gateway.endpoint() },
      [],
    );
    return {
      tools: async () => (await client.tools()).map((name) => ({ name })),
      [Symbol.asyncDispose]: () => client[Symbol.asyncDispose](),
    };
  };
  try {
    await (await offering(connect, wanted, UP_MS))[Symbol.asyncDispose]();
  } catch (thrown) {
    console.log(`  ${words(thrown)}`);
  }
}

const cells = SERVER_CELLS.filter(({ id }) => id.includes(options.server)).filter(
  ({ transport }) => !options.late || transport === 'stdio',
);
for (const cell of cells) {
  const why = missing(cell);
  if (why !== undefined) console.log(`${cell.id}: NOT TRIED, ${why}`);
}
const began = performance.now();
await using stack = new AsyncDisposableStack();
stack.defer(closePythonDrivers);
const servers: RunningServer[] = [];
for (const cell of cells.filter((one) => missing(one) === undefined)) {
  servers.push(stack.use(await startServer(cell, options.late ? LATE_SECONDS : 0)));
}
const gateway = stack.use(
  await startGateway({ mcpServers: Object.fromEntries(servers.map(({ cell, config }) => [cell.id, config])) }),
);
await awaitListed(gateway, servers);
await inLanes(
  servers.map((server, index) => () => tryServer(server, index)),
  LANES,
);

const byCheck = Map.groupBy(losses, ({ check }) => check);
console.log('');
for (const [check, same] of byCheck) console.log(`LOST ${same.length} × ${check}`);
if (options.json !== undefined)
  await writeFile(options.json, JSON.stringify({ passed, failed: losses.length, losses }));
console.log(`${passed} passed, ${losses.length} failed in ${((performance.now() - began) / 1000).toFixed(0)} s`);
process.exitCode = losses.length === 0 && passed > 0 ? 0 : 1;
