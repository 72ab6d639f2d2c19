import type { Config } from '../../config/values/config.ts';
import type { ConfigDiff } from '../../config/changes/diff.ts';
import { FileWatch } from '../../config/files/file-watch.ts';
import type { Loaded, LoadedFiles } from '../../config/load.ts';
import { StartError } from '../../errors.ts';
import { type Logger, setLogLevel } from '../../telemetry/log.ts';
import type { Core } from '../core/core.ts';
import type { Edge } from '../edge.ts';
import type { OperatorAccess } from '../operator-access.ts';

export interface ConfigChangeParts {
  /** The config at the start. */
  readonly loaded: Loaded;
  /** The core. A parent has its workers in its place. */
  readonly core: Pick<Core, 'prepare' | 'apply'>;
  readonly access: Pick<OperatorAccess, 'announce' | 'setConfig'>;
  readonly log: Logger;
  /** Runs when a file of the config has changed, if the config has them watched. */
  onFileChange(): void;
}

/** The listeners that follow the config. */
type Listeners = Pick<Edge, 'operatorOrigin' | 'prepare'>;

/** Another config that can be applied. Exactly one of its methods must be called. */
export interface PreparedConfig {
  /**
   * Applies it. Resolves when it serves new requests.
   *
   * @param diff the difference from the running config.
   */
  apply(diff: ConfigDiff): Promise<void>;
  abandon(): Promise<void>;
}

/** Brings another config into effect: in the core, in the listeners, and in the parts for operators. */
export class ConfigChange {
  readonly #parts: ConfigChangeParts;
  #edge: Listeners | undefined;
  #watch: FileWatch | undefined;
  /** The files that the config depends on. */
  #files: LoadedFiles;
  #logLevel: Config['logLevel'];

  constructor(parts: ConfigChangeParts) {
    this.#parts = parts;
    this.#files = parts.loaded.files;
    this.#logLevel = parts.loaded.config.logLevel;
  }

  /** Announces the operator's port of the first config, and begins to watch its files. */
  async begin(edge: Listeners): Promise<void> {
    this.#edge = edge;
    const { access, loaded } = this.#parts;
    await access.announce(edge.operatorOrigin);
    await this.#setWatch(loaded.config.reload.watch);
  }

  /**
   * Applies another config. Resolves when it serves new requests. Rejects before anything has changed.
   *
   * @param diff the difference from the running config.
   */
  async apply(next: Config, diff: ConfigDiff): Promise<void> {
    const prepared = await this.prepare(next);
    await prepared.apply(diff);
  }

  /** Does everything for another config that can fail, and changes nothing. @throws {StartError} if it cannot be applied. */
  async prepare(next: Config): Promise<PreparedConfig> {
    const edge = this.#edge;
    if (edge === undefined) throw new StartError('the gateway is starting');
    const listeners = await edge.prepare(next);
    try {
      await this.#parts.core.prepare(next);
    } catch (thrown) {
      await listeners.abandon();
      throw thrown;
    }
    return { apply: (diff) => this.#apply(edge, listeners, next, diff), abandon: () => listeners.abandon() };
  }

  async #apply(
    edge: Listeners,
    listeners: Awaited<ReturnType<Listeners['prepare']>>,
    next: Config,
    diff: ConfigDiff,
  ): Promise<void> {
    const { core, access, log } = this.#parts;
    const onFailed = (thrown: unknown) => log.error({ err: thrown }, 'drain failed');
    // In one turn: who has lost his credentials must not get the rights that others get now.
    const applying = core.apply(next, diff);
    listeners.apply().catch(onFailed);
    access.setConfig(next);
    const applied = await applying;
    // The level that an operator has set stays until the file has another one.
    if (next.logLevel !== this.#logLevel) setLogLevel(log, next.logLevel);
    this.#logLevel = next.logLevel;
    await Promise.all([access.announce(edge.operatorOrigin), this.#setWatch(next.reload.watch)]);
    applied.drained.catch(onFailed);
  }

  /** Sets the files to watch. Resolves when every later change is reported. */
  async setFiles(files: LoadedFiles): Promise<void> {
    this.#files = files;
    await this.#watch?.setFiles(files);
  }

  async #setWatch(isOn: boolean): Promise<void> {
    if (!isOn) return this.endWatch();
    this.#watch ??= new FileWatch(() => this.#parts.onFileChange());
    await this.#watch.setFiles(this.#files);
  }

  endWatch(): void {
    this.#watch?.[Symbol.dispose]();
    this.#watch = undefined;
  }
}
