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
/** Every limit below is a few seconds, that of a start the longest; the rest is patience with slow machines. */
const SETTLE_MS = 45_000;
const LOOK_MS = 500;
/** Longer than idle sockets are kept. */
const SAME_LOOKS = 12;
/** What 500 sessions may leave in the heap, such as the ids that were ended and compiled code. 6 KB each would be a leak. */
const HEAP_BYTES = 3 * 1_024 * 1_024;

const QUICK = { idle: '1s', timeouts: { call: '5s', max: '8s', start: '15s' }, concurrency: 200 };

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

/** A client that answers nothing it is asked. */
class Deserter {
  readonly client: SwarmClient;
  readonly #heard: () => Promise<Rpc>;

  private constructor(client: SwarmClient, heard: () => Promise<Rpc>) {
    this.client = client;
    this.#heard = heard;
  }

  static async open(pool: Pool, revision: string): Promise<Deserter> {
    let next = Promise.withResolvers<Rpc>();
    const client = await SwarmClient.open(pool, {
      revision,
      capabilities: { sampling: {}, elicitation: {} },
      hear: (message) => next.resolve(message),
    });
    return new Deserter(client, () => {
      next = Promise.withResolvers();
      return next.promise;
    });
  }

  /** Asks for what outlasts a call: log messages and news of a resource. */
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

  /** Calls, and resolves with the call still under way as soon as something was heard of it. */
  async begin(upstream: string, ...steps: readonly Step[]): Promise<{ readonly answered: Promise<unknown> }> {
    const heard = this.#heard();
    const answered = this.call(upstream, ...steps).catch((thrown: unknown) => thrown);
    await heard;
    return { answered };
  }
}

interface Ending {
  readonly upstreams: readonly string[];
  readonly leave: (deserter: Deserter, upstream: string) => Promise<void>;
}

/** All the ways in which a session is left. */
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

/** Opens sessions, uses each once, and leaves them in every way there is. */
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
    // A connection for one call alone keeps no subscriptions.
    if (upstream !== 'once' && round % 3 === 0) await deserter.settleIn(upstream);
    await ending.leave(deserter, upstream);
    // Where the session is the stream, leaving means to close it.
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

/** Looks until it is as quiet as can be, at most for so long. */
async function settled(onlooker: Onlooker, http: NonceHttp, isQuiet: (counts: Counts) => boolean): Promise<Traces> {
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

/** So many looks in a row show the same. */
function unchanging(isSo: (counts: Counts) => boolean): (counts: Counts) => boolean {
  let last = '';
  let sameLooks = 0;
  return (counts) => {
    // Of a look inside, the outside has just been seen.
    if ('session' in counts) return isSo(counts);
    const now = JSON.stringify(counts);
    sameLooks = now === last && isSo(counts) ? sameLooks + 1 : 0;
    last = now;
    return sameLooks >= SAME_LOOKS;
  };
}

test(
  'of 500 sessions abandoned in every way nothing stays: no process, socket, stream, timer, listener or memory',
  { timeout: 170_000, skip: process.platform === 'linux' ? false : 'looks into /proc' },
  async (t) => {
    await using http = await NonceHttp.start();
    await using gateway = await startGateway(config(http), { env: PROBED });
    const onlooker = new Onlooker(gateway);

    // Some of each first: lists are had, code is compiled, pools are made.
    await abandon(gateway.url, 4 * ENDINGS.length);
    // What stays is the one process that all share, and the connections to remote servers from which the lists come.
    const isBare = ({ linkspan_sessions, linkspan_processes, ...counts }: Counts) =>
      linkspan_sessions === 0 && linkspan_processes === 1 && counts['session at the upstream'] === 2;
    const before = await settled(onlooker, http, unchanging(isBare));
    assert.ok(isBare(before.counts), JSON.stringify(before.counts));

    const startedMs = performance.now();
    await abandon(gateway.url, SESSIONS);
    t.diagnostic(`${SESSIONS} sessions in ${Math.round(performance.now() - startedMs)} ms`);
    const hasGrown = (counts: Counts) => Object.keys(growth(before.counts, counts)).length > 0;
    const after = await settled(onlooker, http, (counts) => !hasGrown(counts));
    t.diagnostic(`settled after ${Math.round(performance.now() - startedMs)} ms`);
    t.diagnostic(`heap: ${before.heapBytes} bytes before, ${after.heapBytes} after`);
    assert.deepEqual(growth(before.counts, after.counts), {});
    assert.ok(after.heapBytes - before.heapBytes < HEAP_BYTES, `${before.heapBytes} → ${after.heapBytes} bytes`);
  },
);
