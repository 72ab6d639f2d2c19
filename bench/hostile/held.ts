import { beginEvents, eventOf, FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { keptConnections, type McpClient, member, resultOf } from '../mcp-client.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';
import { type Arena, underAttack } from './arena.ts';

const ATTACK_MS = 15_000;

/**
 * Runs `act` for 0, 1, 2 … `count` - 1, several at once, until all are done or the time is over. Returns the number
 * done.
 */
async function repeat(count: number, atOnce: number, act: (index: number) => Promise<void>): Promise<number> {
  const untilMs = performance.now() + ATTACK_MS;
  let next = 0;
  let done = 0;
  const worker = async () => {
    while (next < count && performance.now() < untilMs) {
      await act(next++);
      done++;
    }
  };
  await Promise.all(Array.from({ length: atOnce }, worker));
  return done;
}

const SUBSCRIPTIONS = 2_000;
const URI_BYTES = 1_000;

/** N-23: one session subscribes to many long URIs. */
async function subscriptions(bench: Bench): Promise<Figures> {
  await using upstream = await FixtureServer.start({
    capabilities: { resources: { subscribe: true } },
    answer: ({ method }) => (method === 'resources/list' ? { resources: [{ uri: 'x:///a', name: 'a' }] } : {}),
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async ({ open }) => {
      const client = await open({ connections: 8 });
      await client.request('resources/list');
      let refused = 0;
      const made = await repeat(SUBSCRIPTIONS, 8, async (index) => {
        const uri = `hostile+x:///${index}/${'a'.repeat(URI_BYTES)}`;
        if (resultOf(await client.request('resources/subscribe', { uri })) === undefined) refused++;
      });
      return { 'sent MB': (made * URI_BYTES) / 1e6, subscribed: made - refused, refused };
    },
  });
}

const HOLDERS = 100;
const CALLS = 8;
const ANSWER_BYTES = 1_000_000;

function startStreams(): Promise<FixtureServer> {
  const text = 'x'.repeat(ANSWER_BYTES);
  return FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, params, response }) => {
      if (method === 'tools/list') return { tools: [toolNamed('stream')] };
      const progress = { progressToken: member(member(params, '_meta'), 'progressToken'), progress: 1 };
      beginEvents(response);
      response.write(eventOf({ jsonrpc: '2.0', method: 'notifications/progress', params: progress }));
      response.end(eventOf({ jsonrpc: '2.0', id, result: textResult(text) }));
      return undefined;
    },
  });
}

/** N-24: many sessions of one principal get large answers as events. */
async function eventLog(bench: Bench): Promise<Figures> {
  await using upstream = await startStreams();
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async (arena: Arena) => {
      const agent = keptConnections(8);
      const clients: McpClient[] = [];
      await repeat(HOLDERS, 8, async () => void clients.push(await arena.open({ agent })));
      let answered = 0;
      await repeat(clients.length * CALLS, 8, async (index) => {
        const params = { name: 'hostile__stream', arguments: {}, _meta: { progressToken: index } };
        const reply = await clients[index % clients.length]?.request('tools/call', params);
        if (reply !== undefined && resultOf(reply) !== undefined) answered++;
      });
      return { sessions: clients.length, answered, 'received MB': (answered * ANSWER_BYTES) / 1e6 };
    },
  });
}

const READS = 1_000;

/** N-25: an upstream declares large resources as cacheable. */
async function readCache(bench: Bench): Promise<Figures> {
  const text = 'x'.repeat(ANSWER_BYTES);
  await using upstream = await FixtureServer.start({
    isModern: true,
    capabilities: { resources: {} },
    answer: ({ method, params }) => {
      if (method === 'resources/list') return { resources: [{ uri: 'x:///a', name: 'a' }] };
      if (method === 'resources/templates/list') return { resourceTemplates: [] };
      return { contents: [{ uri: member(params, 'uri'), text }] };
    },
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async ({ open }) => {
      const client = await open({ connections: 8 });
      await client.request('resources/list');
      let answered = 0;
      await repeat(READS, 8, async (index) => {
        const reply = await client.request('resources/read', { uri: `hostile+x:///${index}` });
        if (resultOf(reply) !== undefined) answered++;
      });
      return { answered };
    },
  });
}

const BODIES = 400;
const BODY_BYTES = 4 * 1_048_576;
const HOLD_MS = 5_000;

/** N-26: many bodies without their last byte. */
function unfinishedBodies(bench: Bench): Promise<Figures> {
  return underAttack(bench, {
    attack: async ({ open, stack, pass }) => {
      const client = await open({ connections: BODIES + 1 });
      const body = Buffer.alloc(BODY_BYTES - 1, '[');
      let refused = 0;
      for (let index = 0; index < BODIES; index++) {
        const outgoing = client.begin(BODY_BYTES);
        outgoing.once('response', (response) => {
          refused++;
          response.resume();
        });
        outgoing.write(body);
        stack.defer(() => void outgoing.destroy());
      }
      await pass(HOLD_MS);
      return { bodies: BODIES, 'refused early': refused };
    },
  });
}

interface Holding {
  readonly id: string;
  readonly title: string;
  readonly label: string;
  readonly measure: (bench: Bench) => Promise<Figures>;
  readonly column: string;
  readonly atMost: number;
}

const HOLDINGS: readonly Holding[] = [
  {
    id: 'N-23',
    title: 'resources/subscribe with URIs of 1 kB',
    label: `${SUBSCRIPTIONS} subscriptions`,
    measure: subscriptions,
    column: 'written MB',
    atMost: 64,
  },
  {
    id: 'N-24',
    title: `${CALLS} answers of 1 MB a session, as events`,
    label: `${HOLDERS} sessions`,
    measure: eventLog,
    column: 'RSS +MB',
    atMost: 256,
  },
  {
    id: 'N-25',
    title: 'resources/read of 1 MB that may be kept',
    label: `${READS} resources`,
    measure: readCache,
    column: 'RSS +MB',
    atMost: 128,
  },
  {
    id: 'N-26',
    title: 'bodies of 4 MiB that lack a byte',
    label: `${BODIES} bodies`,
    measure: unfinishedBodies,
    column: 'RSS +MB',
    atMost: 256,
  },
];

/** The memory and disk space that a client or an upstream makes the gateway hold. */
export const HELD: readonly Series[] = HOLDINGS.map(({ id, title, label, measure, column, atMost }) => ({
  id,
  title,
  points: [{ label, measure }],
  bounds: [{ point: label, column, atMost }],
}));
