import assert from 'node:assert/strict';
import { randomBytes } from 'node:crypto';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { AuditLog, type AuditLogSettings } from '../../src/audit/audit-log.ts';
import { auditKeyOf } from '../../src/audit/chain.ts';
import { readHead } from '../../src/audit/head.ts';
import { OtlpSink } from '../../src/audit/otlp-sink.ts';
import { type AuditReport, verifyAudit } from '../../src/audit/verify.ts';
import type { AuditOtlpConfig } from '../../src/config/values/config.ts';
import { makeCertificate } from '../support/certificate.ts';
import { auditLinesOf, type LogReceiver, startLogReceiver } from '../support/log-receiver.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const KEY = auditKeyOf(randomBytes(32).toString('base64url'));
const SETTINGS: AuditLogSettings = { sync: 'second', queueBytes: 1_048_576, recordBytes: 16_384 };
const BOUNDED = { timeout: 120_000 };
const RESOURCE = { 'service.name': 'linkspan', 'host.name': 'test' };
const UNAVAILABLE = { code: 'audit-unavailable' };

interface Opened {
  readonly log: AuditLog;
  readonly errors: unknown[];
  readonly counts: { dropped: number; failed: number; lost: number };
}

interface Options {
  readonly settings?: Partial<AuditLogSettings>;
  readonly maxBytes?: number;
  readonly receiver?: Partial<AuditOtlpConfig>;
}

async function folder(t: TestContext): Promise<string> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-audit-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  return dir;
}

async function open(dir: string, url: string, { settings, maxBytes, receiver }: Options = {}): Promise<Opened> {
  const counts = { dropped: 0, failed: 0, lost: 0 };
  const errors: unknown[] = [];
  const sink = await OtlpSink.open(dir, [KEY], {
    receiver: { endpoint: `${url}/v1/logs`, headers: {}, tls: undefined, ...receiver },
    egress: undefined,
    resource: RESOURCE,
    maxBytes: maxBytes ?? 1_048_576,
  });
  const log = await AuditLog.open({
    sink,
    key: KEY,
    settings: { ...SETTINGS, ...settings },
    process: { host: 'test' },
    events: {
      onWritten: () => undefined,
      onDropped: () => counts.dropped++,
      onFailed: () => counts.failed++,
      onFailing: (error) => errors.push(error),
      onRecovered: () => undefined,
      onLost: (count) => (counts.lost += count),
      onReplaced: () => undefined,
    },
  });
  return { log, errors, counts };
}

/** Verifies what a receiver has, with the head of the state directory. */
async function verify(dir: string, lines: readonly string[], isPart = false): Promise<AuditReport> {
  const file = join(dir, 'received.log');
  await writeFile(file, lines.map((line) => `${line}\n`).join(''));
  const head = readHead([KEY], await readFile(join(dir, 'audit-otlp.head'), 'utf8'));
  assert.ok(head !== undefined);
  return await verifyAudit([file], { keys: [KEY], head, isPart });
}

function namesIn({ logs }: LogReceiver): unknown[] {
  return auditLinesOf(logs).map((line) => JSON.parse(line).name ?? JSON.parse(line).kind);
}

test('records arrive as they were chained, and are verified over two lives', BOUNDED, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  const headers = { authorization: 'Bearer secret' };
  const traceId = '0af7651916cd43dd8448eb211c80319c';
  for (const name of ['a', 'b']) {
    const { log } = await open(dir, receiver.url, { receiver: { headers } });
    assert.equal(await log.commit({ kind: 'begun', name, traceId }), log.seq);
    log.record({ kind: 'request', name: 'in the queue' });
    await log.close();
  }
  assert.deepEqual(namesIn(receiver), [
    'started',
    'a',
    'in the queue',
    'stopped',
    'started',
    'b',
    'in the queue',
    'stopped',
  ]);
  const [, a] = receiver.logs;
  const { mac, seq } = JSON.parse(a?.body ?? '');
  assert.deepEqual(a?.attributes, {
    'linkspan.audit.seq': '2',
    'linkspan.audit.kind': 'begun',
    'linkspan.audit.mac': mac,
  });
  assert.deepEqual([a.eventName, a.traceId, seq], ['linkspan.audit.begun', traceId, 2]);
  assert.deepEqual(a.resource, RESOURCE);
  assert.ok(
    receiver.requests.every(({ path, headers: sent }) => path === '/v1/logs' && sent.authorization === 'Bearer secret'),
  );
  assert.ok(receiver.requests.every(({ headers: sent }) => sent['content-type'] === 'application/json'));
  const lines = auditLinesOf(receiver.logs);
  const report = await verify(dir, lines);
  assert.deepEqual([report.problems, report.records, report.starts], [[], 8, 2]);
  const wrong = [lines.with(1, (lines[1] ?? '').replace('"a"', '"x"')), lines.toSpliced(2, 1), lines.slice(0, -1)];
  for (const tampered of wrong) assert.notEqual((await verify(dir, tampered)).problemCount, 0);
});

