import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/telemetry/log.ts';
import { configSecrets } from '../../../src/upstream/stdio/launch/config-secrets.ts';
import { severityOf, StderrLog } from '../../../src/upstream/stdio/stderr-log.ts';
import { quote } from '../../support/test-name.ts';

const severities: readonly (readonly [line: string, severity: string | undefined])[] = [
  ['ERROR:root:cannot connect', 'error'],
  ['2026-11-22 12:00:00,123 - server - WARNING - slow', 'warning'],
  ['[11/22/26 15:00:00] INFO     Processing request of type ListToolsRequest', 'info'],
  ['time=2026-11-22T12:00:00Z level=warn msg="x"', 'warning'],
  ['{"level":"error","msg":"x"}', 'error'],
  ['{"severity": "CRITICAL"}', 'critical'],
  ['Error: Cannot find module "x"', 'error'],
  ['[debug] started', 'debug'],
  ['panic: runtime error', 'critical'],
  ['Traceback (most recent call last):', 'error'],
  ['Secure MCP Filesystem Server running on stdio', undefined],
  ['no errors found', undefined],
  ['information for users: none', undefined],
];

for (const [line, severity] of severities) {
  test(`the severity of ${quote(line, 50)} is ${severity ?? 'unknown'}`, () => {
    assert.equal(severityOf(line), severity);
  });
}

/** Returns a stderr log of upstream `files`, its log lines and the limits that were reached. */
function stderrLog(secrets: readonly string[] = []) {
  const lines: Record<string, unknown>[] = [];
  const limits: string[] = [];
  const time = { nowMs: 1_000 };
  const root = createLogger('debug', { write: (line) => void lines.push({ ...Object(JSON.parse(line)) }) });
  const log = root.child({ upstream: 'files' });
  const stderr = new StderrLog({ log, secrets, onLimit: (limit) => limits.push(limit), now: () => time.nowMs });
  return { stderr, lines, limits, time };
}

test('a line of stderr is logged with the upstream and its severity', () => {
  const { stderr, lines } = stderrLog();
  stderr.push(Buffer.from('WARNING: low on disk\n\u001B[31mplain'));
  stderr.end();
  assert.deepEqual(
    lines.map(({ upstream, line, severity, level }) => [upstream, line, severity, level]),
    [
      ['files', 'WARNING: low on disk', 'warning', 20],
      ['files', 'plain', undefined, 20],
    ],
  );
});

test('limit stderrLineBytes: a longer line is cut', () => {
  const { stderr, lines, limits } = stderrLog();
  stderr.push(Buffer.from(`${'x'.repeat(100_000)}\nnext\n`));
  assert.equal(lines.length, 2);
  assert.ok(String(lines[0]?.['line']).length <= LIMITS.stderrLineBytes + 1);
  assert.deepEqual(limits, ['stderrLineBytes']);
  assert.equal(stderr.last, 'next');
});

test('limit stderrLinesPerSecond: further lines are counted, and the latest are kept', () => {
  const { stderr, lines, limits, time } = stderrLog();
  const many = LIMITS.stderrLinesPerSecond + 50;
  for (let i = 1; i <= many; i++) stderr.push(Buffer.from(`line ${i}\n`));
  assert.equal(lines.length, LIMITS.stderrLinesPerSecond);
  assert.equal(stderr.last, `line ${many}`);
  time.nowMs += 1_000;
  stderr.push(Buffer.from('later\n'));
  assert.deepEqual(
    lines.slice(LIMITS.stderrLinesPerSecond).map(({ lines: dropped, line }) => [dropped, line]),
    [
      [50, undefined],
      [undefined, 'later'],
    ],
  );
  assert.deepEqual(limits, ['stderrLinesPerSecond']);
});

const NODE_CRASH = `node:internal/modules/run_main:107
    triggerUncaughtException(
    ^

Error: boom
    at Object.<anonymous> (/srv/x.js:1:7)
    at node:internal/main/run_main_module:33:47

Node.js v24.21.0
`;

for (const [what, text, telling] of [
  ['a crash of Node', NODE_CRASH, 'Error: boom'],
  [
    'a code of Node',
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find 'x'\n  at y\n}\n",
    "Error [ERR_MODULE_NOT_FOUND]: Cannot find 'x'",
  ],
  ['Python', 'Traceback (most recent call last):\n  File "x"\nlib.ModuleError: no x\n', 'lib.ModuleError: no x'],
  [
    'Python without a message',
    'Traceback (most recent call last):\n  File "x"\nKeyboardInterrupt\n',
    'KeyboardInterrupt',
  ],
  ['a log', '[ERROR] cannot bind\nbye\n', '[ERROR] cannot bind'],
  ['no error', 'one\ntwo\n', 'two'],
] as const) {
  test(`the telling line of ${what} is ${quote(telling, 40)}`, () => {
    const { stderr } = stderrLog();
    stderr.push(Buffer.from(text));
    assert.equal(stderr.likelyCause, telling);
  });
}

test('secrets of the config that a program repeats are neither logged nor kept', () => {
  const env = {
    API_KEY: 'abcdefghij',
    MODE: 'production',
    DATA: '/srv/data/files',
    DSN: 'pg://me:pw-1@db/x',
    SHORT: 'x1',
  };
  const secrets = configSecrets({
    env,
    args: ['-y', 'some-package@1.2.3', '--token=tok-12345678', '--api-key', 'key-12345678'],
  });
  assert.deepEqual(secrets.toSorted(), ['abcdefghij', 'key-12345678', 'pg://me:pw-1@db/x', 'tok-12345678']);
  const { stderr, lines } = stderrLog(secrets);
  stderr.push(Buffer.from(`refused: ${Object.values(env).join()} tok-12345678 key-12345678\n`));
  const shown = `refused: [redacted],production,/srv/data/files,[redacted],x1 [redacted] [redacted]`;
  assert.equal(lines[0]?.['line'], shown);
  assert.equal(stderr.toString(), shown);
});
