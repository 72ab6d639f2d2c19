import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isUvx, uvxLaunch, printerRun } from '../../../../src/upstream/stdio/launch/uvx-command.ts';

type Case = readonly [command: string, args: readonly string[], asked: readonly string[] | undefined];

/** `PRINTER` stands for the printer. The arguments of the server are `--utc`. */
const cases: readonly Case[] = [
  ['uvx', ['mcp-server-time', '--utc'], ['--from', 'mcp-server-time', 'PRINTER', 'mcp-server-time']],
  ['uvx', ['mcp-server-time@1.2', '--utc'], ['--from', 'mcp-server-time@1.2', 'PRINTER', 'mcp-server-time']],
  ['/usr/bin/uvx', ['--offline', 'a', '--utc'], ['--offline', '--from', 'a', 'PRINTER', 'a']],
  ['uvx', ['--from', 'git+https://x', 'a', '--utc'], ['--from', 'git+https://x', 'PRINTER', 'a']],
  ['uvx', ['--from=a==1', '-p', '3.12', 'b', '--utc'], ['--from=a==1', '-p', '3.12', 'PRINTER', 'b']],
  ['uv', ['tool', 'run', '-q', 'a', '--utc'], ['tool', 'run', '-q', '--from', 'a', 'PRINTER', 'a']],
  ['uv', ['run', 'a', '--utc'], undefined],
  ['uvx', ['--no-cache', 'a', '--utc'], undefined],
  ['uvx', ['--isolated', 'a', '--utc'], undefined],
  ['uvx', ['python', '--utc'], undefined],
  ['uvx', ['python@3.12', '--utc'], undefined],
  ['uvx', ['git+https://x/y', '--utc'], undefined],
  ['uvx', ['--from', 'a', './run.sh', '--utc'], undefined],
  ['uvx', [], undefined],
  ['npx', ['a', '--utc'], undefined],
];

for (const [command, args, asked] of cases) {
  const outcome = asked === undefined ? 'is left to the wrapper' : 'is asked for its file';
  // N-07
  test(`${[command, ...args].join(' ')} ${outcome}`, () => {
    const question = printerRun({ command, args }, {}, 'PRINTER');
    assert.deepEqual(question?.args, asked);
    if (question !== undefined) assert.deepEqual(question.serverArgs, ['--utc']);
    assert.ok(question === undefined || isUvx({ command, args }));
  });
}

// N-07
test('uvx runs the server if its environment is temporary', () => {
  assert.equal(printerRun({ command: 'uvx', args: ['a'] }, { UV_NO_CACHE: '1' }, 'PRINTER'), undefined);
});

// N-07
test("a server is started in place of uvx with the lock on uv's cache", () => {
  const printed = { text: '/c/uv/archive-v0/x/bin/a', env: { PWD: '/home' } };
  const { command, args, cwd } = uvxLaunch(printed, ['--utc', 'a b']);
  assert.deepEqual([command, ...args.slice(2)], ['/bin/sh', '/c/uv/.lock', '/c/uv/archive-v0/x/bin/a', '--utc', 'a b']);
  assert.equal(cwd, '/home');
});