test('a receiver that is away refuses calls, and gets the records when it is back', BOUNDED, async (t) => {
  const dir = await folder(t);
  const first = await startLogReceiver();
  const { log, errors } = await open(dir, first.url);
  await first[Symbol.asyncDispose]();
  log.record({ kind: 'request', name: 'waits' });
  await assert.rejects(log.commit({ kind: 'begun', name: 'refused' }), UNAVAILABLE);
  assert.ok(log.isFailing && errors.length === 1);
  await using second = await startLogReceiver(first.port);
  await waitUntil(() => !log.isFailing);
  await log.commit({ kind: 'begun', name: 'goes on' });
  await log.close();
  second.logs.unshift(...first.logs);
  assert.deepEqual(namesIn(second), ['started', 'waits', 'goes on', 'stopped']);
  assert.deepEqual((await verify(dir, auditLinesOf(second.logs))).problems, []);
});

/** Time passes five times as fast, and the disk still has two seconds for the end of a log. */
const HASTE_MS = 10; // subject

for (const react of ['lose', 'hang', 'reject', 503] as const) {
  test(`records of an export that may have arrived keep their numbers: ${react}`, BOUNDED, async (t) => {
    const dir = await folder(t);
    await using receiver = await startLogReceiver();
    const { log } = await open(dir, receiver.url);
    receiver.react = react;
    if (react === 'hang') stopTime(t).flow(HASTE_MS);
    // The commit may be refused before the second request is seen.
    const refused = assert.rejects(log.commit({ kind: 'begun', name: 'in doubt' }), UNAVAILABLE);
    await waitUntil(() => receiver.requests.length === 2);
    log.record({ kind: 'request', name: 'later' });
    await refused;
    receiver.react = 'accept';
    await waitUntil(() => namesIn(receiver).includes('later'));
    await log.close();
    assert.deepEqual(namesIn(receiver), ['started', 'in doubt', 'later', 'stopped']);
    const lines = auditLinesOf(receiver.logs);
    assert.deepEqual((await verify(dir, lines)).problems, []);
    assert.deepEqual((await verify(dir, lines)).unended, [2]);
  });
}

for (const react of [401, 413, 429]) {
  test(`records of a refused export are chained anew: HTTP ${react}`, BOUNDED, async (t) => {
    const dir = await folder(t);
    await using receiver = await startLogReceiver();
    const { log, errors } = await open(dir, receiver.url);
    receiver.react = react;
    log.record({ kind: 'request', name: 'waits' });
    await assert.rejects(log.commit({ kind: 'begun', name: 'refused' }), UNAVAILABLE);
    assert.match(String(errors[0]), new RegExp(`HTTP ${react}`));
    receiver.react = 'accept';
    await waitUntil(() => !log.isFailing);
    await log.close();
    assert.deepEqual(namesIn(receiver), ['started', 'waits', 'stopped']);
    assert.deepEqual((await verify(dir, auditLinesOf(receiver.logs))).problems, []);
  });
}

