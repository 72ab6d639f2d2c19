import type { Job, Round } from '../job.ts';
import { playLoad } from '../load-program.ts';
import { startNginx } from '../nginx.ts';
import { Gateway } from '../gateway-program.ts';
import type { Program } from '../program.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { UpstreamProgram } from '../upstream-program.ts';

const WARM_MS = 4_000;
const PREFIX = 'bench__';
const CONNECTIONS = 64;

interface Load {
  readonly sessions: number;
  readonly connections: number;
}

interface Target {
  readonly url: string;
  readonly pids: readonly number[];
  readonly program: Program;
  readonly prefix: string;
}

async function play(target: Target, { sessions, connections }: Load, bench: Bench): Promise<Round> {
  const job: Job = {
    url: target.url,
    revision: '2025-11-25',
    ask: { method: 'tools/call', tool: 'small' },
    toolPrefix: target.prefix,
    connections,
    sessions,
    countsRefusals: true,
    warmMs: WARM_MS,
    measureMs: bench.seconds * 1_000,
    pids: [...target.pids],
  };
  return await playLoad(job, target.program, { name: 'load', dir: bench.dir, core: bench.othersCore });
}

function figuresOf(round: Round): Figures {
  const { cpuUs, perSecond, p50Us, p99Us, rssMb, pssMb, refusals } = round;
  return {
    'CPU µs': cpuUs,
    'calls/s': perSecond,
    'p50 µs': p50Us,
    'p99 µs': p99Us,
    'RSS MB': rssMb,
    'PSS MB': pssMb,
    refusals,
  };
}

async function throughGateway(load: Load, bench: Bench): Promise<Figures> {
  const { dir, core, checkout } = bench;
  await using upstream = await UpstreamProgram.start(dir, bench.othersCore);
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core,
    servers: { bench: { url: upstream.url } },
  });
  const { url, pid, program } = gateway;
  const round = await play({ url, pids: [pid], program, prefix: PREFIX }, load, bench);
  const { connections, initializes } = await upstream.counts();
  // One session may be the gateway's own, for the lists.
  const reconnects = Math.max(0, initializes - load.sessions - 1);
  return { ...figuresOf(round), reconnects, 'upstream connections': connections };
}

async function throughNginx(load: Load, bench: Bench): Promise<Figures> {
  const { dir, core, checkout } = bench;
  await using upstream = await UpstreamProgram.start(dir, bench.othersCore);
  const address = { kind: 'http', url: upstream.url } as const;
  const place = { dir, core, checkout, against: undefined, connections: load.connections, upstream: address };
  const { url, pids, program } = await startNginx(place);
  await using _ = program;
  return figuresOf(await play({ url, pids, program, prefix: '' }, load, bench));
}

function sessionPoint(sessions: number): Point {
  const load = { sessions, connections: Math.min(sessions, CONNECTIONS) };
  return { label: `${sessions} sessions`, measure: (bench) => throughGateway(load, bench) };
}

function connectionPoint(connections: number): Point {
  const load = { sessions: connections, connections };
  return {
    label: `${connections} connections`,
    measure: (bench) => throughGateway(load, bench),
    beside: { subject: 'nginx', measure: (bench) => throughNginx(load, bench) },
  };
}

export const SESSIONS: Series = {
  id: 'sessions',
  title: `tools/call, 64 B, sessions over at most ${CONNECTIONS} connections, one remote upstream`,
  points: [1, 16, 64, 256, 1_000].map(sessionPoint),
  bounds: [
    { point: '1000 sessions', column: 'CPU µs', atMost: 1.3, of: { point: '16 sessions' } },
    { point: '1000 sessions', column: 'reconnects', atMost: 0 },
    { point: '1000 sessions', column: 'refusals', atMost: 0 },
  ],
};

export const CONNECTIONS_SERIES: Series = {
  id: 'connections',
  title: 'tools/call, 64 B, a session on each connection, one remote upstream',
  points: [1, 16, 64, 256].map(connectionPoint),
  bounds: [
    { point: '256 connections', column: 'CPU µs', atMost: 2.5, of: { subject: 'nginx' } },
    { point: '256 connections', column: 'refusals', atMost: 0 },
  ],
};
