/**
 * Checks that everything that works directly works through the gateway: every server, over every transport, with
 * every client.
 *
 *     node test/peers/run.ts [--all|--quick] [--late] [--server ID] [--client NAME] [--mode legacy|modern]
 *                            [--way single|merged] [--check TEXT] [--json FILE]
 *
 * `--server` is part of an id such as `python2-stdio`. Each server is tried with one client of either era; with
 * `--all` with every
 * client; with `--quick` with one client: of either era in turn, or with `--late` of the other era.
 * With `--late` every server starts 5 s late, and is tried with the TypeScript clients. Over stdio each process
 * starts late. Over HTTP
 * and SSE the port refuses connections until 5 s after the gateway listens.
 *
 * A check that fails directly is not counted. The checks in `known-losses.ts` must fail. A few checks that took too long are tried once more when
 * nothing else runs, because a machine with other work is slow.
 */
import { writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { inLanes } from '../conformance/lanes.ts';
import { offering } from '../conformance/offering.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { CHECKS, type View } from './checks.ts';
import { CLIENT_CELLS, type ClientCell, connectClient } from './clients.ts';
import { type PeerClient, type Place, QUESTIONS } from './clients/client.ts';
import { closePythonDrivers } from './clients/driven.ts';
import { createForwarder, type Forwarder } from './forwarder.ts';
import { KNOWN_LOSSES, knownLoss } from './known-losses.ts';
import { type RunningServer, SERVER_CELLS, startServer } from './servers.ts';

const { values: options } = parseArgs({
  options: {
    all: { type: 'boolean', default: false },
    quick: { type: 'boolean', default: false },
    late: { type: 'boolean', default: false },
    server: { type: 'string', default: '' },
    client: { type: 'string' },
    mode: { type: 'string' },
    way: { type: 'string' },
    check: { type: 'string', default: '' },
    json: { type: 'string' },
  },
});

const LATE_SECONDS = 5;
/** The lanes wait more than they compute, and for late servers most of the time. */
const LANES = options.late ? 4 : 3;
const CHECK_MS = 40_000;
const UP_MS = 30_000;
/** Longest wait for a notification. One that is missed directly is not counted. */
const WAIT_MS = { direct: 2_500, through: 8_000 };
const WAYS = (['single', 'merged'] as const).filter((way) => options.way === undefined || way === options.way);

/** The failure of each check; undefined if it passed. */
type Outcomes = ReadonlyMap<string, string | undefined>;

interface Loss {
  readonly where: string;
  readonly check: string;
  readonly why: string;
}

/** A failed check that took too long, and a second trial of it. */
interface Slow extends Loss {
  readonly again: () => Promise<string | undefined>;
}

const TOO_LONG = /timed out|took longer/i;
/** More slow checks than these have another cause than a slow machine. */
const MAX_SLOW = 10;

let passed = 0;
const slow: Slow[] = [];
const losses: Loss[] = [];
/** The losses that `known-losses.ts` lists and that have occurred. */
const known: Loss[] = [];

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

/** Runs the `wanted` checks in order. If the client cannot connect, all of them fail. */
async function tryAll(
  connect: (declares: Parameters<View['connect']>[0]) => Promise<PeerClient>,
  id: string,
  mode: ClientCell['mode'],
  waitMs: number,
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
        await within(check.run({ client, id, waitMs, connect }), CHECK_MS);
        outcomes.set(check.name, undefined);
      } catch (thrown) {
        outcomes.set(check.name, words(thrown));
      }
    }
  } finally {
    // Errors at the end of a client are not tested here.
    await Promise.allSettled([client[Symbol.asyncDispose]()]);
  }
  return outcomes;
}

function record(list: Loss[], label: string, loss: Loss): void {
  list.push(loss);
  console.log(`  ${label} ${loss.check}: ${loss.why}`);
}

