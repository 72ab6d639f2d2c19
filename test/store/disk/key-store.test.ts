import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { openDiskKeys } from '../../../src/store/disk/key-store.ts';
import { keyStoreContract } from '../key-store.contract.ts';

keyStoreContract('disk', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-keys-'));
  const store = await openDiskKeys(dir);
  return Object.assign(store, { [Symbol.asyncDispose]: () => rm(dir, { recursive: true }) });
});
