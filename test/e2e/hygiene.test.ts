import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'undici';
import type { Act, Step } from '../fixtures/servers/nonce-acts.ts';
import { startGateway } from '../support/gateway.ts';
import { type Rpc, socketsTo, SwarmClient } from '../support/swarm-client.ts';
import { type Counts, growth, Onlooker, PROBED } from '../support/swarm-traces.ts';
import { NONCE_STDIO, NonceHttp } from '../support/swarm-upstream.ts';

const SESSIONS = 500;
const AT_ONCE = 25;
/** Longest time until everything is released. The calls of clients that have vanished end by their timeout. */
const SETTLE_MS = 150_000;
const LOOK_MS = 500;
/** The number of equal counts in a row that lasts longer than idle sockets are kept. */
const SAME_LOOKS = 12;
/**
 * Growth of the heap that 500 sessions may cause, such as by ended ids and compiled code. 6 KB per session is a leak.
 */
const HEAP_BYTES = 3 * 1_024 * 1_024;

const QUICK = { idle: '1s', timeouts: { call: '30s', max: '30s', start: '60s' }, concurrency: 200 };

const REVISIONS = ['2025-11-25', '2025-06-18', '2025-03-26', '2024-11-05'];

function config(http: NonceHttp) {
  return {
    mcpServers: {
      shared: { ...NONCE_STDIO, ...QUICK, isolation: 'shared' },
      own: { ...NONCE_STDIO, ...QUICK, maxConnections: 64 },
      mine: { ...NONCE_STDIO, ...QUICK, isolation: 'principal' },
      once: { url: `${http.url}/once`, ...QUICK, isolation: 'call', maxConnections: 200 },
      http: { url: `${http.url}/http`, ...QUICK, maxConnections: 200 },
    },
    gateway: { sessions: { idle: '1s', keepAlive: '1s' }, limits: { processes: 80, sessionsPerPrincipal: 400 } },
  };
}

/** A client that answers no question. */
class Deserter {
  readonly client: SwarmClient;
  readonly #nextMessage: () => Promise<Rpc>;

  private constructor(client: SwarmClient, nextMessage: () => Promise<Rpc>) {
    this.client = client;
    this.#nextMessage = nextMessage;
  }

  static async open(pool: Pool, revision: string): Promise<Deserter> {
    let next = Promise.withResolvers<Rpc>();
    const client = await SwarmClient.open(pool, {
      revision,
      capabilities: { sampling: {}, elicitation: {} },
      onMessage: (message) => next.resolve(message),
    });
    return new Deserter(client, () => {
      next = Promise.withResolvers();
      return next.promise;
    });
  }

  /** Subscribes to messages that outlast a call: log messages and updates of a resource. */
  async settleIn(upstream: string): Promise<void> {
    await this.client.request('level', 'logging/setLevel', { level: 'info' });
    const { error } = await this.client.request('news', 'resources/subscribe', { uri: `${upstream}+nonce://news` });
    assert.equal(error, undefined);
  }

  call(upstream: string, ...steps: readonly Step[]): Promise<Rpc> {
    const act: Act = { nonce: 'nonce:0:0;', steps, pauseMs: 0, fails: false };
    const _meta = { progressToken: 0 };
    return this.client.request(1, 'tools/call', { name: `${upstream}__act`, arguments: act, _meta });
  }

  /** Sends a call. Resolves at the first message about it, while the call is still in flight. */
  async begin(upstream: string, ...steps: readonly Step[]): Promise<{ readonly answered: Promise<unknown> }> {
    const first = this.#nextMessage();
    const answered = this.call(upstream, ...steps).catch((thrown: unknown) => thrown);
    await first;
    return { answered };
  }
}

interface Ending {
  readonly upstreams: readonly string[];
  readonly leave: (deserter: Deserter, upstream: string) => Promise<void>;
}

/** All ways in which a client leaves its session. */
const ENDINGS: readonly Ending[] = [
  {
    upstreams: ['shared', 'http', 'own', 'mine', 'once'],
    leave: async ({ client }) => client.end(),
  },
  {
    // The question of the call is never answered.
    upstreams: ['http', 'own'],
    leave: async (deserter, upstream) => {
      const { answered } = await deserter.begin(upstream, 'progress', 'sample');
      await deserter.client.end();
      deserter.client.vanish();
      await answered;
    },
  },
  {
    upstreams: ['http', 'own'],
    leave: async (deserter, upstream) => {
      const { answered } = await deserter.begin(upstream, 'progress', 'sample');
      deserter.client.vanish();
      await answered;
    },
  },
  {
    upstreams: ['shared', 'http'],
    leave: async (deserter, upstream) => {
      const { answered } = await deserter.begin(upstream, 'progress', 'progress', 'log', 'progress');
      deserter.client.vanish();
      await answered;
    },
  },
  {
    upstreams: ['own'],
    leave: async (deserter) => {
      const { error } = await deserter.call('own', 'progress', 'crash');
      assert.equal(error?.code, -31010);
    },
  },
  {
    upstreams: ['own'],
    leave: async (deserter) => {
      const { error } = await deserter.call('own', 'doom');
      assert.equal(error, undefined);
    },
  },
  {
    upstreams: ['shared', 'http', 'own', 'mine', 'once'],
    leave: async ({ client }) => {
      await client.listen();
      client.unlisten();
    },
  },
  {
    upstreams: ['shared', 'http', 'own', 'mine', 'once'],
    leave: async ({ client }) => {
      await client.listen();
      client.vanish();
    },
  },
];

