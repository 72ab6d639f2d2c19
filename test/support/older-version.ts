import { existsSync } from 'node:fs';
import { mkdtemp, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { command } from '../peers/install/command.ts';

const ROOT = fileURLToPath(new URL('../../', import.meta.url));

/**
 * The older version: the commit of the last release, or before the first one a commit whose replicas work beside those of this tree. A change that its
 * replicas cannot bear needs a newer commit here, and a line in `docs/upgrade.md`.
 */
export const OLDER_COMMIT = 'bc3a4d90bdc0e308e4744b3d08baa6bdf4da21ae';

/** The reason why there can be no older version; undefined if there can be one. */
export const NO_HISTORY: string | undefined = existsSync(join(ROOT, '.git'))
  ? undefined
  : 'the older version comes from the history of a clone, and this folder is none';

/** An older version of the gateway, which runs from its sources with the dependencies of this tree. */
export class OlderVersion implements AsyncDisposable {
  /** The path of its `main.ts`. */
  readonly program: string;
  readonly #dir: string;

  private constructor(dir: string) {
    this.#dir = dir;
    this.program = join(dir, 'src/main.ts');
  }

  /** Takes the sources from the history of this clone. @throws {Error} if they cannot be had. */
  static async checkout(): Promise<OlderVersion> {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-older-'));
    try {
      await assertCommit();
      const archive = join(dir, 'older.tar');
      await git('archive', '--output', archive, OLDER_COMMIT, 'src', 'config', 'package.json');
      await command('tar', ['-xf', archive, '-C', dir], {});
      await symlink(join(ROOT, 'node_modules'), join(dir, 'node_modules'));
      return new OlderVersion(dir);
    } catch (thrown) {
      await rm(dir, { recursive: true, force: true });
      throw thrown;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await rm(this.#dir, { recursive: true, force: true });
  }
}

/** Runs git in this clone, also if another user owns it. */
async function git(...args: readonly string[]): Promise<void> {
  await command('git', ['-c', `safe.directory=${ROOT.replace(/\/$/, '')}`, ...args], { cwd: ROOT });
}

/** Makes sure that the commit is here. A shallow clone fetches it. @throws {Error} */
async function assertCommit(): Promise<void> {
  const has = () => git('cat-file', '-e', `${OLDER_COMMIT}^{commit}`);
  try {
    await has();
  } catch {
    try {
      await git('fetch', '--quiet', '--depth', '1', 'origin', OLDER_COMMIT);
      await has();
    } catch (thrown) {
      const why = `commit ${OLDER_COMMIT}, the older version of this test, is not in this clone and cannot be fetched: use a whole clone`;
      throw new Error(why, { cause: thrown });
    }
  }
}
