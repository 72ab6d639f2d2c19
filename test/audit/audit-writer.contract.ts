import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stopTime } from '../support/stopped-time.ts';
import type { AuditSink } from '../../src/audit/audit-sink.ts';
import type { AuditWriter } from '../../src/audit/audit-writer.ts';
import { isChained, NO_MAC, splitLine } from '../../src/audit/chain.ts';
import { waitUntil } from '../support/wait-until.ts';
import { KEY, SETTINGS } from './memory-log.ts';

const OPTIONS = { timeout: 120_000 };
const REFUSED = { code: 'audit-unavailable' };

interface OpenWriter {
  readonly writer: AuditWriter;
  /** The lines of the log. */
  readonly lines: readonly string[];
  /** Closes the writer and the log. */
  readonly close: () => Promise<void>;
}

/** @throws {Error} if lines are not one chain that begins with number 1. */
export function assertChain(lines: readonly string[]): void {
  let previous = NO_MAC;
  for (const [index, line] of lines.entries()) {
    const record = splitLine(line);
    assert.ok(record !== undefined, line);
    assert.equal(record.seq, index + 1);
    assert.ok(isChained(KEY, previous, record), line);
    previous = record.mac;
  }
}

/** The contract of every {@link AuditWriter}, over a sink whose methods a test can replace. */
export function auditWriterContract(
  name: string,
  open: (sink: Partial<AuditSink>, queueBytes: number) => Promise<OpenWriter>,
): void {
  // SEC-44
  test(`${name}: the end writes all records in their order, in one chain`, OPTIONS, async () => {
    const { writer, lines, close } = await open({}, SETTINGS.queueBytes);
    for (let n = 0; n < 1_000; n++) writer.record({ kind: 'request', name: `n${n}` });
    await close();
    assertChain(lines);
    const names = lines.map((line) => JSON.parse(line)).filter(({ kind }) => kind === 'request');
    assert.deepEqual(
      names.map((record) => record.name),
      Array.from({ length: 1_000 }, (_, n) => `n${n}`),
    );
  });

  // SEC-44
  test(`${name}: a call goes on when its record is written, with its number`, OPTIONS, async () => {
    const { writer, lines, close } = await open({}, SETTINGS.queueBytes);
    const numbers = await Promise.all(
      Array.from({ length: 50 }, async (_, n) => {
        const seq = await writer.commit({ kind: 'begun', name: `n${n}` });
        assert.equal(JSON.parse(lines[seq - 1] ?? '').name, `n${n}`);
        return seq;
      }),
    );
    assert.equal(new Set(numbers).size, 50);
    await close();
    assertChain(lines);
  });

  // R22
  test(`${name}: no record of a call is written after the call was refused`, OPTIONS, async () => {
    let isFull = false;
    const written: string[] = [];
    const append = async (text: string): Promise<void> => {
      if (isFull) throw new Error('full');
      written.push(...text.split('\n').slice(0, -1));
    };
    const { writer, close } = await open({ append }, SETTINGS.queueBytes);
    await writer.commit({ kind: 'begun', name: 'first' });
    isFull = true;
    await assert.rejects(writer.commit({ kind: 'begun', name: 'refused' }), REFUSED);
    writer.record({ kind: 'request', name: 'waits' });
    isFull = false;
    await writer.commit({ kind: 'begun', name: 'last' });
    await close();
    assertChain(written);
    const names = written.flatMap((line) => JSON.parse(line).name ?? []);
    assert.deepEqual(new Set(names), new Set(['first', 'last', 'waits']));
    assert.equal(names.length, 3);
    await assert.rejects(writer.commit({ kind: 'begun' }), REFUSED, 'the log is closed');
  });

  // R22
  test(`${name}: a call does not wait for ever for a disk that hangs`, OPTIONS, async (t) => {
    stopTime(t).flow(100);
    const { promise: isWritable, resolve: free } = Promise.withResolvers<void>();
    const written: string[] = [];
    const append = async (text: string): Promise<void> => {
      if (written.length > 0) await isWritable;
      written.push(...text.split('\n').slice(0, -1));
    };
    const { writer, close } = await open({ append }, SETTINGS.queueBytes);
    writer.record({ kind: 'request', name: 'hangs' });
    await assert.rejects(writer.commit({ kind: 'begun', name: 'in the write' }), REFUSED);
    await assert.rejects(writer.commit({ kind: 'begun', name: 'in the queue' }), REFUSED);
    free();
    await close();
    const names = written.map((line) => JSON.parse(line).name);
    assert.deepEqual([names.includes('hangs'), names.includes('in the queue')], [true, false]);
  });

  // R22
  test(`${name}: records beyond the queue are dropped, and a record counts them`, OPTIONS, async () => {
    const { writer, lines, close } = await open({}, 65_536);
    for (let n = 0; n < 5_000; n++) writer.record({ kind: 'request', name: 'x'.repeat(200) });
    // The last record of the process needs room too.
    await waitUntil(() => lines.length > 100);
    await close();
    assertChain(lines);
    const records = lines.map((line) => JSON.parse(line));
    const kept = records.filter(({ kind }) => kind === 'request').length;
    const dropped = records.filter(({ kind }) => kind === 'dropped').reduce((sum, { count }) => sum + count, 0);
    assert.ok(dropped > 2_000, String(dropped));
    assert.equal(kept + dropped, 5_000);
  });
}
