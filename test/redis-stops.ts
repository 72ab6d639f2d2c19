/**
 * Stops the Redis of three replicas for 10 s beside 200 calls a second, and prints what each kind of client met before, meanwhile and after it (REL-28):
 *
 *     node test/redis-stops.ts [--rate 200] [--stop SECONDS]
 *
 * Half of the calls are of 2026-07-28, to an upstream of 2026-07-28; the other half belongs to sessions, to an upstream with sessions. Another client opens
 * sessions. All go through the balancer of the compose file. Ends with 1 if a call of 2026-07-28 was not answered, anything else neither answered nor refused, or
 * a call ran twice.
 */
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { type Got, initialize, messagesOf, post, rpc } from './downstream/client.ts';
import { Child } from './support/child.ts';
import { modernPost } from './support/modern-wire.ts';
import { act, startRemote } from './support/nonce-remote.ts';
import { MISSING, Replicas } from './support/replicas.ts';

const { values } = parseArgs({
  options: { rate: { type: 'string', default: '200' }, stop: { type: 'string', default: '10' } },
});

/** Calls a second of one client. */
const CLIENT_RATE = 5;
const STEADY_MS = 10_000; // subject
const INITIALIZE = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };
const LEDGER_SERVER = join(import.meta.dirname, 'fixtures/servers/ledger-http.ts');

type Phase = 'before' | 'stopped' | 'after';
type Outcome = 'answered' | 'refused' | 'failed';

interface Call {
  readonly kind: string;
  readonly phase: Phase;
  readonly outcome: Outcome;
  readonly endedMs: number;
  readonly tookMs: number;
  readonly text: string;
}

const calls: Call[] = [];
let phase: Phase = 'before';
const end = new AbortController();
let lastCall = 0;

function outcomeOf(got: Got, nonce: string): Outcome {
  const result = JSON.stringify(messagesOf(got).at(-1)?.result ?? {});
  if (got.status === 200 && (result.includes(nonce) || got.headers['mcp-session-id'] !== undefined)) return 'answered';
  return got.text.includes('store-unavailable') ? 'refused' : 'failed';
}

/** Makes one call after the other until the end. */
async function repeat(kind: string, call: (nonce: string) => Promise<Got>): Promise<void> {
  while (!end.signal.aborted) {
    const nonce = `nonce:${++lastCall}:1;`;
    const began = { phase, atMs: performance.now() };
    const [outcome, text] = await call(nonce).then(
      (got): [Outcome, string] => [outcomeOf(got, nonce), `${got.status} ${got.text}`],
      (thrown: unknown): [Outcome, string] => ['failed', String(thrown)],
    );
    const endedMs = performance.now();
    calls.push({ kind, phase: began.phase, outcome, endedMs, tookMs: endedMs - began.atMs, text: text.slice(0, 300) });
    await sleep(1_000 / CLIENT_RATE);
  }
}

function report(kind: string, during: Phase): string {
  const own = calls.filter((call) => call.kind === kind && call.phase === during);
  const times = own.map(({ tookMs }) => tookMs).toSorted((a, b) => a - b);
  const at = (share: number) =>
    `${(times[Math.min(times.length - 1, Math.floor(times.length * share))] ?? 0).toFixed(1)} ms`;
  const count = (outcome: Outcome) => own.filter((call) => call.outcome === outcome).length;
  const counts = `${count('answered')} answered, ${count('refused')} refused, ${count('failed')} failed`;
  return `${kind}, ${during}: ${counts}; median, p99, longest: ${at(0.5)}, ${at(0.99)}, ${at(1)}`;
}

if (MISSING !== undefined) throw new Error(MISSING);
await using stack = new AsyncDisposableStack();
const dir = await mkdtemp(join(tmpdir(), 'linkspan-stops-'));
stack.defer(() => rm(dir, { recursive: true, force: true }));
const ledgerFile = join(dir, 'modern.ledger');
const env = { LEDGER: ledgerFile, LEDGER_NAME: 'modern', LEDGER_HOST: '127.0.0.1' };
const modern = stack.use(await Child.start(process.execPath, [LEDGER_SERVER, 'modern', '0'], { env }));
const modernUrl = await modern.waitForLine((line) => /^listening on (\S+)/.exec(line)?.[1]);
const remote = stack.use(await startRemote());
const mcpServers = { modern: { url: `${modernUrl}/mcp` }, nonce: { url: `${remote.url}/mcp` } };
const replicas = stack.use(await Replicas.start(3, { mcpServers }, {}, 'ready in turn'));
await replicas.untilAllKnown();

const each = Math.max(1, Math.round(Number(values.rate) / CLIENT_RATE / 2));
const sessions = await Promise.all(Array.from({ length: each }, () => initialize(replicas.url)));
const clients = [
  ...sessions.map((id) => repeat('sessions', (nonce) => post(replicas.url, rpc(1, 'tools/call', act(nonce, [])), id))),
  ...sessions.map(() =>
    repeat('2026-07-28', (nonce) => {
      const own = { call: nonce, attempt: 1, nonce, way: 'result', steps: 0, pauseMs: 0 };
      return modernPost(replicas.url, 'tools/call', { name: 'modern__act', arguments: own });
    }),
  ),
  repeat('new sessions', () => post(replicas.url, rpc(0, 'initialize', INITIALIZE))),
];
await sleep(STEADY_MS);
phase = 'stopped';
replicas.redis.pause();
await sleep(Number(values.stop) * 1_000);
replicas.redis.resume();
phase = 'after';
const resumedMs = performance.now();
await sleep(STEADY_MS);
end.abort();
await Promise.all(clients);

for (const kind of ['2026-07-28', 'sessions', 'new sessions'])
  for (const during of ['before', 'stopped', 'after'] as const) console.log(report(kind, during));
const late = calls.filter(({ outcome, endedMs }) => outcome !== 'answered' && endedMs > resumedMs);
const recoveryMs = Math.max(0, ...late.map(({ endedMs }) => endedMs - resumedMs));
console.log(`last call without an answer: ${recoveryMs.toFixed(0)} ms after Redis went on`);
const ledger = await remote.ledger();
const executed = Map.groupBy((await readFile(ledgerFile, 'utf8')).match(/nonce:\d+:1;/g) ?? [], (nonce) => nonce);
const again = [...executed.values()].filter(({ length }) => length > 1).length;
const twice = Object.values(ledger).filter(({ ran }) => ran > 1).length + again;
console.log(
  `calls that ran: ${Object.keys(ledger).length} of sessions, ${twice} twice; ${executed.size} of 2026-07-28`,
);
const bad = calls.filter(
  ({ kind, outcome }) => outcome === 'failed' || (kind === '2026-07-28' && outcome === 'refused'),
);
for (const { kind, phase: during, text } of bad.slice(0, 10)) console.log(`${kind}, ${during}: ${text}`);
process.exitCode = bad.length + twice === 0 ? 0 : 1;
