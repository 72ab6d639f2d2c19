import assert from 'node:assert/strict';
import { test } from 'node:test';
import { COMMIT_MS } from '../../src/audit/audit-log.ts';
import { AUDIT, monotonicMs, serveAudit } from '../../src/audit/audit-pipe.ts';
import { PipedAuditLog } from '../../src/audit/piped-audit-log.ts';
import { pipePair } from '../store/piped/pipe-pair.ts';
import { stopTime } from '../support/stopped-time.ts';
import { PATIENCE_MS } from '../support/patience.ts';
import { waitUntil } from '../support/wait-until.ts';
import { assertChain, auditWriterContract } from './audit-writer.contract.ts';
import { type MemoryLog, memoryLog, SETTINGS } from './memory-log.ts';

const OPTIONS = { timeout: 120_000 };
const REFUSED = { code: 'audit-unavailable' };

/** A worker of the process that has a log, and the end of the pipe in that process. */
function workerOf({ log }: Pick<MemoryLog, 'log'>, queueBytes = SETTINGS.queueBytes) {
  const { one, other, close } = pipePair();
  serveAudit(one, log);
  const lost: number[] = [];
  const onLost = (count: number) => void lost.push(count);
  const writer = new PipedAuditLog({ calls: other, queueBytes, recordBytes: SETTINGS.recordBytes, onLost });
  return { writer, calls: other, lost, endPipe: close };
}

auditWriterContract('piped', async (sink, queueBytes) => {
  const parent = await memoryLog(sink);
  const { writer } = workerOf(parent, queueBytes);
  const close = async () => {
    await writer.close();
    await parent.log.close();
  };
  return { writer, lines: parent.lines, close };
});

// SEC-44
test('the records of several workers and their parent are one chain', OPTIONS, async () => {
  const parent = await memoryLog({});
  const writers = [parent.log, workerOf(parent).writer, workerOf(parent).writer];
  const numbers = await Promise.all(
    writers.map(async (writer, worker) => {
      const committed: number[] = [];
      for (let n = 0; n < 100; n++) {
        writer.record({ kind: 'request', name: `${worker}:${n}` });
        committed.push(await writer.commit({ kind: 'begun', name: `${worker}` }));
      }
      return committed;
    }),
  );
  for (const writer of writers.toReversed()) await writer.close();
  assertChain(parent.lines);
  assert.equal(new Set(numbers.flat()).size, 300);
  for (const worker of writers.keys()) {
    const own = parent.lines.map((line) => JSON.parse(line)).filter(({ name }) => name?.startsWith(`${worker}:`));
    assert.deepEqual(
      own.map(({ name }) => name),
      Array.from({ length: 100 }, (_, n) => `${worker}:${n}`),
      'in the order of each worker',
    );
  }
});

test('an answer that came while the worker stood still is read before the refusal', OPTIONS, async (t) => {
  const time = stopTime(t);
  const { one, other: calls, close } = pipePair();
  const asked = Promise.withResolvers<void>();
  const answer = Promise.withResolvers<number[]>();
  one.serve(AUDIT.commit, () => {
    asked.resolve();
    return answer.promise;
  });
  const writer = new PipedAuditLog({ calls, queueBytes: 4_096, recordBytes: 4_096, onLost: () => undefined });
  const committing = writer.commit({ kind: 'begun' });
  await asked.promise;
  time.pass(COMMIT_MS);
  answer.resolve([7]);
  assert.equal(await committing, 7);
  close();
});

// R22
test('calls are refused at once when the process with the log has gone', OPTIONS, async () => {
  const parent = await memoryLog({});
  const { writer, endPipe, lost } = workerOf(parent);
  await writer.commit({ kind: 'begun', name: 'written' });
  endPipe();
  await assert.rejects(writer.commit({ kind: 'begun', name: 'refused' }), REFUSED);
  writer.record({ kind: 'request' });
  await writer.close();
  assert.deepEqual(lost, [1]);
  await parent.log.close();
  assert.ok(!parent.lines.join().includes('refused'));
});

// R22
test('calls are refused if no process answers, and their records take up room', OPTIONS, async () => {
  const { one, other: calls, close } = pipePair();
  one.serve(AUDIT.commit, () => Promise.withResolvers<number[]>().promise);
  const onLost = () => undefined;
  const writer = new PipedAuditLog({ calls, queueBytes: 4_096, recordBytes: 4_096, onLost });
  const name = 'x'.repeat(200);
  const ends = await Promise.allSettled(Array.from({ length: 30 }, () => writer.commit({ kind: 'begun', name })));
  assert.ok(ends.every(({ status }) => status === 'rejected'));
  assert.ok(writer.queuedBytes > 3_000, 'they are still on their way');
  await assert.rejects(writer.commit({ kind: 'begun', name }), REFUSED, 'no room');
  close();
});

// R22
test('a record that comes after its call was refused is not written', OPTIONS, async () => {
  const parent = await memoryLog({});
  const { calls } = workerOf(parent);
  const texts = ['"time":"2026-11-23T00:00:00.000Z","kind":"begun"'];
  assert.deepEqual(await calls.call(AUDIT.commit, { texts, untilMs: monotonicMs() - 1 }), [null]);
  assert.deepEqual(await calls.call(AUDIT.commit, { texts, untilMs: monotonicMs() + PATIENCE_MS }), [2]);
  await parent.log.close();
  assert.equal(parent.lines.length, 3);
});

// SEC-44
test('a worker can add no second record in the text of one', OPTIONS, async () => {
  const parent = await memoryLog({});
  const { calls } = workerOf(parent);
  for (const text of ['"time":"t"\n{"seq":9', '"kind":"stopped"', '', '"time":"t"\r']) {
    await assert.rejects(calls.call(AUDIT.add, { texts: [text], dropped: 0 }), /invalid_format/, text);
  }
  await parent.log.close();
  assert.equal(parent.lines.length, 2);
});

test('records that the other process refuses to take are counted as dropped', OPTIONS, async () => {
  const parent = await memoryLog({});
  const { one, other } = pipePair();
  let isRefusing = true;
  let refused = 0;
  const log = {
    addText: (text: string) => {
      if (isRefusing) {
        refused++;
        throw new Error('not now');
      }
      parent.log.addText(text);
    },
    commitText: (text: string, waitMs?: number) => parent.log.commitText(text, waitMs),
    drop: (count: number) => parent.log.drop(count),
  };
  serveAudit(one, log);
  const parts = { calls: other, queueBytes: SETTINGS.queueBytes, recordBytes: SETTINGS.recordBytes };
  const writer = new PipedAuditLog({ ...parts, onLost: () => undefined });
  writer.record({ kind: 'request' });
  await waitUntil(() => refused === 1 && writer.queuedBytes === 0);
  isRefusing = false;
  writer.record({ kind: 'session' });
  await writer.close();
  await parent.log.close();
  const kinds = parent.lines.map((line) => JSON.parse(line).kind);
  assert.deepEqual(new Set(kinds), new Set(['dropped', 'session', 'started', 'stopped']));
  assert.equal(kinds.length, 4);
});