/** Runs the checks directly, and through the gateway those that have passed. */
async function compare(server: RunningServer, client: ClientCell, gateway: RunningGateway): Promise<void> {
  const { id } = server.cell;
  const began = performance.now();
  const direct = await tryAll(
    (declares) => connectClient(client, server.place, declares),
    id,
    client.mode,
    WAIT_MS.direct,
    (name) => name.includes(options.check),
  );
  const able = [...direct].flatMap(([name, why]) => (why === undefined ? [name] : []));
  if (able.length * 2 < direct.size && options.check === '') {
    const where = `${id} ← ${client.client} ${client.mode}, direct`;
    record(losses, 'LOST', { where, check: 'most checks', why: `fail directly: ${[...direct.values()].join('; ')}` });
  }
  for (const way of WAYS) {
    const where = `${id} ← ${client.client} ${client.mode}, ${way}`;
    const place: Place = { kind: 'http', url: gateway.endpoint(way === 'single' ? id : undefined) };
    const tryThrough = (wanted: (name: string) => boolean) =>
      tryAll((declares) => connectClient(client, place, declares), id, client.mode, WAIT_MS.through, wanted);
    const through = await tryThrough((name) => able.includes(name));
    const kept = [...through].filter(([, why]) => why === undefined).length;
    console.log(`${where.padEnd(56)} direct ${able.length}/${direct.size}, kept ${kept}${seconds(began)}`);
    for (const [check, why] of through) {
      const expected = knownLoss(id, client.mode, check);
      if (why === undefined && expected?.isRace !== false) passed++;
      else if (why === undefined)
        record(losses, 'LOST', { where, check, why: 'passes now: take it out of known-losses.ts' });
      else if (expected === undefined && TOO_LONG.test(why)) {
        const again = async () => (await tryThrough((name) => name === check)).get(check);
        slow.push({ where, check, why, again });
      } else if (expected === undefined) record(losses, 'LOST', { where, check, why });
      else record(known, 'known', { where, check, why: expected.why });
    }
  }
}

const LATE_CLIENTS: readonly ClientCell[] = [
  { client: 'typescript1', mode: 'legacy' },
  { client: 'typescript2', mode: 'modern' },
];

/** Returns the clients that a server is tried with. */
function clientsOf(index: number): readonly ClientCell[] {
  const cells = options.late && !options.all && options.client === undefined ? LATE_CLIENTS : CLIENT_CELLS;
  const clients = cells.filter(
    ({ client, mode }) =>
      (options.client === undefined || client === options.client) &&
      (options.mode === undefined || mode === options.mode),
  );
  if (options.all || options.client !== undefined) return clients;
  if (options.quick) {
    const mode = index % 2 === (options.late ? 1 : 0) ? 'legacy' : 'modern';
    const kind = clients.filter((client) => client.mode === mode);
    return kind.filter((_, at) => at === Math.floor(index / 2) % kind.length);
  }
  const byMode = Map.groupBy(clients, ({ mode }) => mode);
  return [...byMode.values()].flatMap((kind) => kind.filter((_, at) => at === index % kind.length));
}

/**
 * One client after the other, because the effects of one at the server, such as a new tool, are visible to the next.
 */
async function tryServer(server: RunningServer, index: number): Promise<void> {
  for (const client of clientsOf(index)) await compare(server, client, gateway);
}

/** Waits until the gateway lists the tools of every server, as a user does before the first call. */
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

const cells = SERVER_CELLS.filter(({ id }) => id.includes(options.server));
const began = performance.now();
await using stack = new AsyncDisposableStack();
stack.defer(closePythonDrivers);
const servers: RunningServer[] = [];
const forwarders: Forwarder[] = [];
const mcpServers: Record<string, RunningServer['config']> = {};
for (const cell of cells) {
  const server = stack.use(await startServer(cell, options.late ? LATE_SECONDS : 0));
  servers.push(server);
  mcpServers[cell.id] = server.config;
  if (!options.late || server.place.kind === 'stdio') continue;
  const forwarder = stack.use(await createForwarder(server.place.url));
  forwarders.push(forwarder);
  mcpServers[cell.id] = { ...server.config, url: forwarder.url };
}
const gateway = stack.use(await startGateway({ mcpServers }));
/** The gateway connects at the first use, so that it finds the ports closed only while a client lists. */
async function openForwarders(): Promise<void> {
  if (forwarders.length === 0) return;
  await delay(LATE_SECONDS * 1000);
  for (const forwarder of forwarders) await forwarder.open();
}
await Promise.all([openForwarders(), awaitListed(gateway, servers)]);
await inLanes(
  servers.map((server, index) => () => tryServer(server, index)),
  LANES,
);

for (const [index, { again, ...loss }] of slow.entries()) {
  const why = index < MAX_SLOW ? await again() : loss.why;
  console.log(`${loss.where}: ${loss.check}: ${loss.why}; ${why === undefined ? 'passes alone' : 'fails alone too'}`);
  if (why === undefined) passed++;
  else record(losses, 'LOST', { ...loss, why });
}

const byCheck = Map.groupBy(losses, ({ check }) => check);
console.log('');
for (const { check, why } of KNOWN_LOSSES) {
  const count = known.filter((one) => one.check === check).length;
  if (count > 0) console.log(`known ${count} × ${check}: ${why}`);
}
for (const [check, same] of byCheck) console.log(`LOST ${same.length} × ${check}`);
const failures = losses.map(({ where, check, why }) => `${where}: ${check}: ${why}`);
if (options.json !== undefined)
  await writeFile(options.json, JSON.stringify({ passed, failed: losses.length, failures }));
console.log(`${passed} passed, ${losses.length} failed in ${((performance.now() - began) / 1000).toFixed(0)} s`);
process.exitCode = losses.length === 0 && passed > 0 ? 0 : 1;
