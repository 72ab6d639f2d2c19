import { execFile } from 'node:child_process';
import { cp, mkdtemp, readdir, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { environmentOn, nodeFolder } from './node-versions.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));
/** The files of the repository that the commands of the pages use. */
const FILES = ['package.json', 'package-lock.json', '.npmrc', 'tsconfig.json', 'src', 'scripts', 'config', 'deploy'];
const PAPERS = ['README.md', 'LICENSE', 'CHANGELOG.md'];

/** The longest time of one command. */
export const STEP_MS = 240_000;

/** The outcome of a command. */
export interface Ran {
  readonly code: number | string | null | undefined;
  readonly stdout: string;
  readonly stderr: string;
}

/** A copy of the repository as after `git clone`, with an empty home directory and one version of Node. */
export class Checkout implements AsyncDisposable {
  /** The folder around the checkout: outputs of commands go there. */
  readonly dir: string;
  /** The folder of the repository. */
  readonly path: string;
  readonly env: Readonly<Record<string, string>>;

  private constructor(dir: string, env: Readonly<Record<string, string>>) {
    this.dir = dir;
    this.path = join(dir, 'checkout');
    this.env = env;
  }

  static async create(nodeVersion: string): Promise<Checkout> {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-node-'));
    const cache = process.env['npm_config_cache'] ?? join(process.env['HOME'] ?? '', '.npm');
    const env = environmentOn(await nodeFolder(nodeVersion), {
      HOME: join(dir, 'home'),
      XDG_STATE_HOME: join(dir, 'state'),
      XDG_RUNTIME_DIR: dir,
      npm_config_cache: cache,
      npm_config_prefer_offline: 'true',
    });
    const checkout = new Checkout(dir, env);
    for (const name of [...FILES, ...PAPERS]) {
      const filter = (file: string) => !file.includes('node_modules');
      await cp(join(ROOT, name), join(checkout.path, name), { recursive: true, filter });
    }
    return checkout;
  }

  /** Runs a command to its end. */
  run(cwd: string, command: string, ...args: readonly string[]): Promise<Ran> {
    return new Promise((resolve) => {
      const options = { cwd, env: this.env, timeout: STEP_MS, killSignal: 'SIGKILL' as const };
      execFile(command, args, options, (error, stdout, stderr) => {
        resolve({ code: error === null ? 0 : error.code, stdout, stderr });
      });
    });
  }

  /**
   * Makes the package from this checkout and installs it, as `npm install --global` does. Returns the folder of its program.
   *
   * @throws {Error} with the output of npm, if one of the two fails.
   */
  async installPackage(): Promise<string> {
    const prefix = join(this.dir, 'prefix');
    await this.#succeed(this.path, 'pack', '--pack-destination', this.dir);
    const tarball = (await readdir(this.dir)).find((name) => name.endsWith('.tgz')) ?? '';
    await this.#succeed(this.dir, 'install', '--global', '--prefix', prefix, join(this.dir, tarball));
    return join(prefix, 'bin');
  }

  async #succeed(cwd: string, ...args: readonly string[]): Promise<void> {
    const { code, stdout, stderr } = await this.run(cwd, 'npm', ...args);
    if (code !== 0) throw new Error(`npm ${args.join(' ')} ended with ${code}:\n${stdout}\n${stderr}`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.dir, { recursive: true, force: true });
  }
}
