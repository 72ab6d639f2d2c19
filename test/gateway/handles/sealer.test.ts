import assert from 'node:assert/strict';
import { once } from 'node:events';
import { spawn } from 'node:child_process';
import { chmod, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { CompactEncrypt, decodeProtectedHeader } from 'jose';
import { type Purpose, Sealer } from '../../../src/gateway/handles/sealer.ts';
import { openDiskKeys } from '../../../src/store/disk/key-store.ts';
import { LIMITS } from '../../../src/limits.ts';
import type { KeyStore } from '../../../src/store/key-store.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { waitUntil } from '../../support/wait-until.ts';
import { quote } from '../../support/test-name.ts';

const OPTIONS = { timeout: 120_000 };
const T0 = 1_800_000_000_000;
const HOUR = 3_600_000;
const PAYLOAD = { key: 'b7a4', principal: 'jwt:x', nested: { list: [1, 'two', null], text: 'ü"\\' } };
const PURPOSES: readonly Purpose[] = ['session', 'cursor', 'state', 'task'];

async function openSealer(stateDir: string): Promise<Sealer> {
  return await Sealer.open(await openDiskKeys(stateDir));
}

class TestDir implements AsyncDisposable {
  readonly path: string;

  private constructor(path: string) {
    this.path = path;
  }

  static async make(): Promise<TestDir> {
    return new TestDir(await mkdtemp(join(tmpdir(), 'linkspan-seal-')));
  }

  get keys(): string {
    return join(this.path, 'keys.json');
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.path, { recursive: true });
  }
}

for (const purpose of PURPOSES) {
  test(`a handle for a ${purpose} opens for no other purpose`, OPTIONS, async () => {
    await using dir = await TestDir.make();
    const sealer = await openSealer(dir.path);
    const text = await sealer.seal(purpose, PAYLOAD, T0 + HOUR);
    for (const other of PURPOSES) {
      assert.deepEqual(await sealer.unseal(other, text, T0), other === purpose ? PAYLOAD : undefined);
    }
  });
}

// S-002
test('handles of the same content differ unpredictably, and fit a header', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const [one, two] = await Promise.all([1, 2].map(() => sealer.seal('session', PAYLOAD, T0)));
  assert.ok(one !== undefined && two !== undefined);
  assert.notEqual(one.split('.').slice(1).join(), two.split('.').slice(1).join());
  for (const text of [one, two]) {
    assert.match(text, /^[\x21-\x7e]+$/);
    assert.ok(!text.includes(Buffer.from('principal').toString('base64url').slice(1, -2)));
  }
});

// N-93
test('a handle is sealed and opened within one turn of the event loop', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  let isLaterTurn = false;
  setImmediate(() => (isLaterTurn = true));
  const text = await sealer.seal('cursor', PAYLOAD, T0 + HOUR);
  assert.deepEqual(await sealer.unseal('cursor', text, T0), PAYLOAD);
  assert.equal(isLaterTurn, false, 'another thread has done it');
});

// N-93
test('a handle that the library jose has made opens', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const { keys }: { keys: { kid: string; key: string }[] } = JSON.parse(await readFile(dir.keys, 'utf8'));
  const [{ kid, key } = { kid: '', key: '' }] = keys;
  const plaintext = Buffer.from(JSON.stringify({ until: T0 + HOUR, payload: PAYLOAD }));
  const text = await new CompactEncrypt(plaintext)
    .setProtectedHeader({ alg: 'dir', enc: 'A256GCM', kid, typ: 'session' })
    .encrypt(Buffer.from(key, 'base64url'));
  assert.deepEqual(await sealer.unseal('session', text, T0), PAYLOAD);
});

// SEC-29
test('a handle opens until it expires', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const text = await sealer.seal('session', PAYLOAD, T0);
  assert.deepEqual(await sealer.unseal('session', text, T0 - 1), PAYLOAD);
  assert.equal(await sealer.unseal('session', text, T0), undefined);
  assert.equal(await sealer.unseal('session', text, T0 + HOUR), undefined);
});

