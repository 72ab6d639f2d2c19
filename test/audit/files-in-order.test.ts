import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { auditKeyOf } from '../../src/audit/chain.ts';
import { headOf } from '../../src/audit/file-sink.ts';
import { filesInOrder } from '../../src/audit/files-in-order.ts';
import { readHead } from '../../src/audit/head.ts';
import { renamedFilesOf } from '../../src/audit/renamed-files.ts';
import { verifyAudit } from '../../src/audit/verify.ts';
import { openTestAudit } from '../support/audit.ts';
import { waitUntil } from '../support/wait-until.ts';

const BOUNDED = { timeout: 120_000 };
const SECRET = Buffer.alloc(32, 7).toString('base64url');
const RECORD = { kind: 'notification', name: 'n'.repeat(200), label: 'l'.repeat(200) } as const;

// SEC-44
test('a log whose file is renamed while earlier ones are verified has no problem', BOUNDED, async () => {
  await using audit = await openTestAudit({ maxBytes: 65_536, maxFiles: 1_000, keys: [SECRET] });
  const { path, trail } = audit;
  const renamed = async () => (await renamedFilesOf(path)).length;
  /** Writes until one more file is renamed. */
  const fill = async (): Promise<void> => {
    const before = await renamed();
    while ((await renamed()) === before) {
      for (let n = 0; n < 50; n++) trail.record(RECORD);
      await trail.commit(RECORD);
    }
  };
  await fill();
  const keys = [auditKeyOf(SECRET)];
  await waitUntil(async () => readHead(keys, await readFile(headOf(path), 'utf8')) !== undefined);
  const head = readHead(keys, await readFile(headOf(path), 'utf8'));
  const files = filesInOrder([path]);
  const first = await files.next();
  await fill();
  async function* rest(): AsyncGenerator<string> {
    yield first.value ?? '';
    yield* files;
  }
  const report = await verifyAudit(rest(), { keys, head, isPart: false });
  assert.deepEqual(report.problems, []);
  assert.deepEqual(report.files, [...(await renamedFilesOf(path)), path]);
});
