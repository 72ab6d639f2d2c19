import assert from 'node:assert/strict';
import { readdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import type { Pool } from 'undici';
import { readOperatorFile } from '../../src/store/disk/operator-file.ts';
import { BOTH, getEvents, initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { socketsTo } from '../support/swarm-client.ts';
import { waitUntil } from '../support/wait-until.ts';

const QUICK = fileURLToPath(new URL('../fixtures/servers/quick-stdio.sh', import.meta.url));
const PID = fileURLToPath(new URL('../fixtures/servers/label-stdio.ts', import.meta.url));
/** 500 is the number that the requirement names. */
const RELOADS = Number(process.env['LINKSPAN_RELOADS'] ?? 500);
/** Of ten reloads, three are of a file that cannot be used. */
const INVALID = 3;
/** Calls that are made all the time, one after the other in each lane. */
const LANES = 10;
const PAUSE_MS = 50;
const STREAMS = 10;
/** All upstreams of an even round are running. */
const UPSTREAMS = 4;
/** Sockets of the test itself, to the operator's port. */
const SPARE_DESCRIPTORS = 10;
/** The latest log lines and the events of open streams are kept up to a bound, which the warm-up does not reach. */
const SPARE_HEAP_MIB = 6;
const SAMPLES = 5;
const HEAP = fileURLToPath(new URL('../fixtures/heap-on-signal.ts', import.meta.url));
const TIMEOUT = { timeout: 120_000 + RELOADS * 2_000 };

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

/** Returns the middle one of several samples, taken one after the other. */
async function median(sample: () => Promise<number>): Promise<number> {
  const samples: number[] = [];
  for (let n = 0; n < SAMPLES; n++) samples.push(await sample());
  return samples.toSorted((one, other) => one - other)[Math.floor(SAMPLES / 2)] ?? 0;
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

// R14 REL-30
test(`${RELOADS} reloads under load are not noticed by users of untouched upstreams`, TIMEOUT, async (t) => {
  await using gateway = await startGateway(fileOf(0), { env: { NODE_OPTIONS: `--import=${HEAP}` } });
  const reload = await reloaderOf(gateway);
  const url = gateway.endpoint();
  const session = await initialize(url);
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session);
  let lastId = 0;
  const call = async (sockets: Pool, name: string) => {
    const body = rpc(++lastId, 'tools/call', { name, arguments: {} });
    const headers = { 'content-type': 'application/json', accept: BOTH, 'mcp-session-id': session };
    const got = await sockets.request({ method: 'POST', path: new URL(url).pathname, headers, body });
    const [answer] = messagesOf({ status: got.statusCode, headers: got.headers, text: await got.body.text() });
    return JSON.stringify(answer?.result ?? answer?.error);
  };
  const first = socketsTo(gateway.url);
  const pids = { one: await call(first, 'one__pid'), two: await call(first, 'two__pid') };
  await first.close();
  assert.match(pids.one, /\d+/);
  const sessions = await Promise.all(Array.from({ length: STREAMS }, () => initialize(url)));
  const streams = await Promise.all(sessions.map((id) => getEvents(url, id)));

  const wrong: string[] = [];
  let calls = 0;
  const callOne = async (sockets: Pool, name: 'one' | 'two') => {
    const text = await call(sockets, `${name}__pid`).catch(String);
    if (text !== pids[name]) wrong.push(text);
    calls++;
  };
  /** Calls one upstream again and again. */
  const lane = async (sockets: Pool, name: 'one' | 'two', over: AbortSignal) => {
    while (!over.aborted) {
      await callOne(sockets, name);
      await sleep(PAUSE_MS);
    }
  };
  /** Reloads while calls are made. When it resolves, no call and no socket of a call is left. */
  const reloads = async (from: number, to: number) => {
    const sockets = socketsTo(gateway.url);
    const over = new AbortController();
    const lanes = Array.from({ length: LANES }, (_, n) => lane(sockets, n % 2 === 0 ? 'one' : 'two', over.signal));
    try {
      for (let round = from; round < to; round++) {
        const isInvalid = round % 10 < INVALID;
        if (isInvalid) await writeFile(gateway.configFile, '{"mcpServers": {"one": ');
        else await gateway.configure(fileOf(round));
        // However slow the machine is, each reload meets a call of both upstreams.
        const [outcome] = await Promise.all([reload(), callOne(sockets, 'one'), callOne(sockets, 'two')]);
        assert.equal(outcome, isInvalid ? 'rejected' : 'applied', `reload ${round}`);
      }
      await gateway.configure(fileOf(10_000 + to * 2));
      assert.equal(await reload(), 'applied');
    } finally {
      over.abort();
      await Promise.all(lanes);
      await sockets.close();
    }
    await waitUntil(async () => {
      await sleep(50);
      return (await processes(gateway)) === UPSTREAMS;
    });
  };
  const measure = async () => ({
    descriptors: await median(() => descriptors(gateway.pid)),
    heapMiB: await median(() => heapMiB(gateway)),
  });
  const startedMs = performance.now();
  const warmUp = Math.ceil(RELOADS / 5);
  await reloads(1, warmUp);
  const before = await measure();
  await reloads(warmUp, RELOADS);
  const after = await measure();

  const seconds = (performance.now() - startedMs) / 1_000;
  t.diagnostic(
    `${calls} calls in ${seconds.toFixed(0)} s; before ${JSON.stringify(before)}, after ${JSON.stringify(after)}`,
  );
  assert.deepEqual([...new Set(wrong)].slice(0, 5), []);
  assert.equal(streams.filter(({ isEnded }) => isEnded).length, 0);
  assert.ok(after.descriptors <= before.descriptors + SPARE_DESCRIPTORS, `${after.descriptors} descriptors`);
  assert.ok(after.heapMiB <= before.heapMiB + SPARE_HEAP_MIB, `${after.heapMiB} MiB of heap`);
  for (const stream of streams) stream.close();
});