// SEC-29
test('a handle with any single flipped bit is invalid', { timeout: 120_000 }, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  // Lengths that leave no, two and four spare bits at the end of the ciphertext.
  for (const filler of ['', 'x', 'xx']) {
    const text = await sealer.seal('session', { filler }, T0 + HOUR);
    const bytes = Buffer.from(text, 'latin1');
    for (let bit = 0; bit < bytes.length * 8; bit++) {
      const flipped = Buffer.from(bytes);
      flipped.writeUInt8(flipped.readUInt8(bit >> 3) ^ (1 << (bit & 7)), bit >> 3);
      const opened = await sealer.unseal('session', flipped.toString('latin1'), T0);
      assert.equal(opened, undefined, `bit ${bit} of ${text}`);
    }
    assert.deepEqual(await sealer.unseal('session', text, T0), { filler });
  }
});

// SEC-29
test('a handle with another last character of any part is invalid', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const parts = (await sealer.seal('session', { filler: 'x' }, T0 + HOUR)).split('.');
  for (const [index, part] of parts.entries()) {
    for (const last of 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_=+/') {
      if (part.endsWith(last)) continue;
      const changed = parts.with(index, part.slice(0, -1) + last).join('.');
      assert.equal(await sealer.unseal('session', changed, T0), undefined, changed);
    }
  }
});

// SEC-29
test('a part of a handle, or a handle with added text, is invalid', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const text = await sealer.seal('session', PAYLOAD, T0 + HOUR);
  const other = await sealer.seal('session', { key: 'other' }, T0 + HOUR);
  for (let end = 0; end < text.length; end++) {
    assert.equal(await sealer.unseal('session', text.slice(0, end), T0), undefined, `first ${end} characters`);
  }
  const [head = '', , iv = '', body = '', tag = ''] = text.split('.');
  const [, , iv2 = '', body2 = '', tag2 = ''] = other.split('.');
  for (const wrong of [
    ` ${text}`,
    `${text}\n`,
    `${text}=`,
    `${text}.`,
    `${text},${text}`,
    text.toUpperCase(),
    'x'.repeat(200_000),
    '....',
    `${head}.AAAA.${iv}.${body}.${tag}`,
    `${head}..${iv}.${body}.`,
    `${head}..${iv2}.${body}.${tag}`,
    `${head}..${iv}.${body2}.${tag}`,
    `${head}..${iv}.${body}.${tag2}`,
    `${head}..${iv}.${body}.${tag.slice(0, 16)}`,
    ...[1, 8, 16, 128, 129, 3_000].map(
      (bytes) => `${head}..${Buffer.alloc(bytes).toString('base64url')}.${body}.${tag}`,
    ),
  ]) {
    assert.equal(await sealer.unseal('session', wrong, T0), undefined, wrong.slice(0, 60));
  }
});

// SEC-24
test('limit handleChars: a longer handle is not opened, though it is ours', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const sealed = async (filler: number) => await sealer.seal('state', { filler: 'x'.repeat(filler) }, T0 + HOUR);
  const shorter = await sealed(Math.floor(LIMITS.handleChars / 2));
  const longer = await sealed(LIMITS.handleChars);
  assert.notEqual(await sealer.unseal('state', shorter, T0), undefined);
  assert.equal(await sealer.unseal('state', longer, T0), undefined);
});

// SEC-29
test('a handle of another key is invalid, also with our key id', OPTIONS, async () => {
  await using ours = await TestDir.make();
  await using theirs = await TestDir.make();
  const sealer = await openSealer(ours.path);
  const { kid = '' } = decodeProtectedHeader(await sealer.seal('session', PAYLOAD, T0));
  const foreign = await (await openSealer(theirs.path)).seal('session', PAYLOAD, T0 + HOUR);
  assert.equal(await sealer.unseal('session', foreign, T0), undefined);

  const plaintext = Buffer.from(JSON.stringify({ until: T0 + HOUR, payload: PAYLOAD }));
  for (const [enc, bytes] of [
    ['A256GCM', 32],
    ['A128GCM', 16],
    ['A128CBC-HS256', 32],
  ] as const) {
    const forged = await new CompactEncrypt(plaintext)
      .setProtectedHeader({ alg: 'dir', enc, kid, typ: 'session' })
      .encrypt(new Uint8Array(bytes));
    assert.equal(await sealer.unseal('session', forged, T0), undefined, enc);
  }
});

