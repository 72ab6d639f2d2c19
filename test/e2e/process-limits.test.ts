import assert from 'node:assert/strict';
import { mkdir, mkdtemp, realpath, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { initialize, post, rpc } from '../downstream/client.ts';
import { type GatewayFile, startGateway } from '../support/gateway.ts';
import { debianProgram } from '../support/programs.ts';

const TIMEOUT = { timeout: 120_000 };
const SERVER = fileURLToPath(new URL('../fixtures/servers/escape-stdio.ts', import.meta.url));
const ROOT = fileURLToPath(new URL('../..', import.meta.url));

let dir = '';
/** The PATH of a gateway that finds bubblewrap, and of one that does not. */
let path = '';
let barePath = '';

before(async () => {
  const bwrap = await debianProgram('bwrap', 'bubblewrap', 'usr/bin/bwrap');
  if ('missing' in bwrap) throw new Error(bwrap.missing);
  dir = await realpath(await mkdtemp(join(tmpdir(), 'linkspan-limits-')));
  path = [dirname(bwrap.path), dirname(process.execPath), process.env['PATH']].join(delimiter);
  barePath = join(dir, 'bin');
  await mkdir(barePath);
  await symlink(process.execPath, join(barePath, 'node'));
});

after(async () => {
  await rm(dir, { recursive: true, force: true });
});

/** Calls a tool in a session of its own. Returns the text of the answer. */
async function answerOf(file: GatewayFile, name: string, args: object, PATH = path): Promise<string> {
  await using gateway = await startGateway(file, { env: { PATH } });
  const url = `${gateway.url}/mcp`;
  const { text } = await post(url, rpc(1, 'tools/call', { name, arguments: args }), await initialize(url));
  return text;
}

function tries(settings: object, name: string, target = '', PATH = path): Promise<string> {
  const server = { command: process.execPath, args: [SERVER], prefix: '', ...settings };
  return answerOf({ mcpServers: { limited: server } }, 'try', { name, target }, PATH);
}

suite('limits of stdio processes', TIMEOUT, () => {
  test('a process cannot open more files than openFiles', async () => {
    assert.match(await tries({ processLimits: { openFiles: 64 } }, 'open', '80'), /failed: .*EMFILE/);
    assert.match(await tries({}, 'open', '80'), /"text":"done"/);
  });

  test('a process that uses more than cpuTime is killed, and the caller learns of it', async () => {
    assert.match(
      await tries({ processLimits: { cpuTime: '3s' } }, 'burn'),
      /was killed by SIG(?:XCPU|KILL).*"unknown"/,
    );
  });

  test('a process that uses more than memory is killed, and the caller learns the limit', async () => {
    const text = await tries({ processLimits: { memory: '300MiB' } }, 'allocate', '400');
    assert.match(text, /used \d+ MiB of memory, more than its limit of 300 MiB \(processLimits\.memory\).*"unknown"/);
  });

  test('the limits hold inside of a sandbox too', async () => {
    const sandbox = { read: [SERVER] };
    assert.match(await tries({ sandbox, processLimits: { openFiles: 64 } }, 'open', '80'), /failed: .*EMFILE/);
    const memory = await tries({ sandbox, processLimits: { memory: '300MiB' } }, 'allocate', '400');
    assert.match(memory, /more than its limit of 300 MiB/);
  });
});

suite('sandboxes of stdio processes', TIMEOUT, () => {
  // SEC-42
  test('without bubblewrap the server is not started, and the caller learns why', async () => {
    const text = await tries({ sandbox: { read: [SERVER] } }, 'environment', 'HOME', barePath);
    assert.match(text, /needs the program \\"bwrap\\" of bubblewrap, which was not found; install it/);
    assert.match(text, /"no"/);
  });

  // SEC-42
  test('a sandbox that cannot be made leaves the server unstarted', async () => {
    const missing = join(dir, 'missing');
    const text = await tries({ sandbox: { read: [SERVER, missing] } }, 'environment', 'HOME');
    assert.match(text, /exited with code 1 before it answered/);
  });

  test('a missing program has the same words with a sandbox', async () => {
    const text = await tries({ command: 'no-such-program', sandbox: {} }, 'environment');
    assert.match(text, /command \\"no-such-program\\" was not found/);
  });

  test('a server of npx works in a sandbox, and sees only its folders', async () => {
    const data = join(dir, 'data');
    await mkdir(data);
    await writeFile(join(data, 'note.txt'), 'a note');
    await writeFile(join(dir, 'other.txt'), 'another note');
    const files = {
      command: 'npx',
      args: ['--no-install', 'mcp-server-filesystem', dir],
      cwd: ROOT,
      sandbox: { write: [data] },
      prefix: '',
    };
    const config = { mcpServers: { files } };
    assert.match(await answerOf(config, 'read_text_file', { path: join(data, 'note.txt') }), /a note/);
    assert.match(await answerOf(config, 'read_text_file', { path: join(dir, 'other.txt') }), /ENOENT|not exist/);
    assert.match(await answerOf(config, 'list_directory', { path: dir }), /\[DIR\] data"/);
  });
});
