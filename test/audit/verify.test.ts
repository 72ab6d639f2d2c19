import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { test } from 'node:test';
import { auditKeyOf } from '../../src/audit/chain.ts';
import { headOf } from '../../src/audit/file-sink.ts';
import { readHead } from '../../src/audit/head.ts';
import { verifyAudit } from '../../src/audit/verify.ts';
import { openTestAudit } from '../support/audit.ts';

const BOUNDED = { timeout: 60_000 };
const SECRET = Buffer.alloc(32, 7).toString('base64url');
const UNKNOWN = '\u{fffd}';

// SEC-44
test('bytes that are read as the same text are a change', BOUNDED, async () => {
  await using audit = await openTestAudit({ keys: [SECRET] });
  await audit.trail.commit({ kind: 'begun', name: UNKNOWN, label: 'ü' });
  await audit.trail.close();
  const keys = [auditKeyOf(SECRET)];
  const head = readHead(keys, await readFile(headOf(audit.path), 'utf8'));
  const problems = async () => {
    const report = await verifyAudit([audit.path], { keys, head, isPart: false });
    return report.problems.map(({ line, message }) => `${line}: ${message}`);
  };
  assert.deepEqual(await problems(), []);
  const bytes = await readFile(audit.path);
  const at = bytes.indexOf(UNKNOWN);
  const [before, after] = [bytes.subarray(0, at), bytes.subarray(at + Buffer.byteLength(UNKNOWN))];
  const otherUnknown = Buffer.concat([before, Buffer.of(0xff), after]);
  for (const changed of [otherUnknown, Buffer.from(bytes.toString('utf8'), 'latin1')]) {
    await writeFile(audit.path, changed);
    assert.equal((await problems())[0], '2: this line is no record');
  }
});
