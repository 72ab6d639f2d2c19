/** Tests that calls of many principals with equal ids, tokens and names never meet, while reloads change the rights of all. */
import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { type HttpUpstream, legacyUpstream } from '../support/http-upstream.ts';
import { modernPost } from '../support/modern-wire.ts';
import { SEED } from '../support/seed.ts';
import { socketsTo } from '../support/swarm-client.ts';
import { type PlannedUpstream, planSwarm } from '../support/swarm-plan.ts';
import { SwarmSession } from '../support/swarm-session.ts';
import { NonceHttp } from '../support/swarm-upstream.ts';
import { waitUntil } from '../support/wait-until.ts';

const PRINCIPALS = Number(process.env['LINKSPAN_PRINCIPALS'] ?? 50);
/** Calls of one principal: those of its session, and those of 2026-07-28. */
const [CALLS, MODERN_CALLS] = [80, 20];
/** Groups of principals. Each sees tools of its own, others in each phase. */
const GROUPS = 5;
const PHASES = ['a', 'b'] as const;
const RELOAD_PAUSE_MS = 200;
const POLL_MS = 20;
/** The interval of the lists of one principal. */
const LIST_MS = PRINCIPALS / 5;
const SHOWN = 20;
const NONCE = /nonce:\d+:\d+;/g;
const UPSTREAMS: readonly PlannedUpstream[] = [
  { id: 'pool', steps: ['progress', 'log'] },
  { id: 'http', steps: ['progress', 'log', 'aside', 'elicit', 'sample'] },
];
const LIMITS = { concurrency: 48, queue: 10_000, queueWait: '5m', timeouts: { call: '5m' } };

type Phase = (typeof PHASES)[number];

const keyOf = (principal: number) => `key-of-principal-${principal}-0123456789`;
const groupOf = (principal: number) => principal % GROUPS;
const headersOf = (principal: number) => ({ authorization: `Bearer ${keyOf(principal)}` });
const groups = Array.from({ length: GROUPS }, (_, group) => group);

/** Starts an upstream with one tool for each group and phase. */
function listedUpstream(): Promise<HttpUpstream> {
  const names = groups.flatMap((group) => PHASES.map((phase) => `of-${group}-${phase}`));
  return legacyUpstream({ tools: names.map((name) => ({ name, inputSchema: { type: 'object' } })) });
}

function configIn(phase: Phase, http: NonceHttp, listed: HttpUpstream): GatewayFile {
  const roleOf = (group: number) => ({
    upstreams: ['pool', 'http', 'listed'],
    tools: ['act', `of-${group}-${phase}`],
  });
  const apiKeys = Array.from({ length: PRINCIPALS }, (_, principal) => ({
    name: `p${principal}`,
    sha256: hash('sha256', keyOf(principal)),
    groups: [`g${groupOf(principal)}`],
  }));
  return {
    mcpServers: {
      pool: { url: `${http.url}/pool`, ...LIMITS, isolation: 'shared' },
      http: { url: `${http.url}/http`, ...LIMITS, maxConnections: PRINCIPALS + 8 },
      listed: { url: listed.url, start: 'eager' },
    },
    gateway: {
      accessLog: 'none',
      // 2 000 calls in flight are the subject, not how many a machine can bear.
      overload: { loopDelay: false },
      auth: { apiKeys },
      access: {
        roles: Object.fromEntries(groups.map((group) => [`r${group}`, roleOf(group)])),
        grants: groups.map((group) => ({ roles: [`r${group}`], groups: [`g${group}`] })),
      },
    },
  };
}

/** The policy of the gateway, which changes all the time. */
class Phases {
  /** The phases that may be in effect now. */
  readonly current = new Set<Phase>(['a']);
  reloads = 0;
  readonly #gateway: RunningGateway;
  readonly #configOf: (phase: Phase) => GatewayFile;

  constructor(gateway: RunningGateway, configOf: (phase: Phase) => GatewayFile) {
    this.#gateway = gateway;
    this.#configOf = configOf;
  }

  async run(until: AbortSignal): Promise<void> {
    while (!until.aborted) {
      const [from, to]: readonly [Phase, Phase] = this.current.has('a') ? ['a', 'b'] : ['b', 'a'];
      this.current.add(to);
      await this.#gateway.configure(this.#configOf(to));
      this.#gateway.kill('SIGHUP');
      const applied = ++this.reloads;
      // The test has the patience: a busy machine takes long for a reload.
      while ((await this.#appliedCount()) < applied) if (until.aborted) return;
      this.current.delete(from);
      await sleep(RELOAD_PAUSE_MS);
    }
  }

  async #appliedCount(): Promise<number> {
    await sleep(POLL_MS);
    const text = await (await fetch(`${this.#gateway.operatorUrl}/metrics`)).text();
    return Number(/^linkspan_config_reloads_total\{[^}]*outcome="applied"[^}]*\} (\d+)$/m.exec(text)?.[1] ?? 0);
  }
}

