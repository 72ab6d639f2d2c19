import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { test } from 'node:test';
import { LIMITS } from '../../../src/limits.ts';
import { createLogger } from '../../../src/telemetry/log.ts';
import { configSecrets } from '../../../src/upstream/stdio/launch/config-secrets.ts';
import { StderrLog } from '../../../src/upstream/stdio/stderr-log.ts';

const LIMIT = { timeout: 120_000 };

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
  stderr.push(Buffer.from(`${'x'.repeat(40_000)}\nnext\n`));
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

for (const line of ['x', '']) {
  test(`limit stderrLinesReadPerSecond: a flood of "${line}" lines is read slowly, to its end`, LIMIT, async () => {
    const limits = new Set<string>();
    const stderr = new StderrLog({ log: createLogger('silent'), secrets: [], onLimit: (limit) => limits.add(limit) });
    const program = `process.stderr.write('${line}\\n'.repeat(40_000)); console.error('the end')`;
    const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'ignore', 'pipe'] });
    stderr.read(child);
    await once(child, 'close');
    assert.deepEqual([...limits], ['stderrLinesReadPerSecond']);
    assert.equal(stderr.last, 'the end');
  });
}

test('limit stderrLinesReadPerSecond: one long line after a flood is read at once', LIMIT, async () => {
  const limits: string[] = [];
  const stderr = new StderrLog({ log: createLogger('silent'), secrets: [], onLimit: (limit) => limits.push(limit) });
  const program = `process.stderr.write('\\n'.repeat(40_000) + 'x'.repeat(${16 * 65_536}))`;
  const child = spawn(process.execPath, ['-e', program], { stdio: ['ignore', 'ignore', 'pipe'] });
  stderr.read(child);
  await once(child, 'close');
  const pauses = limits.filter((limit) => limit === 'stderrLinesReadPerSecond').length;
  assert.ok(pauses > 0 && pauses < 8, `${pauses} pauses, and 16 chunks of the line`);
});

test('an error before a long help text is the likely cause of an end', () => {
  const { stderr } = stderrLog();
  const options = Array.from(
    { length: 60 },
    (_, i) => `      --option-${i} string   Text about an option of the program\n`,
  );
  stderr.push(
    Buffer.from(`Error: no contexts are defined\nUsage:\n  server [flags]\n  -h, --help   help\n${options.join('')}`),
  );
  stderr.end();
  assert.equal(stderr.likelyCause, 'Error: no contexts are defined');
  assert.equal(stderr.toString(), 'Error: no contexts are defined\nUsage:\n  server [flags]');
});

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
