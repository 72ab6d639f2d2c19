import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { chmod, chown, link, mkdir, mkdtemp, readFile, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { openKeyFile } from '../../../src/audit/key-file.ts';
import { auditKeyOf } from '../../../src/audit/chain.ts';
import { StateHead } from '../../../src/audit/state-head.ts';
import { firstKeyHash, keptFirstKeyHash } from '../../../src/store/disk/first-key.ts';
import { readLastGood, writeLastGood } from '../../../src/store/disk/last-good-file.ts';
import { readOperatorFile, writeOperatorFile } from '../../../src/store/disk/operator-file.ts';
import { openState, type State } from '../../../src/store/open-state.ts';

const TIMEOUT = { timeout: 120_000 };
const OTHER_UID = 65_534;

interface TestState extends AsyncDisposable {
  readonly dir: string;
  /** The reasons why something of the directory was not used. */
  readonly refused: string[];
  open(): Promise<State>;
}

async function testState(): Promise<TestState> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-own-'));
  const refused: string[] = [];
  const nothing = () => undefined;
  const events = {
    onWriteFailed: nothing,
    onFailing: nothing,
    onRecovered: nothing,
    onLimit: nothing,
    onRefused: ({ message }: Error) => void refused.push(message),
  };
  return {
    dir,
    refused,
    open: () => openState(dir, { mayOwn: true, events }),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }),
  };
}

const OFFER = { upstream: 'a', target: 't', era: '', capabilityKey: '', audience: '' } as const;
const KEYS = [auditKeyOf('k'.repeat(43))];

/** A file of the state directory: how it is made, and how it is read. */
interface StateFile {
  readonly name: string;
  readonly make: (state: TestState) => Promise<unknown>;
  readonly read: (state: TestState) => Promise<unknown>;
}

async function openAndClose(state: TestState): Promise<void> {
  await using _opened = await state.open();
}

const FILES: readonly StateFile[] = [
  {
    name: 'first-key.sha256',
    make: ({ dir }) => firstKeyHash(dir, () => undefined),
    read: ({ dir }) => firstKeyHash(dir, () => assert.fail('a key was made')),
  },
  { name: 'keys.json', make: openAndClose, read: openAndClose },
  { name: 'sessions.jsonl', make: openAndClose, read: openAndClose },
  { name: 'audit.key', make: ({ dir }) => openKeyFile(dir), read: ({ dir }) => openKeyFile(dir) },
  {
    name: 'audit-stdout.head',
    make: async ({ dir }) => {
      const head = await StateHead.open(dir, 'stdout', KEYS);
      await head.save('head');
      await head.release();
    },
    read: async ({ dir }) => await (await StateHead.open(dir, 'stdout', KEYS)).release(),
  },
  {
    name: 'last-good-config.json',
    make: ({ dir }) =>
      writeLastGood(dir, { file: '/c', savedAt: new Date().toISOString(), copy: { text: '{}', envFiles: {} } }),
    read: ({ dir }) => readLastGood(dir),
  },
  {
    name: 'operator.json',
    make: ({ dir }) =>
      writeOperatorFile(dir, {
        url: 'http://127.0.0.1:1',
        token: 't',
        pid: 1,
        version: '0',
        configFile: '/c',
        startedAt: '',
      }),
    read: ({ dir }) => readOperatorFile(dir),
  },
];

/** What another user can put in the place of a file. */
const PLANTED: readonly {
  readonly what: string;
  readonly plant: (path: string) => Promise<unknown>;
  readonly reason: RegExp;
  readonly needsRoot?: true;
}[] = [
  { what: 'that every user can write', plant: (path) => chmod(path, 0o666), reason: /another user \(mode 0666\)/ },
  {
    what: 'of another user',
    plant: (path) => chown(path, OTHER_UID, OTHER_UID),
    reason: /belongs to another user \(uid 65534\)/,
    needsRoot: true,
  },
  {
    what: 'behind a symbolic link',
    plant: async (path) => {
      await rename(path, `${path}-elsewhere`);
      await symlink(`${path}-elsewhere`, path);
    },
    reason: /is a symbolic link/,
  },
  {
    what: 'that is a pipe',
    plant: async (path) => {
      await rm(path);
      execFileSync('mkfifo', ['-m', '600', path]);
    },
    reason: /is no ordinary file/,
  },
];

for (const { name, make, read } of FILES) {
  for (const { what, plant, reason, needsRoot } of PLANTED) {
    const skip = needsRoot === true && process.geteuid?.() !== 0 && 'only root can give files away';
    // N-72
    test(`${name} ${what} is refused with its path and the reason`, { ...TIMEOUT, skip }, async () => {
      await using state = await testState();
      await make(state);
      await read(state);
      const path = join(state.dir, name);
      await plant(path);
      await assert.rejects(read(state), ({ message }: Error) => {
        assert.match(message, reason);
        assert.ok(message.startsWith(path) || message.includes(`${path} `), message);
        return true;
      });
    });
  }
}

// N-72
test('lists of upstreams that another user could have written are not used, with words', TIMEOUT, async () => {
  await using state = await testState();
  await using opened = await state.open();
  await opened.offers.write(OFFER, 'text');
  assert.equal(await opened.offers.read(OFFER), 'text');
  const file = execFileSync('find', [join(state.dir, 'offers'), '-name', '*.json'], { encoding: 'utf8' }).trim();
  await chmod(file, 0o666);
  assert.equal(await opened.offers.read(OFFER), undefined);
  assert.match(state.refused.join('\n'), /offers\/a-.*could have been written by another user \(mode 0666\)/);
  await opened.offers.write(OFFER, 'new');
  assert.equal(await opened.offers.read(OFFER), 'new');
});

// N-72
test('a state directory that every user can write is used with a warning', TIMEOUT, async () => {
  await using state = await testState();
  await chmod(state.dir, 0o777);
  await openAndClose(state);
  assert.match(state.refused.join('\n'), /every user of this machine can remove and replace the files of the state/);
});

// N-72
test('a first key that another user has planted is refused in a preview, too', TIMEOUT, async () => {
  await using state = await testState();
  const path = join(state.dir, 'first-key.sha256');
  await writeFile(path, createHash('sha256').update('known').digest('hex'));
  await chmod(path, 0o666);
  await assert.rejects(keptFirstKeyHash(state.dir), /Remove it, and the next start makes a new API key/);
});

test('a file with a second name, and one of a volume that a group shares, are used', TIMEOUT, async () => {
  await using state = await testState();
  await openAndClose(state);
  await mkdir(join(state.dir, 'backup'));
  await link(join(state.dir, 'keys.json'), join(state.dir, 'backup', 'keys.json'));
  for (const name of ['keys.json', 'sessions.jsonl']) await chmod(join(state.dir, name), 0o660);
  const before = await readFile(join(state.dir, 'keys.json'), 'utf8');
  await openAndClose(state);
  assert.equal(await readFile(join(state.dir, 'keys.json'), 'utf8'), before);
});
