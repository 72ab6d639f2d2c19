import { builtProgram, Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, member, resultOf } from '../mcp-client.ts';
import { longestBlockMs, total } from '../metrics-text.ts';
import { memory } from '../process-cost.ts';
import { cpuSeconds, waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { UpstreamProgram } from '../upstream-program.ts';

/** Returns every tool of a list, over all its pages. @throws {Error} if a page is refused. */
export async function listAll(client: McpClient): Promise<readonly unknown[]> {
  const tools: unknown[] = [];
  let cursor: unknown;
  do {
    const result = resultOf(await client.request('tools/list', cursor === undefined ? {} : { cursor }));
    const page = member(result, 'tools');
    if (!Array.isArray(page)) throw new Error('a page of tools/list was refused');
    tools.push(...page);
    cursor = member(result, 'nextCursor');
  } while (cursor !== undefined);
  return tools;
}

/** Measures one start of the built program, from the beginning of the process until it is idle. */
async function start(bench: Bench, servers: Readonly<Record<string, object>>, name: string): Promise<Figures> {
  const { dir, core, checkout } = bench;
  const program = builtProgram(checkout);
  await using gateway = await Gateway.start({ name: 'gateway', checkout, dir, core, servers, program });
  const agent = keptConnections(4);
  try {
    const beganMs = performance.now();
    const client = await McpClient.open({ url: gateway.url, agent });
    const initializeMs = performance.now() - beganMs;
    const tools = await listAll(client);
    const listMs = performance.now() - beganMs - initializeMs;
    await waitUntilIdle(gateway.pid);
    const samples = await gateway.metrics();
    return {
      [`${name} listening ms`]: gateway.listeningMs,
      [`${name} initialize ms`]: initializeMs,
      [`${name} list ms`]: listMs,
      [`${name} tools`]: tools.length,
      [`${name} up`]: total(samples, 'linkspan_upstream_up'),
      [`${name} block ms`]: longestBlockMs(samples),
      [`${name} CPU s`]: cpuSeconds(gateway.pid),
      [`${name} RSS MB`]: memory([gateway.pid]).rssMb,
    };
  } finally {
    agent.destroy();
  }
}

async function startTwice(count: number, bench: Bench): Promise<Figures> {
  await using upstream = await UpstreamProgram.start(bench.dir, bench.othersCore);
  const { origin } = new URL(upstream.url);
  const ids = Array.from({ length: count }, (_, index) => `u${index}`);
  const servers = Object.fromEntries(ids.map((id) => [id, { url: `${origin}/${id}/mcp` }]));
  return { ...(await start(bench, servers, 'cold')), ...(await start(bench, servers, 'warm')) };
}

function point(count: number): Point {
  return { label: `${count} upstreams`, measure: (bench) => startTwice(count, bench) };
}

export const UPSTREAMS: Series = {
  id: 'upstreams',
  title: 'remote upstreams of 23 tools, started without and with lists on disk',
  points: [1, 10, 50, 200].map(point),
  bounds: [
    { point: '200 upstreams', column: 'cold listening ms', atMost: 1_000 },
    { point: '200 upstreams', column: 'cold initialize ms', atMost: 1_500 },
    { point: '200 upstreams', column: 'cold block ms', atMost: 50 },
    { point: '200 upstreams', column: 'warm block ms', atMost: 50 },
  ],
};
