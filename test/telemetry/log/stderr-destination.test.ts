import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { closeSync, constants, openSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';

const TIMEOUT = { timeout: 60_000 };
const LOG = new URL('../../../src/telemetry/log.ts', import.meta.url).href;

/** The bytes that a pipe and the readers at its end hold. */
const PIPE_BYTES = 2_097_152;

/** A process that logs 16 MiB at once, and says on stdout how many lines are lost. Its stderr is not read before `resume`. */
function startWriter(format: string, script: string) {
  const program = `const { createLogger, droppedLinesOf } = await import(${JSON.stringify(LOG)});
    const log = createLogger('info', undefined, { format: ${JSON.stringify(format)} });
    for (let i = 0; i < 16_384; i++) log.info({ text: 'x'.repeat(200), more: 'y'.repeat(200), rest: ['z'.repeat(200), 'z'.repeat(200), 'z'.repeat(200)] }, 'line');
    ${script}`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['pipe', 'pipe', 'pipe'] });
  child.stderr.pause();
  const printed = createInterface({ input: child.stdout })[Symbol.asyncIterator]();
  return { child, printed: async () => String((await printed.next()).value), exit: once(child, 'exit') };
}

for (const format of ['json', 'pretty']) {
  // N-70
  test(`limit logBufferBytes: lines that nobody reads are lost and counted (${format})`, TIMEOUT, async () => {
    const report = `console.log(droppedLinesOf(log)); process.stdin.once('data', () => console.log('alive'));`;
    const { child, printed, exit } = startWriter(format, report);
    const dropped = Number(await printed());
    assert.ok(dropped > 0 && dropped < 16_384, `${dropped} dropped`);
    child.stdin.write('\n');
    assert.equal(await printed(), 'alive');

    const kept: string[] = [];
    const { promise, resolve } = Promise.withResolvers<string>();
    createInterface({ input: child.stderr }).on('line', (line) => {
      if (line.includes('lines of the log are lost')) resolve(line);
      else kept.push(line);
    });
    const logged = await promise;
    assert.match(logged, new RegExp(`dropped"?[: ]${dropped}\\b`));
    assert.equal(kept.length + dropped, 16_384);
    assert.ok(kept.join('\n').length <= LIMITS.logBufferBytes + PIPE_BYTES);
    child.stdin.end();
    child.kill();
    await exit;
  });

  // N-70
  test(`a process ends although nobody reads its log (${format})`, TIMEOUT, async () => {
    const { printed, exit } = startWriter(format, `console.log('logged'); setTimeout(() => process.exit(7), 100);`);
    assert.equal(await printed(), 'logged');
    assert.deepEqual(await exit, [7, null]);
  });
}

// N-70
test('a reader that keeps up gets every line', TIMEOUT, async () => {
  const program = `const { createLogger, droppedLinesOf } = await import(${JSON.stringify(LOG)});
    const log = createLogger('info', undefined, { format: 'json' });
    for (let turn = 0; turn < 200; turn++) {
      for (let i = 0; i < 50; i++) log.info({ text: 'x'.repeat(200) }, 'line');
      await new Promise((resolve) => setImmediate(resolve));
    }
    console.log(droppedLinesOf(log));`;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: ['ignore', 'pipe', 'pipe'] });
  let lines = 0;
  createInterface({ input: child.stderr }).on('line', () => lines++);
  let printed = '';
  child.stdout.on('data', (chunk) => (printed += String(chunk)));
  const [code] = await once(child, 'close');
  assert.deepEqual([code, printed, lines], [0, '0\n', 10_000]);
});

/** Reads a named pipe. */
function readPipe(path: string) {
  const fd = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK);
  const socket = new Socket({ fd, readable: true, writable: false });
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  return { nextLine: async () => String((await lines.next()).value), close: () => socket.destroy() };
}

test('a reader of a named pipe that is started again gets all lines to the last', TIMEOUT, async ({ signal }) => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-stderr-'));
  const path = join(dir, 'stderr');
  assert.equal(spawnSync('mkfifo', [path]).status, 0);
  const first = readPipe(path);
  const stderr = openSync(path, 'w');
  const program = `const { default: fs } = await import('node:fs');
    const { write } = fs;
    fs.write = (...args) => {
      const done = args.pop();
      return write(...args, (error, ...rest) => { if (error) process.send(error.code); done(error, ...rest); });
    };
    const { createLogger } = await import(${JSON.stringify(LOG)});
    const log = createLogger('info', undefined, { format: 'json' });
    process.on('message', (text) => { log.info({ text }, 'line'); if (text === 'last') process.exit(); });
    log.info({ text: 'first' }, 'line');`;
  const stdio = ['ignore', 'ignore', stderr, 'ipc'] as const;
  const child = spawn(process.execPath, ['--input-type=module', '-e', program], { stdio: [...stdio], signal });
  const exit = once(
    child.on('error', () => undefined),
    'exit',
  );
  closeSync(stderr);
  try {
    assert.match(await first.nextLine(), /"first"/);
    const failed = once(child, 'message');
    first.close();
    child.send('unread');
    assert.deepEqual((await failed)[0], 'EPIPE');
    const second = readPipe(path);
    child.send('read again');
    assert.match(await second.nextLine(), /"unread"/);
    assert.match(await second.nextLine(), /"read again"/);
    child.send('last');
    assert.match(await second.nextLine(), /"last"/);
    await exit;
    second.close();
  } finally {
    child.kill();
    await rm(dir, { recursive: true });
  }
});