for (const react of [503, 429]) {
  test(`records that wait have a bound, also those in doubt: HTTP ${react}`, BOUNDED, async (t) => {
    const dir = await folder(t);
    await using receiver = await startLogReceiver();
    const queueBytes = 65_536;
    const { log, counts } = await open(dir, receiver.url, { settings: { queueBytes } });
    receiver.react = react;
    const name = 'x'.repeat(200);
    for (let i = 0; i < 300; i++) log.record({ kind: 'request', name });
    await waitUntil(() => counts.failed > 0);
    for (let i = 0; i < 300; i++) log.record({ kind: 'request', name });
    assert.ok(log.queuedBytes <= queueBytes && log.queuedBytes > queueBytes - 500, String(log.queuedBytes));
    await assert.rejects(log.commit({ kind: 'begun', name }), UNAVAILABLE);
    receiver.react = 'accept';
    await waitUntil(() => !log.isFailing && log.queuedBytes === 0);
    await log.close();
    const lines = auditLinesOf(receiver.logs);
    const report = await verify(dir, lines);
    assert.deepEqual([report.problems, report.dropped], [[], counts.dropped]);
    assert.equal(lines.filter((line) => JSON.parse(line).kind === 'request').length, 600 - counts.dropped);
  });
}

for (const react of ['hang', 503] as const) {
  test(`a life that ends while records are in doubt is no forgery: ${react}`, BOUNDED, async (t) => {
    const dir = await folder(t);
    await using receiver = await startLogReceiver();
    const first = await open(dir, receiver.url);
    await first.log.commit({ kind: 'begun', name: 'arrives' });
    receiver.react = react;
    stopTime(t).flow(HASTE_MS);
    first.log.record({ kind: 'request', name: 'in doubt' });
    await waitUntil(() => receiver.requests.length === 3);
    await first.log.close();
    assert.ok(first.counts.lost > 0);
    receiver.react = 'accept';
    const hasArrived = react === 'hang';
    assert.deepEqual((await verify(dir, auditLinesOf(receiver.logs))).problems, []);
    const second = await open(dir, receiver.url);
    await second.log.close();
    const lines = auditLinesOf(receiver.logs);
    const report = await verify(dir, lines);
    assert.deepEqual([report.problems, report.dropped > 0], [[], !hasArrived]);
    // Only the records of that moment may be missing.
    const without = lines.filter((line) => JSON.parse(line).name !== 'arrives');
    assert.notEqual((await verify(dir, without)).problemCount, 0);
  });
}

test('a log can be verified from a later record on, if earlier ones are gone', BOUNDED, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  const { log } = await open(dir, receiver.url, { maxBytes: 2_000 });
  for (let i = 0; i < 40; i++) await log.commit({ kind: 'begun', name: `call-${i}` });
  await log.close();
  const lines = auditLinesOf(receiver.logs);
  assert.deepEqual((await verify(dir, lines)).problems, []);
  const at = lines.findLastIndex((line) => JSON.parse(line).kind === 'rotated');
  assert.ok(at > 20);
  assert.deepEqual((await verify(dir, lines.slice(at), true)).problems, []);
});

test('a receiver with a certificate of its own authority is trusted only with it', BOUNDED, async (t) => {
  const dir = await folder(t);
  await using certificate = await makeCertificate();
  await using receiver = await startLogReceiver(0, certificate);
  const stranger = await open(dir, receiver.url);
  await assert.rejects(stranger.log.commit({ kind: 'begun' }), UNAVAILABLE);
  await stopTime(t).passUntil(stranger.log.close(), HASTE_MS);
  assert.equal(receiver.requests.length, 0);
  const tls = { ca: certificate.cert, cert: undefined, key: undefined };
  const { log } = await open(dir, receiver.url, { receiver: { tls } });
  await log.commit({ kind: 'begun', name: 'over TLS' });
  await log.close();
  assert.ok(namesIn(receiver).includes('over TLS'));
  assert.deepEqual((await verify(dir, auditLinesOf(receiver.logs))).problems, []);
});

test('one process at a time sends the records of a state directory', BOUNDED, async (t) => {
  const dir = await folder(t);
  await using receiver = await startLogReceiver();
  const { log } = await open(dir, receiver.url);
  await assert.rejects(
    open(dir, receiver.url),
    /another process with the state directory .* writes an audit log to otlp/,
  );
  await log.close();
});
