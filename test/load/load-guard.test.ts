import assert from 'node:assert/strict';
import { setImmediate as turn } from 'node:timers/promises';
import { test } from 'node:test';
import { pino } from 'pino';
import type { OverloadConfig } from '../../src/config/values/config.ts';
import { LoadGuard } from '../../src/load/load-guard.ts';
import { MemoryMeter } from '../../src/load/memory-meter.ts';
import { collect } from '../support/used-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const BUSY_MS = 40; // subject

/** A guard of the loop of this process, and what it has done. */
function guarded(overload: OverloadConfig, inFlight: number) {
  const lines: string[] = [];
  const done = { shed: [] as string[], caches: 0, readers: 0 };
  const state = { used: 0, inFlight };
  const guard = new LoadGuard({
    settings: () => ({ overload }),
    inFlight: () => state.inFlight,
    dropCaches: () => done.caches++,
    closeReaders: () => done.readers++,
    onShed: (reason) => done.shed.push(reason),
    log: pino({ level: 'info' }, { write: (line: string) => lines.push(line) }),
    meter: { usedShare: () => state.used, [Symbol.dispose]: () => undefined },
  });
  return { guard, lines, done, state, [Symbol.dispose]: () => guard[Symbol.dispose]() };
}

/** Keeps the loop busy for a while, and lets it turn once. */
async function beBusy(): Promise<void> {
  const untilMs = performance.now() + BUSY_MS;
  while (performance.now() < untilMs);
  await turn();
}

// R19
test('a busy loop refuses calls in words, and accepts them again when it is free', TIMEOUT, async () => {
  using at = guarded({ loopDelayMs: 10, memory: 'none' }, 1_000);
  assert.equal(at.guard.isHigh, false);
  let refusal = at.guard.refusalOf('call');
  await waitUntil(async () => {
    await beBusy();
    refusal = at.guard.isHigh ? at.guard.refusalOf('call') : undefined;
    return refusal !== undefined;
  });
  assert.match(refusal?.error.message ?? '', /more requests than it can serve in time.*Wait 2 s or more/);
  assert.deepEqual(refusal?.error.detail.data, { retryAfterMs: 2_000, reason: 'loop-delay' });
  assert.deepEqual(new Set(at.done.shed), new Set(['loop-delay']));
  assert.match(at.guard.reasons.join(), /refuses new requests while \d+ or more are in flight: /);
  // The requests have ended: a loop that is late for other reasons does not matter then.
  at.state.inFlight = 0;
  await waitUntil(() => !at.guard.isHigh);
  const messages = at.lines.map((line) => String(JSON.parse(line).msg));
  assert.deepEqual(messages, ['overloaded: new requests are refused', 'new requests are accepted again']);
});

test('a busy loop refuses nothing if the config says so', TIMEOUT, async () => {
  using at = guarded({ loopDelayMs: 'off', memory: 'none' }, 1_000);
  for (let n = 0; n < 30; n++) await beBusy();
  assert.ok(at.guard.delayMs > 0);
  assert.equal(at.guard.isHigh, false);
});

// R20
test('measures of memory are repeated while there is too little', TIMEOUT, async () => {
  using at = guarded({ loopDelayMs: 'off', memory: 'none' }, 1_000);
  at.state.used = 0.97;
  await waitUntil(() => at.done.caches > 1 && at.done.readers > 1);
  assert.match(at.guard.refusalOf('stream')?.error.message ?? '', /hardly any memory left.*Wait 5 s/);
  at.state.used = 0.5;
  await waitUntil(() => !at.guard.isHigh);
});

// R20
test('garbage does not count as used heap, and what is in use does', TIMEOUT, async () => {
  using meter = new MemoryMeter();
  const shareAfter = async (before: number) => {
    await waitUntil(async () => {
      collect();
      return meter.usedShare('none') !== before;
    });
    return meter.usedShare('none');
  };
  const first = await shareAfter(0);
  const kept = Array.from({ length: 64 }, () => Array.from({ length: 131_072 }, (_, n) => n + 0.5));
  const full = await shareAfter(first);
  assert.ok(full > first, `${first} ${full}`);
  assert.equal(kept.length, 64);
});
