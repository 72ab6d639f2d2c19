import { FixtureServer } from '../fixture-server.ts';
import { Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, member, type Reply, resultOf } from '../mcp-client.ts';
import { percentile } from '../percentile.ts';
import { cpuTimes, cpuUs, memory } from '../process-cost.ts';
import { waitUntilIdle } from '../settle.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Point, Series } from '../suite.ts';
import { listAll } from './upstreams.ts';

const UPSTREAM_PAGE = 500;
const WARM_PAGES = 50;

/** Returns this number of tools, of about 700 bytes each. */
function toolsOf(count: number): readonly object[] {
  return Array.from({ length: count }, (_, index) => ({
    name: `tool_${index}`,
    description: `Does the thing that has the number ${index}. ${'It is described at the length that is usual. '.repeat(6)}`,
    inputSchema: {
      type: 'object',
      properties: {
        query: { type: 'string', description: 'Text to look for; qualifiers narrow it down.' },
        page: { type: 'integer', description: 'Page of the results, counted from 1.' },
        path: { type: 'string', description: 'Path from the root; a trailing slash means a folder.' },
      },
      required: ['query'],
    },
  }));
}

function startUpstream(count: number): Promise<FixtureServer> {
  const tools = toolsOf(count);
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ params }) => {
      const start = Number(member(params, 'cursor') ?? 0);
      const end = start + UPSTREAM_PAGE;
      return { tools: tools.slice(start, end), ...(end < count ? { nextCursor: String(end) } : {}) };
    },
  });
}

/** Requests the pages of the list repeatedly, from the first to the last. */
class Pages {
  readonly #client: McpClient;
  #cursor: unknown;

  constructor(client: McpClient) {
    this.#client = client;
  }

  async next(): Promise<Reply> {
    const reply = await this.#client.request('tools/list', this.#cursor === undefined ? {} : { cursor: this.#cursor });
    if (!Array.isArray(member(resultOf(reply), 'tools')))
      throw new Error(`a page was refused: ${reply.text.slice(0, 300)}`);
    this.#cursor = member(resultOf(reply), 'nextCursor');
    return reply;
  }
}

async function measure(count: number, bench: Bench): Promise<Figures> {
  const { dir, core, checkout } = bench;
  await using upstream = await startUpstream(count);
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core,
    servers: { bench: { url: upstream.url } },
  });
  const agent = keptConnections(1);
  try {
    const client = await McpClient.open({ url: gateway.url, agent });
    const listed = await listAll(client);
    await waitUntilIdle(gateway.pid);
    const firstBlockMs = await gateway.longestBlockMs();
    const pages = new Pages(client);
    for (let page = 0; page < WARM_PAGES; page++) await pages.next();

    const before = cpuTimes([gateway.pid]);
    const untilMs = performance.now() + bench.seconds * 1_000;
    const tookMs: number[] = [];
    let bytes = 0;
    while (performance.now() < untilMs) {
      const beganMs = performance.now();
      bytes += (await pages.next()).text.length;
      tookMs.push(performance.now() - beganMs);
    }
    const cpu = cpuUs(before, cpuTimes([gateway.pid]));
    const sorted = Float64Array.from(tookMs).toSorted();
    const { rssMb, pssMb } = memory([gateway.pid]);
    return {
      listed: listed.length,
      'CPU µs a page': cpu / tookMs.length,
      'page kB': bytes / tookMs.length / 1_000,
      'p50 ms': percentile(sorted, 0.5),
      'p99 ms': percentile(sorted, 0.99),
      'first list block ms': firstBlockMs,
      'RSS MB': rssMb,
      'PSS MB': pssMb,
    };
  } finally {
    agent.destroy();
  }
}

function point(count: number): Point {
  return { label: `${count} tools`, measure: (bench) => measure(count, bench) };
}

export const TOOLS_SERIES: Series = {
  id: 'tools',
  title: 'tools/list page by page, one remote upstream, one client',
  points: [100, 1_000, 10_000].map(point),
  bounds: [{ point: '10000 tools', column: 'CPU µs a page', atMost: 1.3, of: { point: '1000 tools' } }],
};
