import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { cached } from '../peers/install/cache.ts';
import { command } from '../peers/install/command.ts';
import { installInto, requirements } from '../peers/install/python.ts';

/** A program of the machine or of a registry, or the reason why it is missing. */
export type FoundProgram = { readonly path: string } | { readonly missing: string };

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'linkspan-programs');
/** The folders in which Debian puts the programs of administrators. */
const FOLDERS = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/sbin', '/sbin'];

/** Returns the path of an installed program, or the reason why it is missing. */
export function installedProgram(name: string): FoundProgram {
  const found = FOLDERS.map((folder) => join(folder, name)).find((path) => existsSync(path));
  return found === undefined ? { missing: `${name} is not installed` } : { path: found };
}

/**
 * Returns the path of a program from the machine, or else from a Debian package, which is unpacked into the cache of the user and
 * not installed.
 *
 * @param file path of the program inside the package.
 */
export async function debianProgram(name: string, packageName: string, file: string): Promise<FoundProgram> {
  const installed = installedProgram(name);
  if ('path' in installed) return installed;
  if ('missing' in installedProgram('apt-get')) return { missing: `${name} is not installed, and apt-get is missing` };
  try {
    const dir = await cached(`debian-${packageName}`, [packageName], (draft) => unpack(packageName, draft), CACHE);
    return { path: join(dir, file) };
  } catch (thrown) {
    const why = thrown instanceof Error ? (thrown.message.split('\n')[0] ?? '') : String(thrown);
    return { missing: `${name} is not installed, and Debian's package ${packageName} cannot be had: ${why}` };
  }
}

async function unpack(packageName: string, dir: string): Promise<void> {
  const downloads = await mkdtemp(join(tmpdir(), 'linkspan-debian-'));
  try {
    await command('apt-get', ['download', '-qq', packageName], { cwd: downloads });
    for (const file of await readdir(downloads)) await command('dpkg', ['-x', join(downloads, file), dir]);
  } finally {
    await rm(downloads, { recursive: true, force: true });
  }
}

/** Returns the folder of the programs that `deploy.txt` pins on PyPI, or the reason why they are missing. */
export async function pypiPrograms(): Promise<FoundProgram> {
  try {
    const lock = await readFile(requirements('deploy'), 'utf8');
    return { path: await cached('pypi-deploy', [lock], (draft) => installInto(draft, 'deploy'), CACHE) };
  } catch (thrown) {
    const why = thrown instanceof Error ? (thrown.message.split('\n')[0] ?? '') : String(thrown);
    return { missing: `the programs of PyPI cannot be had: ${why}` };
  }
}