test('a handle opens after a restart', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const text = await (await openSealer(dir.path)).seal('session', PAYLOAD, T0 + HOUR);
  assert.deepEqual(await (await openSealer(dir.path)).unseal('session', text, T0), PAYLOAD);
});

// SEC-30
test('after a rotation old handles open for the grace period, new ones use a new key', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const sealer = await openSealer(dir.path);
  const far = Date.now() + 1_000 * HOUR;
  const old = await sealer.seal('session', { age: 'old' }, far);
  const beforeMs = Date.now();
  await sealer.rotate(HOUR);
  const afterMs = Date.now();
  const young = await sealer.seal('session', { age: 'young' }, far);
  assert.notEqual(decodeProtectedHeader(old).kid, decodeProtectedHeader(young).kid);

  for (const each of [sealer, await openSealer(dir.path)]) {
    assert.deepEqual(await each.unseal('session', old, beforeMs + HOUR - 1), { age: 'old' });
    assert.equal(await each.unseal('session', old, afterMs + HOUR), undefined);
    assert.deepEqual(await each.unseal('session', young, afterMs + HOUR), { age: 'young' });
    const atMs = each.nextExpiryMs(beforeMs) ?? 0;
    assert.ok(atMs >= beforeMs + HOUR && atMs <= afterMs + HOUR);
    assert.equal(each.nextExpiryMs(atMs), undefined, 'the new key has no end');
    assert.deepEqual(
      [atMs - 1, atMs].map((nowMs) => each.mayOpen(old, nowMs)),
      [true, false],
    );
    assert.equal(each.mayOpen(young, atMs), true);
  }

  await sealer.rotate(2 * HOUR);
  assert.equal(
    await sealer.unseal('session', old, afterMs + HOUR),
    undefined,
    'a second rotation gives no second grace',
  );
});

// SEC-30
test('a handle sealed while another process rotates opens there', OPTIONS, async (t) => {
  await using dir = await TestDir.make();
  const here = await openSealer(dir.path);
  const there = await openSealer(dir.path);
  await there.rotate(HOUR);
  const text = await there.seal('session', PAYLOAD, T0 + HOUR);
  const nowMs = performance.now();
  t.mock.method(performance, 'now', () => nowMs + 1_000);
  assert.deepEqual(await here.unseal('session', text, T0), PAYLOAD);
  const { kid } = decodeProtectedHeader(await here.seal('session', PAYLOAD, T0));
  assert.equal(kid, decodeProtectedHeader(text).kid, 'and from then on it is the one we seal with');
});

test('only the owner can read the key file, and no other file is left', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const stateDir = join(dir.path, 'deep', 'state');
  const sealer = await openSealer(stateDir);
  await sealer.rotate(HOUR);
  assert.equal((await stat(stateDir)).mode & 0o777, 0o700);
  assert.equal((await stat(join(stateDir, 'keys.json'))).mode & 0o777, 0o600);
  assert.deepEqual(await readdir(stateDir), ['keys.json']);
  const ring: unknown = JSON.parse(await readFile(join(stateDir, 'keys.json'), 'utf8'));
  assert.ok(typeof ring === 'object' && ring !== null && 'keys' in ring && Array.isArray(ring.keys));
  assert.equal(ring.keys.length, 2);
});

for (const mode of [0o644, 0o604, 0o602, 0o777]) {
  // SEC-14
  test(`a key file of mode ${mode.toString(8)} is refused and left unchanged`, OPTIONS, async () => {
    await using dir = await TestDir.make();
    await openSealer(dir.path);
    const before = await readFile(dir.keys, 'utf8');
    await chmod(dir.keys, mode);
    await assert.rejects(openSealer(dir.path), /by (?:other users|another user) \(mode 0\d\d\d\).*chmod 600/);
    assert.equal(await readFile(dir.keys, 'utf8'), before);
    await chmod(dir.keys, 0o600);
    await openSealer(dir.path);
  });
}

const SECRET = 'c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlYzI';
const NO_RINGS = [
  '',
  '{',
  `{"keys":[{"kid":"a","key":"${SECRET}",`,
  'null',
  '{"keys":[]}',
  `{"keys":["${SECRET}"]}`,
  `{"keys":[{"kid":"a","key":"${SECRET.slice(4)}","created":1}]}`,
  `{"keys":[{"kid":"","key":"${SECRET}","created":1}]}`,
  `{"keys":[{"kid":"a","key":"${SECRET}!","created":1}]}`,
];

