import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { within, WITHIN } from '../../../../src/upstream/stdio/launch/nesting.ts';
import { rpc } from '../../../downstream/client.ts';
import { marker } from '../../../support/leftovers.ts';
import { MAIN } from '../../../support/program.ts';
import { waitUntil } from '../../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const HELLO = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '1' } };

test('gateways over stdio may be inside each other, but none in itself', () => {
  const one = within('/home/me/one.yaml', undefined);
  const two = within('/home/me/two.yaml', one);
  assert.match(two, /^[\da-f]{12},[\da-f]{12}$/);
  for (const file of ['one', 'two'])
    assert.throws(() => within(`/home/me/${file}.yaml`, two), /has started "linkspan stdio" with the same file/);
  assert.equal(within('/home/me/one.yaml', ''), one);
});

test('a gateway over stdio that a script starts again does not start without end', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-nesting-'));
  try {
    const file = join(dir, 'config.json');
    const script = `exec "${process.execPath}" "${MAIN}" stdio --config "${file}"`;
    const mcpServers = { self: { command: '/bin/sh', args: ['-c', script], env: marker() } };
    await writeFile(file, JSON.stringify({ mcpServers, gateway: { stateDir: join(dir, 'state') } }));
    const env: NodeJS.ProcessEnv = { ...process.env, ...marker() };
    const child = spawn(process.execPath, [MAIN, 'stdio', '--config', file], { stdio: 'pipe', env });
    let stderr = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.stdout.resume();
    child.stdin.write(`${rpc(0, 'initialize', HELLO)}\n${rpc(1, 'tools/list')}\n`);
    await waitUntil(() => /"upstream":"self".*has started .*linkspan stdio/.test(stderr));
    assert.match(stderr, new RegExp(`set its .*env.* to .*${WITHIN}`));
    child.stdin.end();
    const [code] = await once(child, 'exit');
    assert.equal(code, 0);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
