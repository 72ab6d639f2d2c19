import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS, type LimitName } from '../../../src/limits.ts';
import { Stdio, until } from '../../support/stdio.ts';

// N-27
test('an answer that exceeds a bound fails its request and is counted', { timeout: 120_000 }, async () => {
  const deep = `${'['.repeat(LIMITS.jsonDepth + 1)}${']'.repeat(LIMITS.jsonDepth + 1)}`;
  const script = `read -r line; echo '{"jsonrpc":"2.0","id":1,"result":{"a":${deep}}}'; read -r line; :`;
  const limits: LimitName[] = [];
  await using stdio = await Stdio.start('/bin/sh', ['-c', script], { onLimit: (limit) => limits.push(limit) });
  assert.equal(stdio.send('ping'), 1);
  await until(() => stdio.failed.has(1), 'the request has failed');
  assert.equal(stdio.failed.get(1)?.code, 'upstream-protocol');
  assert.deepEqual(limits, ['jsonDepth']);
});
