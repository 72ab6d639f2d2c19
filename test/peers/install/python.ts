import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { cached } from './cache.ts';
import { command, succeeds } from './command.ts';

/** Sets of packages that exclude each other, each with a virtual environment of its own. */
export const PYTHON_SETS = ['mcp1', 'mcp2', 'fastmcp'] as const;
export type PythonSet = (typeof PYTHON_SETS)[number];

const PYTHONS = ['python3', 'python3.11', 'python3.12', 'python3.13', 'python3.14'];
/** The lock files are made for this version, and later versions can install them too. */
const VERSION_PROGRAM = 'import sys; print(sys.executable); sys.exit(sys.version_info < (3, 11))';

/** Returns the lock file of a set of packages. */
export const requirements = (name: string): URL => new URL(`requirements/${name}.txt`, import.meta.url);

async function findPython(): Promise<string> {
  for (const name of PYTHONS) {
    if (await succeeds(name, ['-c', VERSION_PROGRAM])) return (await command(name, ['-c', VERSION_PROGRAM])).trim();
  }
  throw new Error(`the tests need Python 3.11 or newer; none of ${PYTHONS.join(', ')} is one`);
}

/** Installs the package that Debian leaves out of Python. Only root can; others get its name in the error. */
async function installVenvPackage(): Promise<void> {
  const isRoot = process.getuid?.() === 0;
  if (!isRoot || !(await succeeds('apt-get', ['--version']))) {
    throw new Error('this Python has neither pip nor venv; on Debian: apt-get install python3-venv');
  }
  console.error('peers: apt-get install python3-venv');
  const env = { DEBIAN_FRONTEND: 'noninteractive' };
  await command('apt-get', ['update', '-qq'], { env });
  await command('apt-get', ['install', '-qq', '-y', 'python3-venv'], { env });
}

async function installUv(python: string, dir: string): Promise<void> {
  const locked = ['--quiet', '--disable-pip-version-check', '--require-hashes', '-r', requirements('uv').pathname];
  if (await succeeds(python, ['-m', 'pip', '--version'])) {
    await command(python, ['-m', 'pip', 'install', '--target', dir, ...locked]);
    return;
  }
  if (!(await succeeds(python, ['-m', 'ensurepip', '--version']))) await installVenvPackage();
  await command(python, ['-m', 'venv', dir]);
  await command(join(dir, 'bin', 'pip'), ['install', ...locked]);
}

/** Returns the program `uv`, which creates a virtual environment in seconds. With pip it takes a minute. */
export async function uv(python?: string): Promise<string> {
  const lock = await readFile(requirements('uv'), 'utf8');
  const interpreter = python ?? (await findPython());
  const dir = await cached('uv', [lock, interpreter], (draft) => installUv(interpreter, draft));
  return join(dir, 'bin', 'uv');
}

let uvProgram: Promise<string> | undefined;

/** Makes uv trust the system's certificates, and use the mirror that is configured for pip. */
function uvEnvironment(): Readonly<Record<string, string>> {
  const { PIP_INDEX_URL, UV_DEFAULT_INDEX } = process.env;
  const isMirrored = PIP_INDEX_URL !== undefined && UV_DEFAULT_INDEX === undefined;
  return { UV_SYSTEM_CERTS: 'true', ...(isMirrored ? { UV_DEFAULT_INDEX: PIP_INDEX_URL } : {}) };
}

/** Puts the packages of a lock file into a folder. @throws {Error} */
export async function installInto(dir: string, name: string): Promise<void> {
  const args = ['pip', 'install', '--quiet', '--require-hashes', '--python', await findPython(), '--target', dir];
  await command(await uv(), [...args, '-r', requirements(name).pathname], { env: uvEnvironment() });
}

const installed = new Map<PythonSet, Promise<string>>();

async function install(set: PythonSet): Promise<string> {
  const python = await findPython();
  const lock = await readFile(requirements(set), 'utf8');
  uvProgram ??= uv(python);
  const program = await uvProgram;
  const dir = await cached(`python-${set}`, [lock, python], async (draft) => {
    const env = uvEnvironment();
    await command(program, ['venv', '--quiet', '--clear', '--no-python-downloads', '--python', python, draft], { env });
    const into = ['--python', join(draft, 'bin', 'python')];
    const args = ['pip', 'sync', '--quiet', '--require-hashes', '--compile-bytecode', ...into];
    await command(program, [...args, requirements(set).pathname], { env });
  });
  return join(dir, 'bin', 'python');
}

/** Returns the interpreter of a virtual environment with the pinned packages of a set. */
export function pythonWith(set: PythonSet): Promise<string> {
  const python = installed.get(set) ?? install(set);
  installed.set(set, python);
  return python;
}
