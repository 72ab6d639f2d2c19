/** Tests what commands say of paths and names that they cannot use: what happened, where, and the next step. */
import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { runCli } from '../support/cli.ts';

const SERVER = fileURLToPath(new URL('../fixtures/servers/pid-stdio.ts', import.meta.url));
const ON_POSIX = { timeout: 120_000, skip: process.platform === 'win32' };

let dir = '';
before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-paths-'));
  await mkdir(join(dir, 'folder', 'operator.json'), { recursive: true });
  const config = (name: string, gateway: object) =>
    writeFile(join(dir, name), JSON.stringify({ mcpServers: {}, gateway: { stateDir: 'state', ...gateway } }));
  await config('empty.json', {});
  await mkdir(join(dir, 'state'), { mode: 0o700 });
  await writeFile(join(dir, 'state', 'keys.json'), 'no key', { mode: 0o600 });
  await config('state.json', { listen: '127.0.0.1:0', operator: false });
  await mkdir(join(dir, 'other', 'keys.json'), { mode: 0o700, recursive: true });
  await config('other.json', { listen: '127.0.0.1:0', operator: false, stateDir: 'other' });
  await config('lock.json', { lock: { file: 'folder' } });
  await writeFile(
    join(dir, 'nowhere.json'),
    JSON.stringify({
      mcpServers: { a: { command: process.execPath, args: [SERVER] } },
      gateway: { lock: { file: 'no/x.lock' } },
    }),
  );
  await config('audit.json', { audit: { file: 'audit.log' } });
  await config('folder.json', { audit: { file: 'folder' }, listen: '127.0.0.1:0', operator: false });
});
after(() => rm(dir, { recursive: true }));

const CASES = [
  {
    args: ['schema', '--write', '/nonexistent/x.json'],
    why: /--write: \/nonexistent\/x\.json cannot be written: its directory does not exist \(ENOENT\)\. Name a file/,
  },
  { args: ['schema', '--write', 'folder'], why: /--write: folder cannot be written: it is a directory/ },
  {
    args: ['key', 'create', 'ann', '--file', '/dev/null/keys.json'],
    why: /the key file \/dev\/null\/keys\.json cannot be changed: a part of its path is a file \(E\w+\)\. Name a file/,
  },
  {
    args: ['key', 'create', 'ann', '--file', 'folder'],
    why: /folder is no ordinary file, so it is not used\. Name a file; this makes one: linkspan key create/,
  },
  { args: ['key', 'create', '', '--file', 'keys.json'], why: /name: expected at least one character/ },
  {
    args: ['key', 'create', 'x'.repeat(129), '--file', 'keys.json'],
    why: /name: expected at most 128 characters/,
  },
  {
    args: ['status', '--state-dir', 'x'.repeat(300)],
    why: /operator\.json cannot be read \(ENAMETOOLONG\)\. Run the command as the user of the gateway, or/,
  },
  { args: ['status', '--state-dir', 'folder'], why: /operator\.json is no ordinary file.* Remove it, and restart/ },
  {
    args: ['lock', '--upstream', 'x', '--config', 'empty.json'],
    why: /there is no upstream "x"; \S*empty\.json has none that is served/,
  },
  {
    args: ['audit', 'verify', '--config', 'audit.json'],
    why: /there is no file \S+audit\.log, which is gateway\.audit\.file: .*; name the files of the log/,
  },
  {
    args: ['audit', 'verify', '--key-file', 'folder', 'empty.json'],
    why: /folder is a directory, and no file; name the file of the key with --key-file/,
  },
  {
    args: ['audit', 'verify', '--key-file', 'state/keys.json', 'empty.json'],
    why: /^linkspan: state\/keys\.json is not a key of 32 bytes in base64\. Restore it from a backup\.\n$/,
  },
  {
    args: ['run', '--config', 'state.json'],
    why: /"reason":"\S+keys\.json is not a key ring\. Restore it from a backup, or delete it/,
  },
  {
    args: ['run', '--config', 'other.json'],
    why: /keys\.json is no ordinary file, so it is not used\. Remove it to begin with new keys: every session then ends\.","/,
  },
  {
    args: ['audit', 'verify', 'x'.repeat(300), '--key-file', 'key'],
    why: /x cannot be used: its name is too long \(ENAMETOOLONG\)\. Name a path that (?:this )?user/,
  },
  { args: ['key', 'list', '--file', 'x'.repeat(300)], why: /x cannot be used: its name is too long \(ENAMETOOLONG\)/ },
  {
    args: ['explain', 'tool', 'x', '--as', './folder', '--config', 'empty.json'],
    why: /--as: the file \.\/folder cannot be read: it is a directory \(EISDIR\)/,
  },
  {
    args: ['lock', '--config', 'lock.json'],
    why: /the lock file \S+folder cannot be read: it is a directory \(EISDIR\)\. Set gateway\.lock\.file to a file that/,
  },
  {
    args: ['lock', '--config', 'nowhere.json'],
    why: /the lock file \S+no\/x\.lock cannot be written: its directory does not exist \(ENOENT\)\. Set gateway\.lock\.file/,
  },
  {
    args: ['validate', '--config', 'lock.json'],
    why: /folder: is no ordinary file, but a folder, a pipe, a socket or a device; set gateway\.lock\.file to a file$/m,
  },
  {
    args: ['status', '--config', 'nothing.json'],
    why: /no gateway runs with nothing\.json, which does not exist: there is no operator\.json in/,
  },
  {
    args: ['run', '--config', 'folder.json'],
    why: /the audit file \S+folder cannot be used: it is a directory \(EISDIR\)\. Set gateway\.audit\.file to a file/,
  },
] as const;

for (const { args, why } of CASES) {
  test(`"${args.join(' ').slice(0, 50)}" says what to do`, ON_POSIX, async () => {
    const { code, stderr } = await runCli(args, dir, { HOME: dir }, 60_000);
    assert.ok(Number(code) > 0, String(code));
    assert.match(stderr, why);
    assert.doesNotMatch(stderr, /\n\s+at |E[A-Z]+: /, 'no stack, and no words of the system');
  });
}
