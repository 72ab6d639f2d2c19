import assert from 'node:assert/strict';
import { test } from 'node:test';

import { GatewayError } from '../../src/errors.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { TerminalLog } from '../../src/telemetry/terminal-log.ts';

/** Returns the text that a terminal shows for these lines, without colours. */
function shown(
  write: (log: ReturnType<typeof createLogger>) => void,
  showsAll = false,
  now: () => number = () => 0,
): string {
  let text = '';
  const terminal = new TerminalLog({
    write: (more) => {
      text += more;
    },
    paint: (_style, plain) => plain,
    now,
    showsAll,
  });
  write(createLogger('info', terminal, { format: 'pretty' }));
  return text;
}

// N-10
test('a repeated failure is shown once, and again with its count after a minute', () => {
  let nowMs = 0;
  const write = (log: ReturnType<typeof createLogger>) => {
    const child = log.child({ upstream: 'web' });
    for (; nowMs <= 60_000; nowMs += 20_000) {
      child.info({ phase: 'starting' }, 'upstream state');
      child.warn({ phase: 'failed', reason: 'refused the connection' }, 'upstream state');
      log.warn({ upstream: 'b', phase: 'failed', reason: 'refused' }, 'upstream state');
    }
  };
  const [web, b] = ['  ✗ web              failed: refused the connection', '  ✗ b                failed: refused'];
  assert.equal(
    shown(write, false, () => nowMs),
    `${web}\n${b}\n${web} (3 times)\n${b} (3 times)\n`,
  );
});

// N-10
test('a failed request or upstream is shown once, other failures each time', () => {
  const text = shown((log) => {
    for (let i = 0; i < 3; i++) {
      log.info({ upstream: 'web', err: new GatewayError('upstream-timeout') }, 'request not answered by an upstream');
      log.warn({ upstream: 'web', reason: 'refused' }, 'log level not set');
    }
  });
  const count = (part: string) => text.split(part).length - 1;
  assert.equal(count('request not answered'), 1);
  assert.equal(count('log level not set'), 1);
});

// N-10
test('an upstream that serves is one line, with its tools, and no line about its era', () => {
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ phase: 'starting' }, 'upstream state');
    child.info({ era: 'modern', speaks: 'yes', evidence: 'it answered' }, 'era of the upstream');
    child.info({ phase: 'ready' }, 'upstream state');
    child.info({ tools: 9, prompts: 1 }, 'upstream lists');
    child.info({ tools: 9, prompts: 1 }, 'upstream lists');
  });
  assert.equal(text, '  ✓ web              ready, 9 tools\n');
});

// N-10
test('another number of tools is a line, and the last one of several in a minute', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const line = (tools: string) => `  ✓ web              ready, ${tools}\n`;
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ tools: 1 }, 'upstream lists');
    child.info({ phase: 'ready' }, 'upstream state');
    for (const tools of [2, 3, 4, 5]) child.info({ tools }, 'upstream lists');
    t.mock.timers.tick(60_000);
  });
  assert.equal(text, `${line('1 tool')}${line('2 tools')}${line('5 tools')}`);
});

// N-10
test('the last number of tools is shown though its upstream has failed meanwhile', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const line = (tools: string) => `  ✓ web              ready, ${tools}\n`;
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ tools: 2 }, 'upstream lists');
    child.info({ phase: 'ready' }, 'upstream state');
    for (const tools of [3, 4]) child.info({ tools }, 'upstream lists');
    child.warn({ phase: 'failed', reason: 'it exited' }, 'upstream state');
    child.info({ phase: 'ready' }, 'upstream state');
    t.mock.timers.tick(60_000);
  });
  const failed = '  ✗ web              failed: it exited\n';
  assert.equal(text, `${line('2 tools')}${line('3 tools')}${failed}${line('4 tools')}`);
});

// N-10
test('an upstream that fails again and again is not shown as ready each time', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ tools: 2 }, 'upstream lists');
    child.info({ phase: 'ready' }, 'upstream state');
    for (let n = 0; n < 5; n++) {
      child.warn({ phase: 'failed', reason: 'it exited' }, 'upstream state');
      child.info({ phase: 'ready' }, 'upstream state');
      t.mock.timers.tick(60_000);
    }
  });
  const ready = '  ✓ web              ready, 2 tools\n';
  assert.equal(text, `${ready}  ✗ web              failed: it exited\n${ready}`);
});

// N-10
test('tools that change each second are lines at growing intervals', () => {
  let nowMs = 0;
  const write = (log: ReturnType<typeof createLogger>) => {
    const child = log.child({ upstream: 'web' });
    child.info({ phase: 'ready' }, 'upstream state');
    for (; nowMs <= 305_000; nowMs += 1_000) child.info({ tools: 2 + (nowMs % 7_000) / 1_000 }, 'upstream lists');
  };
  assert.deepEqual(
    shown(write, false, () => nowMs)
      .split('\n')
      .slice(0, -1)
      .map((line) => line.slice(21)),
    ['ready, 2 tools', 'ready, 3 tools', 'ready, 7 tools (60 times)', 'ready, 2 tools (240 times)'],
  );
});

// N-10
test('the tools of an upstream are those that its filters leave', () => {
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ tools: 9, offeredTools: 4 }, 'upstream lists');
    child.info({ phase: 'ready' }, 'upstream state');
  });
  assert.equal(text, '  ✓ web              ready, 4 tools\n');
});

