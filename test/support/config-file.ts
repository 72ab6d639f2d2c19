import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { loadConfig, type Loaded, type LoadOptions } from '../../src/config/load.ts';
import { ConfigError } from '../../src/config/document/problem.ts';

/** Loads a text as the file `config.yaml` in a folder of its own, which is removed afterwards. */
export async function loadText(
  text: string | Uint8Array,
  { name = 'config.yaml', env = {}, ...options }: Partial<LoadOptions> & { name?: string } = {},
): Promise<Loaded> {
  const dir = mkdtempSync(join(tmpdir(), 'linkspan-config-'));
  try {
    const file = join(dir, name);
    writeFileSync(file, text);
    return await loadConfig(file, { env, ...options });
  } finally {
    rmSync(dir, { recursive: true });
  }
}

/** Returns the problems of a text, one per line, without the folder. Empty if the text is valid. */
export async function problemsOf(
  text: string | Uint8Array,
  options: Parameters<typeof loadText>[1] = {},
): Promise<string[]> {
  try {
    await loadText(text, options);
    return [];
  } catch (thrown) {
    if (!(thrown instanceof ConfigError)) throw thrown;
    return thrown.message.split('\n').map((line) => line.replace(/^\/\S*\/linkspan-config-[^/]+\//, ''));
  }
}
