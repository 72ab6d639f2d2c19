import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GatewayError } from '../../src/errors.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { TerminalLog } from '../../src/telemetry/terminal-log.ts';

/** Returns the text that a terminal shows for these lines, without colours. */
function shown(columns: number | undefined, write: (log: ReturnType<typeof createLogger>) => void): string {
  let text = '';
  const terminal = new TerminalLog({
    write: (more) => {
      text += more;
    },
    paint: (_style, plain) => plain,
    columns,
    now: () => 0,
  });
  write(createLogger('info', terminal, { format: 'pretty' }));
  return text;
}

const REWRITE = '\u001B[1A\r\u001B[2K';

test('N-10 a repeated failure overwrites the last line, with its count', () => {
  const text = shown(80, (log) => {
    const child = log.child({ upstream: 'web' });
    for (let i = 0; i < 3; i++) {
      child.info({ phase: 'starting' }, 'upstream state');
      child.warn({ phase: 'failed', reason: 'refused the connection' }, 'upstream state');
    }
  });
  const line = '  ✗ web              failed: refused the connection';
  assert.equal(text, `${line}\n${REWRITE}${line} (2 times)\n${REWRITE}${line} (3 times)\n`);
});

test('N-10 a repeated failure that cannot be overwritten gets no line', () => {
  const fail = (log: ReturnType<typeof createLogger>, upstream: string) =>
    log.warn({ upstream, phase: 'failed', reason: 'refused' }, 'upstream state');
  const between = shown(80, (log) => {
    fail(log, 'a');
    fail(log, 'b');
    fail(log, 'a');
  });
  assert.equal(between, '  ✗ a                failed: refused\n  ✗ b                failed: refused\n');
  const fixed = shown(undefined, (log) => {
    fail(log, 'a');
    fail(log, 'a');
  });
  assert.equal(fixed, '  ✗ a                failed: refused\n');
});

test('N-10 a failed request and another failure of an upstream are shown once, others each time', () => {
  const text = shown(80, (log) => {
    for (let i = 0; i < 3; i++) {
      log.info({ upstream: 'web', err: new GatewayError('upstream-timeout') }, 'request not answered by an upstream');
      log.warn({ upstream: 'web', reason: 'refused' }, 'log level not set');
      log.info({ upstream: 'web' }, 'era of the upstream');
    }
  });
  const count = (part: string) => text.split(part).length - 1;
  assert.equal(count('request not answered'), 1);
  assert.equal(count('log level not set'), 1);
  assert.equal(count('era of the upstream'), 3);
});

test('N-10 text of an upstream cannot move the cursor or fill the screen', () => {
  const reason = `\u001B[2Jgone\r\n\u009B31m\u202Eevil ${'x'.repeat(5_000)}`;
  const text = shown(80, (log) => log.warn({ upstream: 'a', phase: 'failed', reason }, 'upstream state'));
  assert.doesNotMatch(text.trimEnd(), /[\p{Cc}\u202E]/u);
  assert.ok(text.length < 1_100);
});

test('N-07 processes and memory are one line, with the setting that would share them', () => {
  const text = shown(80, (log) => {
    const byUpstream = {
      thinking: { processes: 2, memoryBytes: 120_400_000, memoryNote: 'PSS', advice: 'isolation: shared takes one' },
      git: { processes: 1, memoryNote: 'unknown: the system does not let us read it' },
    };
    log.info({ processes: 3, memoryBytes: 120_400_000, byUpstream }, 'processes of upstreams');
  });
  assert.equal(
    text,
    '  · processes        3 in all, 120 MB: thinking 2 (120 MB; isolation: shared takes one), ' +
      'git 1 (memory unknown: the system does not let us read it)\n',
  );
});
