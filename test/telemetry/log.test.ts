import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

import { GatewayError } from '../../src/errors.ts';
import { createLogger } from '../../src/telemetry/log.ts';
import { shortened } from '../support/test-name.ts';

function capture(): { lines: string[]; write(line: string): void } {
  const lines: string[] = [];
  return { lines, write: (line) => lines.push(line) };
}

function fields(line: string | undefined): Record<string, unknown> {
  const value: unknown = JSON.parse(line ?? '');
  assert.ok(typeof value === 'object' && value !== null);
  return { ...value };
}

test('a line is JSON with an ISO time and the name of the program', () => {
  const sink = capture();
  createLogger('info', sink).info({ upstream: 'files' }, 'upstream ready');

  const line = fields(sink.lines[0]);
  assert.equal(line['name'], 'linkspan');
  assert.equal(line['upstream'], 'files');
  assert.equal(line['msg'], 'upstream ready');
  assert.match(String(line['time']), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
});

test('an error keeps its cause, and the detail that a client may read', () => {
  const sink = capture();
  const cause = new TypeError('socket hang up', { cause: new Error('ECONNRESET') });
  createLogger('info', sink).error({ err: new GatewayError('upstream-lost', { upstream: 'files' }, cause) }, 'failed');

  const line = sink.lines[0] ?? '';
  for (const part of ['upstream-lost', 'socket hang up', 'ECONNRESET', '"upstream":"files"']) {
    assert.ok(line.includes(part), `${part} in ${line}`);
  }
});

const secrets = [
  { headers: { Authorization: 'hunter2', 'x-api-key': 'hunter2' } },
  { headers: ['hunter2'] },
  { request: { headers: { cookie: 'hunter2' } } },
  { env: { GITHUB_TOKEN: 'hunter2' } },
  { target: { env: { GITHUB_TOKEN: 'hunter2' } } },
  { authorization: 'hunter2' },
  { auth: { token: 'hunter2', apiKey: 'hunter2', password: 'hunter2', secret: 'hunter2' } },
];

for (const record of secrets) {
  test(`a secret is not logged from ${shortened(JSON.stringify(record).replaceAll('hunter2', ''), 50)}`, () => {
    const sink = capture();
    createLogger('info', sink).info(record, 'text');
    assert.ok(!sink.lines.join('').includes('hunter2'), sink.lines.join(''));
    assert.ok(sink.lines.join('').includes('[redacted]'));
  });
}

test('logging does not change its argument', () => {
  const record = { headers: { authorization: 'hunter2' } };
  createLogger('info', capture()).info(record, 'text');
  assert.equal(record.headers.authorization, 'hunter2');
});

test('lines logged just before the exit are written, to stderr only', () => {
  const url = new URL('../../src/telemetry/log.ts', import.meta.url).href;
  const script = `const { createLogger } = await import(${JSON.stringify(url)});
    const log = createLogger('info');
    for (let i = 0; i < 500; i++) log.info({ i }, 'line');
    process.exit(3);`;
  const run = spawnSync(process.execPath, ['--input-type=module', '-e', script], {
    encoding: 'utf8',
    timeout: 120_000,
  });

  assert.equal(run.status, 3, run.stderr);
  assert.equal(run.stdout, '');
  assert.equal(run.stderr.trim().split('\n').length, 500);
});

test('a process ends although the reader of its log has gone', () => {
  const url = new URL('../../src/telemetry/log.ts', import.meta.url).href;
  const script = `const { createLogger } = await import(${JSON.stringify(url)});
    const log = createLogger('info', undefined, { format: 'json' });
    log.info('begun');
    setTimeout(() => { log.info('last'); process.exit(7); }, 1_000);`;
  // The reader ends after the first byte.
  const pipe = '{ { "$0" --input-type=module -e "$1"; echo "code $?" >&3; } 2>&1 | head -c 1 > /dev/null; } 3>&1';
  const run = spawnSync('sh', ['-c', pipe, process.execPath, script], { encoding: 'utf8', timeout: 120_000 });

  assert.equal(run.stdout, 'code 7\n', String(run.error));
});
