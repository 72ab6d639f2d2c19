import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { keyStoreContract } from '../key-store.contract.ts';

keyStoreContract('memory', async () =>
  Object.assign(new MemoryKeyStore(), { [Symbol.asyncDispose]: async () => undefined }),
);
