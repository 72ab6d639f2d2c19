import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

for (const script of ['run', 'capacity', 'soak', 'instructions']) {
  test(`bench/${script}.ts prints its usage for --help and for a wrong option`, () => {
    const file = fileURLToPath(new URL(`../../bench/${script}.ts`, import.meta.url));
    const run = (option: string) => spawnSync(process.execPath, [file, option], { encoding: 'utf8' });
    const help = run('--help');
    assert.match(help.stdout, /^usage: .*\[--only|^usage: .*\[--minutes/);
    assert.deepEqual([help.status, help.stderr], [0, '']);
    const wrong = run('--bogus');
    assert.equal(wrong.stderr, `Unknown option '--bogus'\n${help.stdout}`);
    assert.equal(wrong.status, 2);
  });
}
