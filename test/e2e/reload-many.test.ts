import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const PID = fileURLToPath(new URL('../fixtures/servers/stdio-pid.ts', import.meta.url));
/** `LINKSPAN_RELOADS=500` is the number that the requirement names. */
const RELOADS = Number(process.env['LINKSPAN_RELOADS'] ?? 40);
/** Of ten reloads, three are of a file that cannot be used. */
const INVALID = 3;
const RATE = 200;
const STREAMS = 10;
const TIMEOUT = { timeout: 30_000 + RELOADS * 2_000 };

function pidServer(label: string): object {
  return { command: process.execPath, args: [PID], isolation: 'shared', start: 'eager', env: { LABEL: label } };
}

function fileOf(round: number) {
  // One upstream changes each time, one comes and goes, and two stay.
  const sometimes = round % 2 === 0 ? { sometimes: pidServer('') } : {};
  const mcpServers = { one: pidServer(''), two: pidServer(''), changing: pidServer(String(round)), ...sometimes };
  return { mcpServers, gateway: { reload: { watch: false, drain: '5s' }, limits: { processes: 100 + round } } };
}

async function descriptors(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}

async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
}

/** Sends SIGHUP, and waits until the gateway has reported the outcome. */
async function reload(gateway: RunningGateway): Promise<void> {
  const outcomes = () => gateway.logs().split(/"config applied"|"config rejected;/).length;
  const before = outcomes();
  gateway.kill('SIGHUP');
  await waitUntil(async () => {
    await sleep(5);
    return outcomes() > before;
  });
}

test(`${RELOADS} reloads under load are not noticed by users of untouched upstreams`, TIMEOUT, async (t) => {
  await using gateway = await startGateway(fileOf(0));
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  const call = async (name: string) => {
    const got = await post(url, rpc(1, 'tools/call', { name, arguments: {} }), session);
    const [answer] = messagesOf(got);
    return JSON.stringify(answer?.result ?? answer?.error ?? got.text);
  };
  const pids = { one: await call('one__pid'), two: await call('two__pid') };
  assert.match(pids.one, /\d+/);
  const sessions = await Promise.all(Array.from({ length: STREAMS }, () => initialize(url)));
  const streams = await Promise.all(sessions.map((id) => getEvents(url, id)));

  const wrong: string[] = [];
  let calls = 0;
  let isOver = false;
  const inFlight = new Set<Promise<void>>();
  const one = async (name: 'one' | 'two') => {
    calls++;
    const text = await call(`${name}__pid`).catch(String);
    if (text !== pids[name]) wrong.push(text);
  };
  const load = (async () => {
    const startedMs = performance.now();
    for (let sent = 0; !isOver; sent++) {
      const running = one(sent % 2 === 0 ? 'one' : 'two').finally(() => inFlight.delete(running));
      inFlight.add(running);
      await sleep(Math.max(0, startedMs + (sent * 1_000) / RATE - performance.now()));
    }
  })();

  const rounds = async (from: number, to: number) => {
    for (let round = from; round < to; round++) {
      if (round % 10 < INVALID) await writeFile(gateway.configFile, '{"mcpServers": {"one": ');
      else await gateway.configure(fileOf(round));
      await reload(gateway);
    }
    await gateway.configure(fileOf(to * 10));
    await reload(gateway);
    // The processes of replaced upstreams end within the drain deadline.
    await waitUntil(async () => {
      await sleep(100);
      return (await descriptors(gateway.pid)) <= (baseline ?? Infinity) + STREAMS;
    });
  };
  let baseline: number | undefined;
  const warmUp = Math.ceil(RELOADS / 5);
  await rounds(1, warmUp);
  await sleep(2_000);
  baseline = await descriptors(gateway.pid);
  const before = await residentMiB(gateway.pid);
  await rounds(warmUp, RELOADS);
  isOver = true;
  await load;
  await Promise.all(inFlight);

  const after = await residentMiB(gateway.pid);
  t.diagnostic(`${calls} calls, ${baseline} descriptors, ${before.toFixed(0)} MiB before, ${after.toFixed(0)} MiB after`);
  assert.deepEqual(wrong.slice(0, 5), []);
  assert.ok(calls > RELOADS);
  assert.equal(streams.filter(({ isEnded }) => isEnded).length, 0);
  for (const stream of streams) stream.close();
});
