import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { chmod, chown, lstat, mkdtemp, readdir, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { FileWatch } from '../../../src/config/files/file-watch.ts';
import { changeKeyFile, readKeyFile } from '../../../src/store/disk/api-key-file.ts';
import { diskApiKeyStore } from '../../../src/store/disk/api-key-store.ts';
import { apiKeyStoreContract, keyOf } from '../api-key-store.contract.ts';

const OPTIONS = { timeout: 120_000 };
let dir = '';
let files = 0;

before(async () => {
  dir = await mkdtemp(join(tmpdir(), 'linkspan-keys-'));
});
after(() => rm(dir, { recursive: true }));

const freshFile = () => join(dir, `keys-${files++}.json`);

async function fileOf(content: unknown, mode = 0o600): Promise<string> {
  const file = freshFile();
  await writeFile(file, typeof content === 'string' ? content : JSON.stringify(content));
  await chmod(file, mode);
  return file;
}

apiKeyStoreContract('disk', async () => {
  const file = freshFile();
  const watchFile = async (path: string, onChange: () => void) => {
    const watch = new FileWatch(onChange, { pollMs: 20, settleMs: 10, longestMs: 50 });
    await watch.setFiles(new Map([[path, undefined]]));
    return watch;
  };
  const open = () => diskApiKeyStore({ file, stateDir: `${file}-state`, watchFile });
  return [open(), open()];
});

// N-74
test('a pipe in the place of a key file is refused at once', OPTIONS, async () => {
  const file = freshFile();
  execFileSync('mkfifo', ['-m', '600', file]);
  await assert.rejects(readKeyFile(file), /is no ordinary file/);
});

test('a key file is made with mode 0600, and stays so', OPTIONS, async () => {
  const file = freshFile();
  for (const name of ['one', 'two']) {
    await changeKeyFile(file, () => ({ add: [keyOf(name)] }));
    assert.equal((await stat(file)).mode & 0o777, 0o600);
  }
  assert.equal((await readKeyFile(file)).length, 2);
});

for (const mode of [0o604, 0o606, 0o620, 0o660, 0o601]) {
  // SEC-14
  test(`a key file of mode ${mode.toString(8)} is refused`, OPTIONS, async () => {
    const file = await fileOf({ version: 1, keys: [keyOf('one')] }, mode);
    await assert.rejects(readKeyFile(file), /by (?:other users|another user) \(mode 06\d\d\).*chmod 600/);
  });
}

for (const mode of [0o600, 0o400, 0o640, 0o440]) {
  test(`a key file of mode ${mode.toString(8)} is used`, OPTIONS, async () => {
    const file = await fileOf({ version: 1, keys: [keyOf('one')] }, mode);
    assert.deepEqual(await readKeyFile(file), [keyOf('one')]);
  });
}

const SHA256 = keyOf('one').sha256;
const BROKEN: readonly (readonly [what: string, content: unknown, message: RegExp])[] = [
  ['empty', '', /is not a key file: it is no valid JSON$/],
  ['half of a file', JSON.stringify({ version: 1, keys: [keyOf('one')] }).slice(0, 60), /: it is no valid JSON$/],
  ['no version', { keys: [] }, /at version/],
  ['another version', { version: 2, keys: [] }, /at version/],
  [
    'a misspelled expiry',
    { version: 1, keys: [{ ...keyOf('one'), expires: '2027-01-01T00:00:00Z' }] },
    /at keys\.0: .*expires/,
  ],
  [
    'an expiry without time zone',
    { version: 1, keys: [keyOf('one', { expiresAt: '2027-01-01T00:00:00' })] },
    /at keys\.0\.expiresAt/,
  ],
  ['a short hash', { version: 1, keys: [{ name: 'one', sha256: SHA256.slice(1) }] }, /at keys\.0\.sha256/],
  ['a key in plain text', { version: 1, keys: [{ ...keyOf('one'), key: 'hunter2' }] }, /at keys\.0/],
  ['an empty name', { version: 1, keys: [{ name: '', sha256: SHA256 }] }, /at keys\.0\.name/],
  ['a name with a line break', { version: 1, keys: [{ name: 'a\nb', sha256: SHA256 }] }, /at keys\.0\.name/],
  ['groups as text', { version: 1, keys: [{ name: 'a', sha256: SHA256, groups: 'sales' }] }, /at keys\.0\.groups/],
  ['one hash twice', { version: 1, keys: [keyOf('one'), { ...keyOf('two'), sha256: SHA256 }] }, /same hash.*keys\.1/],
];

for (const [what, content, message] of BROKEN) {
  // SEC-14
  test(`a key file with ${what} is refused, and not quoted`, OPTIONS, async () => {
    const file = await fileOf(content);
    await assert.rejects(readKeyFile(file), (thrown: Error) => {
      assert.match(thrown.message, message);
      assert.ok(!thrown.message.includes('hunter2') && !thrown.message.includes(SHA256), thrown.message);
      return true;
    });
    const before = await readFile(file, 'utf8');
    await assert.rejects(changeKeyFile(file, () => ({ add: [keyOf('other')] })));
    assert.equal(await readFile(file, 'utf8'), before, 'a broken file is not overwritten');
  });
}

test('a key file that is not there is refused, with the command that makes it', OPTIONS, async () => {
  await assert.rejects(readKeyFile(freshFile()), /does not exist; make it with: linkspan key create/);
});

// SEC-14
test('a change keeps owner, group and mode, so that the gateway can read it', OPTIONS, async () => {
  const file = await fileOf({ version: 1, keys: [] }, 0o640);
  const isRoot = process.getuid?.() === 0;
  // Others than root have the group that the file has anyway.
  if (isRoot) await chown(file, 0, 2);
  const before = await stat(file);
  await changeKeyFile(file, () => ({ add: [keyOf('ann')] }));
  const { uid, gid, mode } = await stat(file);
  assert.deepEqual([uid, gid, mode], [before.uid, before.gid, before.mode]);
  assert.equal((await readdir(dir)).filter((name) => name.endsWith('.lock')).length, 0);
});

test('a change behind a symbolic link keeps the link', OPTIONS, async () => {
  const target = await fileOf({ version: 1, keys: [keyOf('one')] });
  const link = freshFile();
  await symlink(target, link);
  await changeKeyFile(link, () => ({ add: [keyOf('two')] }));
  assert.ok((await lstat(link)).isSymbolicLink());
  assert.equal((await readKeyFile(target)).length, 2);
});

test('keys that have not changed are the same objects at the next reading', OPTIONS, async () => {
  const [ann, ben] = [{ ...keyOf('ann'), groups: ['a'] }, keyOf('ben')];
  const file = await fileOf({ version: 1, keys: [ann, ben] });
  const [annBefore, benBefore] = await readKeyFile(file);
  assert.ok(annBefore !== undefined && benBefore !== undefined);
  await writeFile(file, JSON.stringify({ version: 1, keys: [{ ...ben, owner: 'o' }, ann] }));
  const [benAfter, annAfter] = await readKeyFile(file, [annBefore, benBefore]);
  assert.equal(annAfter, annBefore);
  assert.deepEqual(benAfter, { ...ben, owner: 'o' });
});