/** Opens sessions, uses each once, and leaves them in all these ways. */
async function abandon(url: string, count: number): Promise<void> {
  const pool = socketsTo(url);
  const numbers = Array.from({ length: count }, (_, number) => number).values();
  const leaveOne = async (number: number) => {
    const ending = ENDINGS[number % ENDINGS.length];
    const round = Math.floor(number / ENDINGS.length);
    const upstream = ending?.upstreams[round % ending.upstreams.length];
    const revision = REVISIONS[round % REVISIONS.length];
    if (ending === undefined || upstream === undefined || revision === undefined) throw new RangeError(`${number}`);
    const deserter = await Deserter.open(pool, revision);
    const { error } = await deserter.call(upstream, 'progress');
    assert.equal(error, undefined);
    // An upstream with a connection per call keeps no subscriptions.
    if (upstream !== 'once' && round % 3 === 0) await deserter.settleIn(upstream);
    await ending.leave(deserter, upstream);
    // In 2024-11-05 closing the stream ends the session.
    if (revision === '2024-11-05') deserter.client.vanish();
  };
  try {
    await Promise.all(
      Array.from({ length: AT_ONCE }, async () => {
        for (const number of numbers) await leaveOne(number);
      }),
    );
  } finally {
    await pool.destroy();
  }
}

interface Traces {
  readonly counts: Counts;
  readonly heapBytes: number;
}

/** Counts repeatedly until the gateway is quiet, or until the time is over. */
async function waitUntilQuiet(
  onlooker: Onlooker,
  http: NonceHttp,
  isQuiet: (counts: Counts) => boolean,
): Promise<Traces> {
  const lateMs = performance.now() + SETTLE_MS;
  for (;;) {
    const isLate = performance.now() > lateMs;
    const { sessions, streams } = await http.state();
    const atUpstream = { 'session at the upstream': sessions, 'stream at the upstream': streams };
    const outside = { ...(await onlooker.outside()), ...atUpstream };
    if (isLate || isQuiet(outside)) {
      const { counts: inside, heapBytes } = await onlooker.inside();
      const counts = { ...outside, ...inside };
      if (isLate || isQuiet(counts)) return { counts, heapBytes };
    }
    await delay(LOOK_MS);
  }
}

/** Returns a condition that holds when a number of counts in a row are equal. */
function unchanging(isSo: (counts: Counts) => boolean): (counts: Counts) => boolean {
  let last = '';
  let sameLooks = 0;
  return (counts) => {
    // The counts from inside come right after equal counts from outside.
    if ('session' in counts) return isSo(counts);
    const now = JSON.stringify(counts);
    sameLooks = now === last && isSo(counts) ? sameLooks + 1 : 0;
    last = now;
    return sameLooks >= SAME_LOOKS;
  };
}

// REL-22
test('500 sessions left in every way leave no process, socket, timer or memory', { timeout: 600_000 }, async (t) => {
  assert.equal(process.platform, 'linux', 'this test reads /proc, so it needs Linux');
  await using http = await NonceHttp.start();
  await using gateway = await startGateway(config(http), { env: PROBED });
  const onlooker = new Onlooker(gateway);

  // First a few of each, so that lists are read, code is compiled and pools are filled.
  await abandon(gateway.url, 4 * ENDINGS.length);
  // The shared process remains, and so do the connections to remote servers on which the lists were read.
  const isBare = ({ linkspan_sessions, linkspan_processes, ...counts }: Counts) =>
    linkspan_sessions === 0 && linkspan_processes === 1 && counts['session at the upstream'] === 2;
  const before = await waitUntilQuiet(onlooker, http, unchanging(isBare));
  assert.ok(isBare(before.counts), JSON.stringify(before.counts));

  const startedMs = performance.now();
  await abandon(gateway.url, SESSIONS);
  t.diagnostic(`${SESSIONS} sessions in ${Math.round(performance.now() - startedMs)} ms`);
  const hasGrown = (counts: Counts) => Object.keys(growth(before.counts, counts)).length > 0;
  const after = await waitUntilQuiet(onlooker, http, (counts) => !hasGrown(counts));
  t.diagnostic(`settled after ${Math.round(performance.now() - startedMs)} ms`);
  t.diagnostic(`heap: ${before.heapBytes} bytes before, ${after.heapBytes} after`);
  assert.deepEqual(growth(before.counts, after.counts), {});
  assert.ok(after.heapBytes - before.heapBytes < HEAP_BYTES, `${before.heapBytes} → ${after.heapBytes} bytes`);
});