/** Lists tools until the signal, and returns what was wrong with the lists. */
async function watchLists(session: SwarmSession, phases: Phases, until: AbortSignal, counts: { lists: number }) {
  const faults: string[] = [];
  const { number } = session.planned;
  while (!until.aborted) {
    const before = [...phases.current];
    const tools = await session.tools();
    counts.lists++;
    const possible = new Set([...before, ...phases.current]);
    const own = [...possible].map((phase) => `listed__of-${groupOf(number)}-${phase}`);
    const allowed = ['pool__act', 'http__act', ...own];
    const isOwn = tools.every((tool) => allowed.includes(tool)) && tools.includes('pool__act');
    if (!isOwn) faults.push(`p${number} in ${[...possible].join()} got the list ${tools.join()}`);
    await sleep(LIST_MS);
  }
  return faults;
}

/** Makes calls of 2026-07-28, and returns what was wrong with their answers. */
async function callModern(url: string, principal: number): Promise<readonly string[]> {
  const faults: string[] = [];
  for (let n = 1; n <= MODERN_CALLS; n++) {
    const nonce = `nonce:${principal}:${CALLS + n};`;
    const params = { name: 'pool__act', arguments: { nonce, steps: ['progress'], pauseMs: 1, fails: false } };
    const options = { id: n, headers: headersOf(principal), meta: { progressToken: n } };
    const { text } = await modernPost(url, 'tools/call', params, options);
    const nonces = text.match(NONCE) ?? [];
    if (nonces.length < 2 || nonces.some((each) => each !== nonce)) faults.push(`${nonce} got ${text}`);
  }
  return faults;
}

// G2 SEC-07
test(
  `no call of ${PRINCIPALS} principals with equal ids gets anything of another one`,
  { timeout: PRINCIPALS > 50 ? 900_000 : 300_000 },
  async (t) => {
    t.diagnostic(`LINKSPAN_SEED=${SEED}`);
    const plan = planSwarm({
      seed: SEED,
      sessions: PRINCIPALS,
      callsPerSession: CALLS,
      upstreamsOf: () => UPSTREAMS,
    });
    await using http = await NonceHttp.start();
    await using listed = await listedUpstream();
    await using gateway = await startGateway(configIn('a', http, listed));
    const pool = socketsTo(gateway.url);
    t.after(() => pool.destroy());
    const sessions = await Promise.all(
      plan.map((planned) =>
        SwarmSession.open(pool, planned, (_, step) => step === 'log' || planned.listens, headersOf(planned.number)),
      ),
    );
    const playing = new AbortController();
    const phases = new Phases(gateway, (phase) => configIn(phase, http, listed));
    const counts = { lists: 0 };
    const startedMs = performance.now();
    const makeCalls = async () => {
      try {
        return await Promise.all(
          sessions.map(async (session) => {
            const { number } = session.planned;
            const [modern] = await Promise.all([callModern(gateway.endpoint(), number), session.play()]);
            return modern;
          }),
        );
      } finally {
        // However fast the calls are, lists and reloads go on until there were some.
        await waitUntil(() => phases.reloads >= 2);
        playing.abort();
      }
    };
    const calls = makeCalls();
    const watching = Promise.all(sessions.map((session) => watchLists(session, phases, playing.signal, counts)));
    const ended = await Promise.allSettled([calls, watching, phases.run(playing.signal)]);
    for (const one of ended) if (one.status === 'rejected') throw one.reason;
    const [modern, lists] = await Promise.all([calls, watching]);
    const seconds = Math.round((performance.now() - startedMs) / 1_000);
    const made = PRINCIPALS * (CALLS + MODERN_CALLS);
    t.diagnostic(`${made} calls, ${counts.lists} lists and ${phases.reloads} reloads in ${seconds} s`);

    for (const { witness } of sessions) witness.finish();
    const { ledger } = await http.state();
    const faults = [...sessions.flatMap(({ witness }) => witness.faults), ...modern.flat(), ...lists.flat()];
    faults.push(...ledger.faults);
    for (const [nonce, { ran }] of Object.entries(ledger.entries))
      if (ran !== 1) faults.push(`${nonce} ran ${ran} times`);
    await Promise.all(sessions.map((session) => session.end()));
    assert.deepEqual(faults.slice(0, SHOWN), [], `${faults.length} faults; run again with LINKSPAN_SEED=${SEED}`);
    assert.ok(phases.reloads >= 2, `${phases.reloads} reloads`);
  },
);