for (const text of NO_RINGS) {
  test(`a key file with ${quote(text, 32)} is refused without its secret`, OPTIONS, async () => {
    await using dir = await TestDir.make();
    await writeFile(dir.keys, text, { mode: 0o600 });
    await assert.rejects(openSealer(dir.path), (error) => {
      assert.ok(error instanceof Error);
      assert.match(error.message, /is not a key ring/);
      assert.ok(!`${error.stack} ${String(error.cause)}`.includes(SECRET.slice(4, 12)));
      return true;
    });
    assert.equal(await readFile(dir.keys, 'utf8'), text);
  });
}

test('sealers that start at nearly the same time have the same keys', OPTIONS, async () => {
  for (let steps = 0; steps < 20; steps++) {
    await using dir = await TestDir.make();
    const first = openSealer(dir.path);
    for (let i = 0; i < steps; i++) await new Promise(setImmediate);
    const sealers = await Promise.all([first, openSealer(dir.path), openSealer(dir.path)]);
    const texts = await Promise.all(sealers.map((sealer) => sealer.seal('session', PAYLOAD, T0 + HOUR)));
    for (const sealer of sealers) {
      for (const text of texts) assert.deepEqual(await sealer.unseal('session', text, T0), PAYLOAD);
    }
    assert.deepEqual(await readdir(dir.path), ['keys.json']);
  }
});

test('processes that start at once have the same keys', OPTIONS, async () => {
  await using dir = await TestDir.make();
  const program = fileURLToPath(new URL('../../fixtures/servers/seals.ts', import.meta.url));
  const texts = await Promise.all(
    Array.from({ length: 4 }, async () => {
      const child = spawn(process.execPath, [program, dir.path], { stdio: ['ignore', 'pipe', 'inherit'] });
      const [chunks] = await Promise.all([Array.fromAsync(child.stdout), once(child, 'close')]);
      return Buffer.concat(chunks).toString();
    }),
  );
  const sealer = await openSealer(dir.path);
  for (const text of texts) {
    assert.deepEqual(await sealer.unseal('session', text, T0), { from: 'a process' });
  }
  assert.deepEqual(await readdir(dir.path), ['keys.json']);
});

// SEC-30
test('a handle of a key that is added during a read opens at the next attempt', OPTIONS, async () => {
  const ring = new MemoryKeyStore();
  const reads: PromiseWithResolvers<void>[] = [];
  const store: KeyStore = {
    isShared: true,
    add: async (nowMs, graceMs) => await ring.add(nowMs, graceMs),
    read: async () => {
      const keys = await ring.read();
      const held = Promise.withResolvers<void>();
      reads.push(held);
      if (reads.length !== 2) held.resolve();
      await held.promise;
      return keys;
    },
  };
  const here = await Sealer.open(store);
  const stranger = await (await Sealer.open(new MemoryKeyStore())).seal('session', PAYLOAD, T0 + HOUR);
  const asked = here.unseal('session', stranger, T0);
  await waitUntil(() => reads.length === 2);
  await ring.add(T0, HOUR);
  const text = await (await Sealer.open(ring)).seal('session', PAYLOAD, T0 + HOUR);
  const first = here.unseal('session', text, T0);
  reads[1]?.resolve();
  assert.deepEqual(await Promise.all([asked, first]), [undefined, undefined]);
  assert.deepEqual(await here.unseal('session', text, T0), PAYLOAD);
});

test('a pseudonym is the same for all with the keys, and known after a rotation', async () => {
  await using dir = await TestDir.make();
  const [one, other] = [await openSealer(dir.path), await openSealer(dir.path)];
  const [pseudonym] = one.pseudonymsOf('/mcp');
  assert.match(pseudonym, /^[\w-]{16}$/);
  assert.equal(other.pseudonymsOf('/mcp')[0], pseudonym);
  assert.notEqual(one.pseudonymsOf('/mcp/a')[0], pseudonym);
  await one.rotate(60_000);
  assert.notEqual(one.pseudonymsOf('/mcp')[0], pseudonym);
  assert.ok(one.pseudonymsOf('/mcp').includes(pseudonym));
});
