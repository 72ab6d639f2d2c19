import type { ApiKeyStore, KeyChange, StoredKey } from '../api-key-store.ts';
import { addKeyUses, changeKeyFile, readKeyFile, readKeyUses } from './api-key-file.ts';

export interface DiskApiKeyStoreParts {
  /** Absolute path of the key file. */
  readonly file: string;
  /** Times of last use are kept there, since the key file may be read-only; undefined for none. */
  readonly stateDir: string | undefined;
  /** Calls `onChange` after each change of the file. */
  readonly watchFile: (file: string, onChange: () => void) => Promise<Disposable>;
}

/** API keys in a file of their own. */
export class DiskApiKeyStore implements ApiKeyStore {
  readonly #parts: DiskApiKeyStoreParts;

  constructor(parts: DiskApiKeyStoreParts) {
    this.#parts = parts;
  }

  get place(): string {
    return this.#parts.file;
  }

  read(): Promise<readonly StoredKey[]> {
    return readKeyFile(this.#parts.file);
  }

  change(decide: (keys: readonly StoredKey[]) => KeyChange): Promise<void> {
    return changeKeyFile(this.#parts.file, decide);
  }

  watch(onDue: () => void): Promise<Disposable> {
    return this.#parts.watchFile(this.#parts.file, onDue);
  }

  async lastUses(): Promise<ReadonlyMap<string, number>> {
    const { stateDir } = this.#parts;
    return stateDir === undefined ? new Map() : await readKeyUses(stateDir);
  }

  async storeUses(uses: ReadonlyMap<string, number>, known: ReadonlySet<string>): Promise<void> {
    const { stateDir } = this.#parts;
    if (stateDir !== undefined) await addKeyUses(stateDir, uses, known);
  }
}
