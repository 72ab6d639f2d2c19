/** Tests what commands say of a key file with which the gateway does not start, or that it cannot read any more. */
import assert from 'node:assert/strict';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { hash } from 'node:crypto';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { changeKeyFile } from '../../src/store/disk/api-key-file.ts';
import { runCli } from '../support/cli.ts';
import { startGateway } from '../support/gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-key-file-'));
});
after(() => rm(dir, { recursive: true }));

const keyFileAt = async (name: string) => {
  const file = join(dir, name);
  await changeKeyFile(file, () => ({ add: [{ name: 'ann', sha256: hash('sha256', 'ann') }] }));
  return file;
};

const linkspan = (...args: readonly string[]) => runCli(args, dir, { HOME: dir }, 30_000);

test('validate fails for a key file with which a start is refused, and says why', TIMEOUT, async () => {
  const open = await keyFileAt('open.json');
  await chmod(open, 0o644);
  const good = await keyFileAt('good.json');
  for (const { keyFile, why } of [
    {
      keyFile: join(dir, 'none.json'),
      why: /c\.json gateway\.auth\.keyFile: .*none\.json does not exist; make it with/,
    },
    { keyFile: open, why: /c\.json gateway\.auth\.keyFile: .*open\.json can be read by other users/ },
    { keyFile: good, why: undefined },
  ]) {
    const mcpServers = { up: { url: 'http://127.0.0.1:9/mcp' } };
    await writeFile(join(dir, 'c.json'), JSON.stringify({ mcpServers, gateway: { auth: { keyFile } } }));
    const { code, stdout, stderr } = await linkspan('validate', '--config', 'c.json');
    const json = JSON.parse((await linkspan('validate', '--config', 'c.json', '--json')).stdout);
    if (why === undefined) {
      assert.deepEqual([code, stderr, json.valid], [0, '', true]);
      assert.match(stdout, /^c\.json is valid\.$/m);
    } else {
      assert.deepEqual([code, json.valid, json.problems.length], [1, false, 1]);
      assert.match(stderr, why);
      assert.match(stdout, /^c\.json: a start is refused for its key file/);
    }
  }
});

test('status says that keys cannot be read although the gateway is ready', TIMEOUT, async () => {
  const keyFile = await keyFileAt('running.json');
  await using gateway = await startGateway({
    mcpServers: { up: { url: 'http://127.0.0.1:9/mcp' } },
    gateway: { auth: { keyFile } },
  });
  const ready = async () => {
    const { code, stdout } = await linkspan('status', '--config', gateway.configFile);
    return `${code} ${/^Ready +(.*)$/m.exec(stdout)?.[1]}`;
  };
  assert.equal(await ready(), '0 yes');
  await chmod(keyFile, 0o644);
  const unread = /^0 yes, but: API keys cannot be read, so changes of them, and revocations, have no effect: /;
  await waitUntil(async () => unread.test(await ready()));
});
