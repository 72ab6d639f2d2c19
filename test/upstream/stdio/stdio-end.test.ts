import assert from 'node:assert/strict';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { RawObject } from '../../../src/json/json.ts';
import { Child } from '../../support/child.ts';
import { childrenOf, isGone, Stdio, until } from '../../support/stdio.ts';
import { stopTime } from '../../support/stopped-time.ts';

const LIMIT = { timeout: 120_000 };
const SERVERS = join(import.meta.dirname, '../../fixtures/servers');

async function pidOf(stdio: Stdio): Promise<number> {
  return Number((await stdio.call('pid')).raw('pid'));
}

/** The ids of the stubborn server and of its child. */
async function stubbornPids(stdio: Stdio): Promise<number[]> {
  await until(() => stdio.messages.length > 0, 'the server says who it is');
  const [message] = stdio.messages;
  const params = message?.kind === 'notification' ? message.params : undefined;
  return toPids((params ?? RawObject.EMPTY).value('pids'));
}

function toPids(value: unknown): number[] {
  assert.ok(Array.isArray(value));
  return value.map(Number);
}

suite('the end of a process', { concurrency: 1 }, () => {
  // T-041
  test('close() ends stdin, and earlier requests are still answered', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await pidOf(stdio);
    const last = stdio.send('echo');
    await stdio.transport.close();
    assert.notEqual(stdio.answer(last), undefined);
    assert.ok(isGone(pid));

    assert.equal((await stdio.closed).code, 'upstream-lost');
    await stdio.transport.close();
    assert.equal(stdio.closings, 1);
    assert.equal(stdio.order.at(-1), 'closed');
  });

  test('a request sent after close() fails with executed no', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.server('stdio-echo.ts');
    const closing = stdio.transport.close();
    const late = stdio.send('echo');
    await closing;
    assert.equal(stdio.failed.get(late)?.detail.executed, 'no');
    const later = stdio.send('echo');
    assert.equal(stdio.failed.get(later)?.detail.executed, 'no');
  });

  // T-041 N-30
  test('a server that ignores SIGTERM is killed, with its children in any session', LIMIT, async (t) => {
    stopTime(t).flow(10);
    await using stdio = await Stdio.server('stdio-stubborn.ts');
    const pids = await stubbornPids(stdio);
    assert.equal(pids.length, 3);
    await stdio.transport.close();
    await until(() => pids.every(isGone), 'all are gone');
  });

  test('a process stopped by a signal can be closed', LIMIT, async (t) => {
    stopTime(t).flow(10);
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await pidOf(stdio);
    process.kill(pid, 'SIGSTOP');
    stdio.send('echo', { text: 'x'.repeat(2_000_000) });
    const waiting = stdio.send('echo');
    await stdio.transport.close();
    await until(() => isGone(pid), 'it is gone');
    assert.equal(stdio.failed.get(waiting)?.detail.executed, 'no');
  });

  // REL-09
  test('an exit is reported with its code, and to operators with its last line', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.server('stdio-echo.ts');
    stdio.send('complain', { text: 'starting\n\u001B[31mcannot read /home/me/secret\u0007\u001B[0m' });
    stdio.send('exit', { code: 3 });
    const error = await stdio.closed;
    assert.equal(error.code, 'upstream-lost');
    assert.equal(error.row.executed, 'unknown');
    assert.match(error.message, /exited with code 3$/);
    assert.ok(error.cause instanceof Error);
    assert.equal(error.cause.message, 'last line on stderr: cannot read /home/me/secret\\u0007');
  });

  test('an exit before the first message is reported as such', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.start('/bin/sh', ['-c', 'echo "no such module" >&2; exit 1']);
    const error = await stdio.closed;
    assert.match(error.message, /exited with code 1 before it answered$/);
    assert.ok(error.cause instanceof Error);
    assert.match(error.cause.message, /no such module$/);
  });

  // REL-09
  test('a kill is reported with its signal; unwritten requests have executed no', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.server('stdio-echo.ts');
    const pid = await pidOf(stdio);
    process.kill(pid, 'SIGSTOP');
    const written = stdio.send('echo', { text: 'x'.repeat(900_000) });
    await new Promise((resolve) => setImmediate(resolve));
    const waiting = stdio.send('echo');
    process.kill(pid, 'SIGKILL');
    const error = await stdio.closed;
    assert.match(error.message, /was killed by SIGKILL$/);
    assert.deepEqual([...stdio.failed.keys()], [waiting]);
    assert.equal(stdio.failed.get(waiting)?.detail.executed, 'no');
    assert.equal(stdio.failed.has(written), false);
    assert.equal(stdio.order.at(-1), 'closed');
  });

  test('the last lines before an exit are read while a grandchild keeps the pipe open', LIMIT, async (t) => {
    stopTime(t).flow(2);
    const line = '{"jsonrpc":"2.0","method":"notifications/pids","params":{"pids":[\'$!\']}}';
    await using stdio = await Stdio.start('/bin/sh', ['-c', `sleep 300 & echo '${line}'; exit 0`]);
    const error = await stdio.closed;
    assert.match(error.message, /exited with code 0$/);
    const [pid = 0] = await stubbornPids(stdio);
    await stdio.transport.close();
    await until(() => isGone(pid), 'it is gone');
  });

  test('a process that closes its stdin is ended, and the next request has executed no', LIMIT, async (t) => {
    stopTime(t).flow(2);
    const hello = '{"jsonrpc":"2.0","method":"notifications/hello"}';
    await using stdio = await Stdio.start('/bin/sh', ['-c', `exec 0<&-; echo '${hello}'; sleep 300; :`]);
    await until(() => stdio.messages.length > 0, 'it has closed its stdin');
    const first = stdio.send('echo');
    const error = await stdio.closed;
    assert.match(error.message, /closed its input while it was running/);
    assert.equal(stdio.failed.get(first)?.code, 'upstream-lost');
    assert.equal(stdio.failed.get(first)?.detail.executed, 'no');
  });

  // N-05
  test('a request that meets the broken pipe first fails with the exit', LIMIT, async (t) => {
    stopTime(t).flow(2);
    const hello = '{"jsonrpc":"2.0","method":"notifications/hello"}';
    await using stdio = await Stdio.start('/bin/sh', ['-c', `exec 0<&-; echo '${hello}'; sleep 0.05; exit 3`]);
    await until(() => stdio.messages.length > 0, 'it has closed its stdin');
    const first = stdio.send('echo');
    await stdio.closed;
    assert.match(
      stdio.failed.get(first)?.message ?? '',
      /lost: the process of upstream "[^"]*" exited with code 3; the request was not sent, try again$/,
    );
    assert.equal(stdio.failed.get(first)?.detail.executed, 'no');
  });

  test('a process that closes its stdout is ended', LIMIT, async (t) => {
    stopTime(t).flow(2);
    await using stdio = await Stdio.start('/bin/sh', ['-c', 'exec 1>&-; sleep 300; :']);
    const error = await stdio.closed;
    assert.match(error.message, /closed its output while it was running/);
  });

  test('many closed processes leave no process behind', LIMIT, async () => {
    const before = childrenOf(process.pid);
    {
      await using first = await Stdio.server('stdio-echo.ts');
      await using second = await Stdio.start('/bin/sh', ['-c', 'cat & exec cat']);
      await first.call('echo');
      assert.equal(second.closings, 0);
      assert.ok(childrenOf(process.pid).length > before.length);
    }
    // The guards have ended too, because each was disposed.
    await until(() => childrenOf(process.pid).join() === before.join(), 'none is left');
  });

  test('after SIGKILL of the gateway, the process and its children end', LIMIT, async () => {
    await using gateway = await Child.start(process.execPath, [join(SERVERS, 'stdio-gateway.ts')]);
    const pids = await gateway.waitForLine((line) => (line.startsWith('[') ? toPids(JSON.parse(line)) : undefined));
    assert.equal(pids.length, 3);
    const guards = childrenOf(gateway.pid).filter((pid) => !pids.includes(pid));
    assert.equal(guards.length, 1);
    gateway.kill('SIGKILL');
    await until(() => [...pids, ...guards].every(isGone), 'all are gone');
  });
});
