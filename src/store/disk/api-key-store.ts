import type { ApiKeyStore, StoredKey } from '../api-key-store.ts';
import { addKeyUses, changeKeyFile, readKeyFile, readKeyUses } from './api-key-file.ts';

export interface DiskApiKeyStoreParts {
  /** Absolute path of the key file. */
  readonly file: string;
  /** Times of last use are kept there, since the key file may be read-only; undefined for none. */
  readonly stateDir: string | undefined;
  /** Calls `onChange` after each change of the file. */
  readonly watchFile: (file: string, onChange: () => void) => Promise<Disposable>;
}

/** Returns the store of API keys in a file of their own. */
export function diskApiKeyStore({ file, stateDir, watchFile }: DiskApiKeyStoreParts): ApiKeyStore {
  let keys: readonly StoredKey[] = [];
  return {
    place: file,
    read: async () => {
      keys = await readKeyFile(file, keys);
      return keys;
    },
    change: (decide) => changeKeyFile(file, decide),
    watch: (onDue) => watchFile(file, onDue),
    lastUses: async () => (stateDir === undefined ? new Map() : await readKeyUses(stateDir)),
    storeUses: async (uses, known) => {
      if (stateDir !== undefined) await addKeyUses(stateDir, uses, known);
    },
  };
}
