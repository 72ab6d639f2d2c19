import { mkdtemp, realpath, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { type RunningGateway, startGateway } from './gateway.ts';

/** Returns the entry file of a package, however deep it is installed. */
const entry = (name: string): string =>
  fileURLToPath(import.meta.resolve(`@modelcontextprotocol/${name}/dist/index.js`));

const node = (name: string, ...args: readonly string[]) => ({
  command: process.execPath,
  args: [entry(name), ...args],
});

/**
 * Returns the config of the four public reference servers.
 *
 * @param dir an existing folder: the file server may read and write it, and the memory server keeps its graph there.
 */
export function referenceServers(dir: string) {
  return {
    everything: node('server-everything', 'stdio'),
    filesystem: node('server-filesystem', dir),
    memory: { ...node('server-memory'), env: { MEMORY_FILE_PATH: `${dir}/memory.jsonl` } },
    'sequential-thinking': node('server-sequential-thinking'),
  };
}

interface ReferenceGateway extends AsyncDisposable {
  readonly gateway: RunningGateway;
  /** The folder of the file server only. */
  readonly dir: string;
}

type Name = keyof ReturnType<typeof referenceServers>;

/**
 * Starts a gateway in front of all four servers, or of some: each costs a process per session, and the time of its
 * start.
 */
export async function startReferenceGateway(
  names: readonly Name[] = ['everything', 'filesystem', 'memory', 'sequential-thinking'],
  section: Readonly<Record<string, unknown>> = {},
): Promise<ReferenceGateway> {
  const dir = await realpath(await mkdtemp(join(tmpdir(), 'linkspan-files-')));
  const remove = () => rm(dir, { recursive: true, force: true });
  try {
    const servers = referenceServers(dir);
    const mcpServers = Object.fromEntries(names.map((name) => [name, servers[name]]));
    const gateway = await startGateway({ mcpServers, gateway: section });
    return {
      gateway,
      dir,
      [Symbol.asyncDispose]: async () => {
        await gateway.stop();
        await remove();
      },
    };
  } catch (thrown) {
    await remove();
    throw thrown;
  }
}
