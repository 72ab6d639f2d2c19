import { fileURLToPath } from 'node:url';
import { builtProgram, Gateway, gatewayCommand, type GatewayOptions } from '../gateway-program.ts';
import { keptConnections, McpClient, member } from '../mcp-client.ts';
import type { Figures } from '../sheet.ts';
import { StdioClient } from '../stdio-client.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { listAll } from './upstreams.ts';

const UPSTREAM = fileURLToPath(new URL('../upstream-stdio.ts', import.meta.url));
const HEALTHY = { command: process.execPath, args: [UPSTREAM] };
/** A server that reads and prints nothing until its stdin ends. */
const HANGS = { command: process.execPath, args: ['-e', "process.stdin.on('end', () => process.exit()).resume()"] };

const CLIENT = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'bench', version: '1.0.0' } };

interface Times {
  readonly initializeMs: number;
  readonly listMs: number;
  readonly tools: number;
}

async function overHttp(options: GatewayOptions): Promise<Times> {
  await using gateway = await Gateway.start(options);
  const agent = keptConnections(2);
  try {
    const beganMs = performance.now();
    const client = await McpClient.open({ url: gateway.url, agent });
    const openedMs = performance.now();
    const tools = await listAll(client);
    return { initializeMs: openedMs - beganMs, listMs: performance.now() - openedMs, tools: tools.length };
  } finally {
    agent.destroy();
  }
}

/** The time of `initialize` counts from the start of the process, because a client waits that long. Runs the built program, as the package does. */
async function overStdio(options: GatewayOptions): Promise<Times> {
  const command = await gatewayCommand('stdio', { ...options, program: builtProgram(options.checkout) });
  const beganMs = performance.now();
  await using client = new StdioClient(command);
  await client.request('initialize', CLIENT);
  client.notify('notifications/initialized');
  const openedMs = performance.now();
  const tools = member(await client.request('tools/list'), 'tools');
  return {
    initializeMs: openedMs - beganMs,
    listMs: performance.now() - openedMs,
    tools: Array.isArray(tools) ? tools.length : 0,
  };
}

async function startThrice(
  bench: Bench,
  hangs: boolean,
  start: (options: GatewayOptions) => Promise<Times>,
): Promise<Figures> {
  const { dir, core, checkout } = bench;
  const servers = { a: HEALTHY, b: HEALTHY, c: HEALTHY, ...(hangs ? { hangs: HANGS } : {}) };
  const options = { name: 'gateway', checkout, dir, core, servers };
  const figures: Record<string, number> = {};
  for (const name of ['1st', '2nd', '3rd']) {
    const { initializeMs, listMs, tools } = await start(options);
    figures[`${name} initialize ms`] = initializeMs;
    figures[`${name} list ms`] = listMs;
    figures[`${name} tools`] = tools;
  }
  return figures;
}

function point(label: string, hangs: boolean, start: (options: GatewayOptions) => Promise<Times>): Point {
  return { label, measure: (bench) => startThrice(bench, hangs, start) };
}

export const HANGING: Series = {
  id: 'hanging',
  title: 'three healthy stdio servers, with and without one that never answers; three starts on one state directory',
  points: [
    point('run, none hangs', false, overHttp),
    point('run, one hangs', true, overHttp),
    point('stdio, none hangs', false, overStdio),
    point('stdio, one hangs', true, overStdio),
  ],
  bounds: [
    { point: 'run, one hangs', column: '2nd initialize ms', atMost: 300 },
    { point: 'run, one hangs', column: '2nd list ms', atMost: 500 },
    { point: 'stdio, one hangs', column: '2nd initialize ms', atMost: 300 },
    { point: 'stdio, one hangs', column: '2nd list ms', atMost: 500 },
  ],
};