// N-10
test('an upstream without lists is shown as ready after a moment', (t) => {
  t.mock.timers.enable({ apis: ['setTimeout'] });
  let text = '';
  const terminal = new TerminalLog({
    write: (more) => {
      text += more;
    },
    paint: (_style, plain) => plain,
    now: () => 0,
  });
  const log = createLogger('info', terminal, { format: 'pretty' });
  log.info({ upstream: 'a', phase: 'ready' }, 'upstream state');
  log.info({ upstream: 'b', phase: 'ready' }, 'upstream state');
  log.warn({ upstream: 'b', phase: 'failed', reason: 'it exited' }, 'upstream state');
  assert.equal(text, '  ✗ b                failed: it exited\n');
  t.mock.timers.tick(1_500);
  assert.equal(text, '  ✗ b                failed: it exited\n  ✓ a                ready\n');
});

// N-10
test('text of an upstream cannot move the cursor or fill the screen', () => {
  const reason = `\u001B[2Jgone\r\n\u009B31m\u202Eevil ${'x'.repeat(5_000)}`;
  const text = shown((log) => log.warn({ upstream: 'a', phase: 'failed', reason }, 'upstream state'));
  assert.doesNotMatch(text.trimEnd(), /[\p{Cc}\u202E]/u);
  assert.ok(text.length < 1_100);
});

test('the log that is asked for has each line, so its last one is true', () => {
  const text = shown((log) => {
    const child = log.child({ upstream: 'web' });
    child.info({ phase: 'ready' }, 'upstream state');
    child.info({ tools: 3 }, 'upstream lists');
    for (const _again of [1, 2]) {
      child.warn({ phase: 'failed', reason: 'does not answer' }, 'upstream state');
      child.info({ phase: 'ready' }, 'upstream state');
    }
    child.warn({ reason: 'too many' }, 'question of an upstream refused');
    child.warn({ reason: 'too many' }, 'question of an upstream refused');
    child.info({ phase: 'starting' }, 'upstream state');
  }, true);
  assert.deepEqual(
    text.split('\n').map((line) => line.replace(/^.*web\s+|^! web: /, '')),
    [
      'ready',
      'ready, 3 tools',
      'failed: does not answer',
      'ready, 3 tools',
      'failed: does not answer',
      'ready, 3 tools',
      'question of an upstream refused: too many',
      'question of an upstream refused: too many',
      'starting',
      '',
    ],
  );
});

// N-10
test('the stderr of a lost process is shown where the log is asked for', () => {
  const write = (log: ReturnType<typeof createLogger>) =>
    log.warn(
      { upstream: 'a', reason: 'it exited with code 3', stderr: 'boom\n\u001B[31mat x\n' },
      'upstream process lost',
    );
  assert.equal(shown(write), '');
  assert.equal(shown(write, true), '! a: it exited with code 3. On stderr:\n    | boom\n    | \\u001b[31mat x\n');
});

// N-07
test('processes and memory are one line, with the setting that would share them', () => {
  const text = shown((log) => {
    const byUpstream = {
      thinking: { processes: 2, memoryBytes: 120_400_000, memoryNote: 'PSS', advice: 'isolation: shared takes one' },
      files: { processes: 2, memoryBytes: 80_000_000, memoryNote: 'PSS', advice: 'isolation: shared takes one' },
      git: { processes: 1, memoryNote: 'unknown: the system does not let us read it' },
    };
    log.info({ processes: 5, memoryBytes: 200_400_000, byUpstream }, 'processes of upstreams');
  });
  assert.equal(
    text,
    '  · processes        5 in all, 200 MB, of them thinking 2 (120 MB), files 2 (80 MB), ' +
      'git 1 (memory unknown: the system does not let us read it); thinking, files: isolation: shared takes one\n',
  );
});

// N-10
test('a reason of several lines keeps them apart on its one line', () => {
  const reason = 'a.yaml:1:2: no map\na.yaml:3:4: no text';
  const text = shown((log) => log.error({ cause: 'file', reason }, 'config rejected; the running one stays'));
  const line = '! config rejected; the running one stays: cause file, a.yaml:1:2: no map; a.yaml:3:4: no text\n';
  assert.equal(text, line);
});

test('the message of an error is in its line once', () => {
  const err = new GatewayError('upstream-unavailable', { message: 'it is starting' });
  const text = shown((log) => log.info({ err, code: err.code, ...err.detail }, 'request not answered'));
  assert.equal(text, 'request not answered: Upstream unavailable: it is starting, code upstream-unavailable\n');
});

test('a list of texts is a part of its line', () => {
  const text = shown((log) => {
    log.warn({ file: 'a.yaml', changes: ['~ a: 1 → 2', '~ b: 3 → 4'], gone: [] }, 'changed settings');
    log.info({ upstream: 'web', scopes: ['read'], counts: [1], parts: [{}] }, 'an upstream needs further scopes');
  });
  assert.equal(
    text,
    '! changed settings: changes ~ a: 1 → 2; ~ b: 3 → 4\nweb: an upstream needs further scopes: scopes read\n',
  );
});

// N-10
test('the banner says which upstreams start at once, and which later', () => {
  const startOf = (upstreams: readonly string[], eager: readonly string[]) => {
    const lines = shown((log) => log.info({ version: '1', url: 'http://x', upstreams, eager }, 'listening')).split(
      '\n',
    );
    return lines.flatMap((line) => /each starts.*/.exec(line) ?? []);
  };
  assert.deepEqual(startOf(['a', 'b'], []), ['each starts when a client first needs it']);
  assert.deepEqual(startOf(['a', 'b'], ['b']), ['each starts when a client first needs it; at the start b']);
  assert.deepEqual(startOf(['a', 'b'], ['a', 'b']), []);
  assert.deepEqual(startOf([], []), []);
});
