import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { suite, test } from 'node:test';
import { pino } from 'pino';
import { ProcessGroup } from '../../../src/upstream/stdio/process-group.ts';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { TAG_NAME } from '../../../src/upstream/stdio/tagged-processes.ts';
import { marker } from '../../support/leftovers.ts';
import { PATIENCE_MS } from '../../support/patience.ts';
import { isGone, until } from '../../support/stdio.ts';

const LIMIT = { timeout: 120_000 };
const log = pino({ level: 'silent' });

/** A shell command that runs a program which takes half a second to save its state after SIGTERM, and tells of each signal. */
const CAREFUL = `'${process.execPath}' -e "${[
  "process.on('SIGTERM', (signal) => process.stdout.write(signal))",
  "process.once('SIGTERM', () => setTimeout(() => process.stdout.write(' saved', () => process.exit()), 500))",
  'setInterval(() => {}, 1_000)',
  'console.log(process.pid)',
].join(';')}"`;

/** Runs a script that prints the pid of a process, in a group of its own. */
async function started(guard: ProcessGuard, script: string) {
  const tag = guard.tagged.next('up');
  const env = { PATH: process.env['PATH'], ...marker(), [TAG_NAME]: tag };
  const child = spawn('/bin/sh', ['-c', script], { detached: true, stdio: ['pipe', 'pipe', 'ignore'], env });
  assert.ok(child.pid !== undefined);
  const group = new ProcessGroup(child, child.pid, tag, guard, log);
  const [output] = await once(child.stdout, 'data');
  return { child, group, leader: child.pid, other: Number(String(output)) };
}

// R11
suite('a process group', { concurrency: 1 }, () => {
  // R11
  test('ends with SIGTERM, together with the processes that the leader has started', LIMIT, async () => {
    await using guard = new ProcessGuard(log);
    const { group, leader, other } = await started(guard, 'sleep 300 & echo $!; wait');
    assert.equal(group.hasExited, false);
    await group.end(0, PATIENCE_MS);
    assert.deepEqual([group.hasExited, isGone(leader), isGone(other)], [true, true, true]);
  });

  for (const [where, script] of [
    ['a process', `exec ${CAREFUL}`],
    ['a process that has left the group', `setsid ${CAREFUL} & read -r line`],
  ] as const) {
    test(`${where} gets SIGTERM once, and has the whole grace`, LIMIT, async () => {
      await using guard = new ProcessGuard(log);
      const { child, group } = await started(guard, script);
      let output = '';
      child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
      child.stdin.end();
      await Promise.all([once(child, 'close'), group.end(200, PATIENCE_MS)]);
      assert.equal(output, 'SIGTERM saved');
    });
  }

  // R11
  test('ends with SIGKILL if it ignores SIGTERM', LIMIT, async () => {
    await using guard = new ProcessGuard(log);
    const script = 'trap "" TERM; sh -c \'trap "" TERM; echo $$; while :; do sleep 1; done\'';
    const { group, leader, other } = await started(guard, script);
    await group.end(0, 50);
    await until(() => isGone(leader) && isGone(other), 'both are gone');
  });

  // R11
  test('ends without a signal if the leader exits within the patience', LIMIT, async () => {
    await using guard = new ProcessGuard(log);
    const { child, group } = await started(guard, 'echo $$; read -r line; exit 7');
    child.stdin.end('go\n');
    await group.end(PATIENCE_MS, 0);
    assert.deepEqual([child.exitCode, child.signalCode], [7, null]);
    group.kill();
  });
});
