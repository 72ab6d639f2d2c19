import { beginEvents, eventOf, FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { Gateway } from '../gateway-program.ts';
import { keptConnections, McpClient, member, resultOf } from '../mcp-client.ts';
import { memory } from '../process-cost.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';

const SESSIONS = 1_000;
const CONNECTIONS = 64;
const CALLS_PER_SESSION = 20;
const TEXT_BYTES = 100_000;
const HEAP_MB = 512;

/** Starts an upstream whose tool reports progress and then answers with a long text, all as events. */
function startUpstream(): Promise<FixtureServer> {
  const text = 'a line of an answer that comes as an event\n'.repeat(TEXT_BYTES / 43);
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, params, response }) => {
      if (method === 'tools/list') return { tools: [toolNamed('stream')] };
      const progress = { progressToken: member(member(params, '_meta'), 'progressToken'), progress: 1, total: 2 };
      beginEvents(response);
      response.write(eventOf({ jsonrpc: '2.0', method: 'notifications/progress', params: progress }));
      response.end(eventOf({ jsonrpc: '2.0', id, result: textResult(text) }));
      return undefined;
    },
  });
}

interface Tally {
  opened: number;
  answered: number;
  refused: number;
}

/** Opens a share of the sessions and makes their calls one at a time, until the gateway has ended. */
async function work(clients: McpClient[], url: string, count: number, options: WorkOptions): Promise<void> {
  const { gateway, agent, tally } = options;
  for (let session = 0; session < count && gateway.program.running; session++) {
    clients.push(await McpClient.open({ url, agent }));
    tally.opened++;
  }
  for (let call = 0; call < CALLS_PER_SESSION; call++) {
    for (const client of clients) {
      if (!gateway.program.running) return;
      const params = { name: 'bench__stream', arguments: {}, _meta: { progressToken: call } };
      const reply = await client.request('tools/call', params);
      if (resultOf(reply) === undefined) tally.refused++;
      else tally.answered++;
    }
  }
}

interface WorkOptions {
  readonly gateway: Gateway;
  readonly agent: ReturnType<typeof keptConnections>;
  readonly tally: Tally;
}

async function measure(bench: Bench): Promise<Figures> {
  const { dir, core, checkout } = bench;
  await using upstream = await startUpstream();
  await using gateway = await Gateway.start({
    name: 'gateway',
    checkout,
    dir,
    core,
    servers: { bench: { url: upstream.url } },
    nodeArgs: [`--max-old-space-size=${HEAP_MB}`],
  });
  const agent = keptConnections(CONNECTIONS);
  const tally: Tally = { opened: 0, answered: 0, refused: 0 };
  let peakMb = 0;
  const watch = setInterval(() => (peakMb = Math.max(peakMb, memory([gateway.pid]).peakMb)), 100);
  try {
    const shares = Array.from({ length: CONNECTIONS }, (_, index) => {
      return Math.floor(SESSIONS / CONNECTIONS) + (index < SESSIONS % CONNECTIONS ? 1 : 0);
    });
    // A crash of the gateway breaks the connections. It is counted below.
    await Promise.allSettled(shares.map((count) => work([], gateway.url, count, { gateway, agent, tally })));
    // A process without heap takes a while to end, and answers nothing meanwhile.
    const blockMs = await gateway.longestBlockMs().catch(() => undefined);
    const isAlive = gateway.program.running && blockMs !== undefined;
    return {
      sessions: tally.opened,
      answered: tally.answered,
      refused: tally.refused,
      'RSS MB at the end': memory([gateway.pid]).rssMb,
      'peak MB': peakMb,
      'block ms': blockMs,
      crashed: isAlive ? 0 : 1,
    };
  } finally {
    clearInterval(watch);
    agent.destroy();
  }
}

const LABEL = `${SESSIONS} sessions, ${HEAP_MB} MB heap`;

export const STREAMING: Series = {
  id: 'streaming',
  title: `${CALLS_PER_SESSION} calls a session with progress and ${TEXT_BYTES / 1_000} kB, as events`,
  points: [{ label: LABEL, measure }],
  bounds: [
    { point: LABEL, column: 'crashed', atMost: 0 },
    { point: LABEL, column: 'refused', atMost: 0 },
  ],
};
