import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { suite, test } from 'node:test';
import { pino } from 'pino';
import { ProcessGuard } from '../../../src/upstream/stdio/process-guard.ts';
import { TAG_NAME } from '../../../src/upstream/stdio/tagged-processes.ts';
import { marker } from '../../support/leftovers.ts';
import { childrenOf, isGone, until } from '../../support/stdio.ts';

const LIMIT = { timeout: 120_000 };
const log = pino({ level: 'silent' });

/** A process group that the tests do not end. */
class Sleeper implements Disposable {
  readonly pid: number;
  readonly #child: ChildProcess;

  constructor() {
    this.#child = spawn('sleep', ['300'], { detached: true, stdio: 'ignore', env: { ...process.env, ...marker() } });
    assert.ok(this.#child.pid !== undefined);
    this.pid = this.#child.pid;
  }

  [Symbol.dispose](): void {
    this.#child.kill('SIGKILL');
  }
}

suite('the process guard', { concurrency: 1 }, () => {
  test('ends the groups that were not removed, and no other', LIMIT, async () => {
    using first = new Sleeper();
    using second = new Sleeper();
    using third = new Sleeper();
    const guard = new ProcessGuard(log);
    for (const { pid } of [first, second, third]) guard.add(pid);
    guard.remove(first.pid);
    guard.remove(third.pid);
    guard.remove(12_345_678);
    await guard[Symbol.asyncDispose]();
    await until(() => isGone(second.pid), 'the second is gone');
    assert.ok(!isGone(first.pid) && !isGone(third.pid));
  });

  test('sends SIGTERM once to a process of a group', LIMIT, async () => {
    const guard = new ProcessGuard(log);
    const env = { ...process.env, ...marker(), [TAG_NAME]: guard.tagged.next('up') };
    const program =
      "process.on('SIGTERM', (signal) => process.stdout.write(signal)); setInterval(() => {}, 1_000); console.log('ready')";
    const child = spawn(process.execPath, ['-e', program], {
      detached: true,
      stdio: ['ignore', 'pipe', 'inherit'],
      env,
    });
    assert.ok(child.pid !== undefined);
    await once(child.stdout, 'data');
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => (output += chunk.toString()));
    guard.add(child.pid);
    await Promise.all([once(child, 'close'), guard[Symbol.asyncDispose]()]);
    assert.deepEqual([output, child.signalCode], ['SIGTERM', 'SIGKILL']);
  });

  test('is started again with all groups after it was killed', LIMIT, async () => {
    const before = childrenOf(process.pid);
    using first = new Sleeper();
    using second = new Sleeper();
    const known = new Set([...before, first.pid, second.pid]);
    const shells = () => childrenOf(process.pid).filter((pid) => !known.has(pid));
    const guard = new ProcessGuard(log);
    guard.add(first.pid);
    const [shell = 0] = shells();
    process.kill(shell, 'SIGKILL');
    await until(() => isGone(shell), 'the guard is gone');
    guard.add(second.pid);
    await until(() => shells().length > 0, 'another is there');
    await guard[Symbol.asyncDispose]();
    await until(() => isGone(first.pid) && isGone(second.pid), 'both are gone');
  });

  test('is not started without a group', LIMIT, async () => {
    const before = childrenOf(process.pid);
    const guard = new ProcessGuard(log);
    guard.remove(12_345_678);
    assert.deepEqual(childrenOf(process.pid), before);
    await guard[Symbol.asyncDispose]();
  });
});
