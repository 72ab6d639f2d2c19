import { systemCode } from '../thrown.ts';
import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import { ApiKeys } from '../auth/api-key.ts';
import type { Config } from '../config/values/config.ts';
import {
  newOperatorToken,
  readOperatorFile,
  removeOperatorFile,
  writeOperatorFile,
} from '../store/disk/operator-file.ts';
import { VERSION } from '../version.ts';

/** The name of the operator with the key in the state directory. */
const LOCAL_OPERATOR = 'local';
/** The file is written again after this time if there is none. A full disk, or another replica with the same directory, can be the reason. */
const KEEP_MS = 10_000;

export interface OperatorAccessParts {
  readonly startedAtMs: number;
  /** True if this process owns the state directory. Two gateways must not overwrite each other's file. */
  readonly ownsState: boolean;
  readonly log: Logger;
}

/** The keys of operators: those of the config, and one for the command line in the state directory of this start. */
export class OperatorAccess {
  readonly #parts: OperatorAccessParts;
  readonly #token = newOperatorToken();
  #config: Config;
  #keys: ApiKeys;
  /** The URL in the file; undefined if there is to be no file. */
  #url: string | undefined;
  #timer: NodeJS.Timeout | undefined;
  #keeping: Promise<void> | undefined;
  /** True while the log says that the file cannot be written. */
  #isReported = false;

  constructor(config: Config, parts: OperatorAccessParts) {
    this.#parts = parts;
    this.#config = config;
    this.#keys = this.#keysOf(config);
  }

  /** The keys that are accepted at this moment; another object after each change. */
  get keys(): ApiKeys {
    return this.#keys;
  }

  /** Accepts the keys of another config from now on, and no others. */
  setConfig(config: Config): void {
    this.#config = config;
    this.#keys = this.#keysOf(config);
  }

  #keysOf({ operatorKeys }: Config): ApiKeys {
    return new ApiKeys([...operatorKeys, { name: LOCAL_OPERATOR, sha256: hash('sha256', this.#token) }]);
  }

  /**
   * Writes the file by which the command line finds this gateway, or removes it if the gateway has no operator's port. It is written
   * to the default state directory too, where it is found while the config file is broken. The gateway works without these files,
   * so a failure is only logged.
   *
   * @param url of the operator's port.
   */
  async announce(url: string | undefined): Promise<void> {
    if (!this.#parts.ownsState || url === this.#url) return;
    if (url === undefined) return await this.withdraw();
    this.#url = url;
    await this.#write(url);
    this.#timer ??= setInterval(() => {
      this.#keeping = this.#keep();
    }, KEEP_MS).unref();
  }

  /** Writes the file again if there is none. Never rejects. */
  async #keep(): Promise<void> {
    await this.#keeping;
    const found = await readOperatorFile(this.#config.stateDir).catch(String);
    if (found === undefined && this.#url !== undefined) await this.#write(this.#url);
  }

  async #write(url: string): Promise<void> {
    const { stateDir, defaultStateDir, file: configFile } = this.#config;
    const { log, startedAtMs } = this.#parts;
    const startedAt = new Date(startedAtMs).toISOString();
    const content = { url, token: this.#token, pid: process.pid, version: VERSION, configFile, startedAt };
    try {
      await writeOperatorFile(stateDir, content);
      this.#isReported = false;
    } catch (thrown) {
      const message = 'the command line cannot find this gateway until its file can be written';
      if (!this.#isReported) log.warn({ err: thrown, stateDir }, message);
      this.#isReported = true;
      return;
    }
    if (defaultStateDir === stateDir) return;
    try {
      await writeOperatorFile(defaultStateDir, content);
    } catch (thrown) {
      if (!(thrown instanceof Error && systemCode(thrown) !== undefined)) throw thrown;
      const message =
        'the command line finds this gateway only while its config file can be read; set XDG_STATE_HOME or HOME to a writable directory';
      log.info({ reason: thrown.message, dir: defaultStateDir }, message);
    }
  }

  /** Removes the files. */
  async withdraw(): Promise<void> {
    if (this.#url === undefined) return;
    this.#url = undefined;
    clearInterval(this.#timer);
    this.#timer = undefined;
    await this.#keeping;
    const { stateDir, defaultStateDir } = this.#config;
    for (const dir of new Set([stateDir, defaultStateDir])) {
      await removeOperatorFile(dir, this.#token).catch((thrown: unknown) =>
        this.#parts.log.warn({ err: thrown, dir }, 'the file for the command line cannot be removed'),
      );
    }
  }
}
