import assert from 'node:assert/strict';
import { readdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { readOperatorFile } from '../../src/store/disk/operator-file.ts';
import { getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const QUICK = fileURLToPath(new URL('../fixtures/servers/quick-stdio.sh', import.meta.url));
const PID = fileURLToPath(new URL('../fixtures/servers/label-stdio.ts', import.meta.url));
/** 500 is the number that the requirement names. */
const RELOADS = Number(process.env['LINKSPAN_RELOADS'] ?? 500);
/** Of ten reloads, three are of a file that cannot be used. */
const INVALID = 3;
const RATE = 200;
/** The fewest calls per reload, on average, that show anything: each reload then meets calls before, during and after it. */
const CALLS_PER_RELOAD = 5;
/** A machine that cannot keep up with the rate gets fewer calls: more in flight would be refused as overload. */
const IN_FLIGHT = 30;
const STREAMS = 10;
/** All upstreams of an even round are running. */
const UPSTREAMS = 4;
/** Sockets of calls that are in flight at the moment. */
const SPARE_DESCRIPTORS = 20;
/** The latest log lines and the events of open streams are kept up to a bound, which the warm-up does not reach. */
const SPARE_HEAP_MIB = 6;
const MEASURES = 10;
/** V8's young generation keeps its pages (docs/sizing.md) and still grows after the warm-up; a leak of 0.5 MiB a reload is found. */
const SPARE_RESIDENT_MIB = 200;
const HEAP = fileURLToPath(new URL('../fixtures/heap-on-signal.ts', import.meta.url));
const TIMEOUT = { timeout: 30_000 + RELOADS * 2_000 };

const KEPT = { command: process.execPath, args: [PID], isolation: 'shared', start: 'eager', env: { LABEL: '' } };

/** Returns an upstream that starts quickly, since most reloads start some. */
function quickServer(label: string): Readonly<Record<string, unknown>> {
  return { command: '/bin/sh', args: [QUICK], isolation: 'shared', start: 'eager', env: { LABEL: label } };
}

function fileOf(round: number): GatewayFile {
  // One upstream changes each time, one comes and goes, and two stay.
  const sometimes = round % 2 === 0 ? { sometimes: quickServer('') } : {};
  const mcpServers = { one: KEPT, two: KEPT, changing: quickServer(String(round)), ...sometimes };
  return { mcpServers, gateway: { reload: { watch: false, drain: '5s' }, limits: { processes: 100 + round } } };
}

/** The number of processes of upstreams, those included that are being stopped. */
async function processes(gateway: RunningGateway): Promise<number> {
  const text = await (await fetch(`${gateway.operatorUrl}/metrics`)).text();
  return Number(/^linkspan_processes (\d+)/m.exec(text)?.[1]);
}

async function descriptors(pid: number): Promise<number> {
  return (await readdir(`/proc/${pid}/fd`)).length;
}

async function residentMiB(pid: number): Promise<number> {
  const status = await readFile(`/proc/${pid}/status`, 'utf8');
  return Number(/VmRSS:\s+(\d+)/.exec(status)?.[1]) / 1_024;
}

/** Returns the size of the gateway's heap after a full collection. */
async function heapMiB(gateway: RunningGateway): Promise<number> {
  const reports = () => [...gateway.logs().matchAll(/^\{"msg":"heap","bytes":(\d+)\}$/gm)];
  const before = reports().length;
  gateway.kill('SIGPWR');
  await waitUntil(async () => {
    await sleep(5);
    return reports().length > before;
  });
  return Number(reports().at(-1)?.[1]) / 2 ** 20;
}

/** Returns a function that reloads the config by the admin API, and returns the outcome. */
async function reloaderOf(gateway: RunningGateway): Promise<() => Promise<unknown>> {
  const operator = await readOperatorFile(join(gateway.dir, 'state'));
  assert.ok(operator !== undefined);
  const authorization = `Bearer ${operator.token}`;
  return async () => {
    const response = await fetch(`${operator.url}/admin/v1/config/reload`, {
      method: 'POST',
      headers: { authorization },
    });
    return Object(await response.json()).outcome;
  };
}

test(`R14 REL-30 ${RELOADS} reloads under load are not noticed by users of untouched upstreams`, TIMEOUT, async (t) => {
  await using gateway = await startGateway(fileOf(0), { env: { NODE_OPTIONS: `--import=${HEAP}` } });
  const reload = await reloaderOf(gateway);
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  let lastId = 0;
  const call = async (name: string) => {
    const got = await post(url, rpc(++lastId, 'tools/call', { name, arguments: {} }), session);
    const [answer] = messagesOf(got);
    return JSON.stringify(answer?.result ?? answer?.error ?? got.text);
  };
  const pids = { one: await call('one__pid'), two: await call('two__pid') };
  assert.match(pids.one, /\d+/);
  const sessions = await Promise.all(Array.from({ length: STREAMS }, () => initialize(url)));
  const streams = await Promise.all(sessions.map((id) => getEvents(url, id)));

  const wrong: string[] = [];
  let calls = 0;
  const over = new AbortController();
  const inFlight = new Set<Promise<void>>();
  const callOne = async (name: 'one' | 'two') => {
    calls++;
    const text = await call(`${name}__pid`).catch(String);
    if (text !== pids[name]) wrong.push(text);
  };
  const load = (async () => {
    const startedMs = performance.now();
    for (let sent = 0; !over.signal.aborted; sent++) {
      const running = callOne(sent % 2 === 0 ? 'one' : 'two').finally(() => inFlight.delete(running));
      inFlight.add(running);
      if (inFlight.size >= IN_FLIGHT) await Promise.race(inFlight);
      await sleep(Math.max(0, startedMs + (sent * 1_000) / RATE - performance.now()));
    }
  })();

  const measure = async () => ({
    descriptors: await descriptors(gateway.pid),
    heapMiB: await heapMiB(gateway),
    residentMiB: await residentMiB(gateway.pid),
  });
  const reloads = async (from: number, to: number) => {
    for (let round = from; round < to; round++) {
      const isInvalid = round % 10 < INVALID;
      if (isInvalid) await writeFile(gateway.configFile, '{"mcpServers": {"one": ');
      else await gateway.configure(fileOf(round));
      assert.equal(await reload(), isInvalid ? 'rejected' : 'applied', `reload ${round}`);
    }
    await gateway.configure(fileOf(10_000 + to * 2));
    assert.equal(await reload(), 'applied');
    await waitUntil(async () => {
      await sleep(50);
      return (await processes(gateway)) === UPSTREAMS;
    });
  };
  const startedMs = performance.now();
  const warmUp = Math.ceil(RELOADS / 5);
  let before;
  let after;
  try {
    await reloads(1, warmUp);
    before = await measure();
    await reloads(warmUp, RELOADS);
    // What a reload has left to the collector, or to a connection that closes later, is no leak.
    for (let n = 0; n < MEASURES; n++) {
      after = await measure();
      if (after.heapMiB <= before.heapMiB + SPARE_HEAP_MIB) break;
      await sleep(1_000);
    }
    assert.ok(after !== undefined);
  } finally {
    over.abort();
    await load;
    await Promise.all(inFlight);
  }

  const seconds = (performance.now() - startedMs) / 1_000;
  t.diagnostic(
    `${calls} calls in ${seconds.toFixed(0)} s; before ${JSON.stringify(before)}, after ${JSON.stringify(after)}`,
  );
  assert.deepEqual([...new Set(wrong)].slice(0, 5), []);
  assert.ok(calls >= CALLS_PER_RELOAD * RELOADS, `${calls} calls`);
  assert.equal(streams.filter(({ isEnded }) => isEnded).length, 0);
  assert.ok(after.descriptors <= before.descriptors + SPARE_DESCRIPTORS, `${after.descriptors} descriptors`);
  assert.ok(after.heapMiB <= before.heapMiB + SPARE_HEAP_MIB, `${after.heapMiB} MiB of heap`);
  assert.ok(after.residentMiB <= before.residentMiB + SPARE_RESIDENT_MIB, `${after.residentMiB} MiB resident`);
  for (const stream of streams) stream.close();
});
