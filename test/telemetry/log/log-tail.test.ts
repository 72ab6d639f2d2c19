import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger, logTailOf, setLogLevel } from '../../../src/telemetry/log.ts';
import { LogTail, RECENT_BYTES } from '../../../src/telemetry/log/log-tail.ts';

test('beyond its size the log in memory loses the oldest lines', () => {
  const tail = new LogTail();
  const line = (n: number) => `${JSON.stringify({ n, pad: 'x'.repeat(1_000) })}\n`;
  for (let n = 0; n < 1_000; n++) tail.write(line(n));
  const recent = tail.recent();
  const bytes = recent.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  assert.ok(bytes <= RECENT_BYTES && bytes > RECENT_BYTES / 2, `${bytes} bytes`);
  assert.equal(recent.at(-1), line(999));
});

test('limit logFollowers: a further follower is refused, until another one ends', () => {
  const tail = new LogTail();
  const received: string[] = [];
  const stops = Array.from({ length: LIMITS.logFollowers }, () => tail.follow((text) => received.push(text)));
  assert.equal(
    tail.follow(() => undefined),
    undefined,
  );
  tail.write('one\n');
  assert.equal(received.length, LIMITS.logFollowers);
  stops[0]?.();
  assert.notEqual(
    tail.follow(() => undefined),
    undefined,
  );
});

test('a changed level holds for a logger, its children and theirs', () => {
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) });
  const child = log.child({ upstream: 'a' });
  const grandchild = child.child({ link: 1 });
  grandchild.debug('before');
  setLogLevel(log, 'debug');
  for (const one of [log, child, grandchild, log.child({})]) one.debug('now');
  setLogLevel(log, 'warn');
  grandchild.info('after');
  assert.deepEqual(
    lines.map((line) => /"msg":"(\w+)"/.exec(line)?.[1]),
    ['now', 'now', 'now', 'now'],
  );
  assert.deepEqual(logTailOf(log).recent(), lines);
});
