import { settlesWithin } from '../../deadline.ts';
import { isDeepStrictEqual } from 'node:util';
import { messageOf } from '../../thrown.ts';
import type { Logger } from 'pino';
import type { Config } from '../../config/values/config.ts';
import { appliedConfig, diffConfigs, isEmptyDiff, type SettingChange } from '../../config/changes/diff.ts';
import { atRestartLines, diffLines } from '../../config/changes/diff-text.ts';
import { pathWithEffect } from '../../config/changes/change-effects.ts';
import { ConfigError, problemOfWhole } from '../../config/document/problem.ts';
import type { Loaded } from '../../config/load.ts';
import { newlyFailing } from '../../config/last-good.ts';
import type { Setting } from '../../config/settings.ts';
import { StartError } from '../../errors.ts';
import type { ConfigControl, DiskDifference, ReloadCause, ReloadResult } from '../../operator/config-control.ts';
import type { ConfigState } from '../../operator/admin/answers.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { ConfigChange } from './config-change.ts';
import { configHash } from './config-hash.ts';

/** A rejected config is tried again in this interval, if its files are watched. What it lacks, such as a key file, may come later. */
const RETRY_MS = 5_000;
/** The longest time that a stop waits for a config that is being applied. */
const SETTLE_MS = 5_000;

export interface ReloaderParts {
  /** The config at the start. */
  readonly loaded: Loaded;
  /** Loads the files. @throws {ConfigError} */
  load(): Promise<Loaded>;
  isStopping(): boolean;
  /** Loads the files to show the difference. Changes nothing. @throws {ConfigError} */
  preview(): Promise<Loaded>;
  /** Brings a config into effect. Its files are those of each attempt. */
  readonly change: Pick<ConfigChange, 'apply' | 'setFiles'>;
  readonly metrics: Pick<Metrics, 'countReload'>;
  readonly log: Logger;
  /** Runs after each attempt, with its result; not after a retry that fails for the same reason. */
  onReloaded?(cause: ReloadCause, outcome: ReloadResult['outcome']): void;
  /** Runs after a config was applied, before the attempt ends. Never rejects. */
  onApplied?(loaded: Loaded): Promise<void>;
}

/** Loads the config again while the gateway runs. A config that cannot be used changes nothing. */
export class Reloader implements ConfigControl {
  readonly #parts: ReloaderParts;
  #running: Config;
  #state: ConfigState;
  #settings: () => readonly Setting[];
  /** The end of the last attempt. */
  #last: Promise<unknown> = Promise.resolve();
  #retrying: NodeJS.Timeout | undefined;
  #isLoading = false;

  constructor(parts: ReloaderParts) {
    this.#parts = parts;
    this.#running = parts.loaded.config;
    const { config, lastGood } = parts.loaded;
    const state = stateOf(config, parts.loaded, []);
    this.#state =
      lastGood === undefined
        ? state
        : { ...state, lastGoodAt: lastGood.savedAt, rejected: { at: state.loadedAt, reason: lastGood.reason } };
    this.#settings = parts.loaded.settings;
  }

  get state(): ConfigState {
    return this.#state;
  }

  settings(): readonly Setting[] {
    return this.#settings();
  }

  async difference(): Promise<DiskDifference> {
    try {
      const diff = diffConfigs(this.#running, this.#checked(await this.#parts.preview()).config);
      return { lines: diffLines(diff) };
    } catch (thrown) {
      return { problem: messageOf(thrown) };
    }
  }

  reload(cause: ReloadCause): Promise<ReloadResult> {
    return this.#attempt(cause, false);
  }

  #attempt(cause: ReloadCause, isRetry: boolean): Promise<ReloadResult> {
    const attempt = this.#last.then(async () => {
      clearTimeout(this.#retrying);
      const known = isRetry ? this.#state.rejected?.reason : undefined;
      const result = await this.#reload(cause, known);
      if (result.outcome === 'rejected') this.#retryLater(cause);
      if (result.outcome !== 'rejected' || result.reason !== known) this.#parts.onReloaded?.(cause, result.outcome);
      return result;
    });
    this.#last = attempt;
    return attempt;
  }

  #retryLater(cause: ReloadCause): void {
    if (!this.#running.reload.watch) return;
    this.#retrying = setTimeout(() => {
      if (!this.#parts.isStopping()) void this.#attempt(cause, true);
    }, RETRY_MS).unref();
  }

  /** @param known the reason for which the last attempt failed, and which is not reported again. */
  async #reload(cause: ReloadCause, known: string | undefined): Promise<ReloadResult> {
    const { change, metrics, log } = this.#parts;
    const { file } = this.#running;
    try {
      const loaded = this.#checked(await this.#load());
      void change.setFiles(loaded.files);
      const diff = diffConfigs(this.#running, loaded.config);
      const lines = diffLines(diff);
      const atRestart = atRestartLines(diff);
      const isUnchanged = isEmptyDiff({ ...diff, atRestart: [] });
      const before = this.#state;
      const next = appliedConfig(this.#running, loaded.config);
      // Places of rules in the file and whether a port may move are no settings, and still take effect.
      if (!isUnchanged || !isDeepStrictEqual(next, this.#running)) await change.apply(next, diff);
      this.#running = next;
      this.#state = isUnchanged
        ? { ...before, lastGoodAt: undefined, rejected: undefined, atRestart, warnings: [...loaded.warnings] }
        : stateOf(next, loaded, atRestart);
      this.#settings = withRunning(loaded.settings, this.#settings(), diff.atRestart);
      metrics.countReload(isUnchanged ? 'unchanged' : 'applied', Date.now());
      if (!isUnchanged) await this.#parts.onApplied?.(loaded);
      // Claude Code writes its file often, for the sake of members that are not read here.
      const isRewritten = isUnchanged && cause === 'file';
      const logged = new Set(isRewritten ? before.warnings.map(withoutPlace) : []);
      for (const warning of loaded.warnings) if (!logged.has(withoutPlace(warning))) log.warn({ file }, warning);
      if (atRestart.length > 0 && !(isRewritten && isDeepStrictEqual(atRestart, before.atRestart)))
        log.warn({ file, changes: atRestart }, 'changed settings take effect at the next start');
      if (!isUnchanged) log.info({ file, cause, hash: this.#state.hash, changes: lines }, 'config applied');
      else if (before.rejected !== undefined) log.info({ file, cause }, 'config is again as it runs');
      else if (cause !== 'file') log.info({ file, cause }, 'config is unchanged');
      return isUnchanged ? { outcome: 'unchanged' } : { outcome: 'applied', lines };
    } catch (thrown) {
      const reason = messageOf(thrown);
      if (reason === known) return { outcome: 'rejected', reason };
      this.#state = { ...this.#state, rejected: { at: new Date().toISOString(), reason } };
      metrics.countReload('rejected', Date.now());
      const isForOperators = thrown instanceof ConfigError || thrown instanceof StartError;
      const why = isForOperators ? { reason } : { err: thrown };
      log.error({ file, cause, ...why }, 'config rejected; the running one stays');
      return { outcome: 'rejected', reason };
    }
  }

  /** Loads the files, unless the gateway stops meanwhile. What a config starts then would not be stopped any more. */
  async #load(): Promise<Loaded> {
    this.#assertRunning();
    this.#isLoading = true;
    const loaded = await this.#parts.load().finally(() => (this.#isLoading = false));
    this.#assertRunning();
    return loaded;
  }

  #assertRunning(): void {
    if (this.#parts.isStopping()) throw new StartError('the gateway is shutting down');
  }

  /**
   * Resolves when no config is being applied, nor will be, once the gateway stops; at the latest after 5 s. Does not wait for files that are being
   * read. Never rejects.
   */
  async settle(): Promise<void> {
    if (!this.#isLoading) await settlesWithin(this.#last, SETTLE_MS);
  }

  /** Returns a config that was loaded. @throws {ConfigError} for an upstream that would not run any more, or never could. */
  #checked(loaded: Loaded): Loaded {
    const failing = newlyFailing(this.#running.upstreams, loaded.config.upstreams);
    if (failing.length === 0) return loaded;
    const { file } = loaded.config;
    throw new ConfigError(
      failing.map(({ title, problem = '' }) => problemOfWhole(file, problem, `mcpServers.${title}`)),
    );
  }
}

/** Returns a warning without its line and column, which move when something is written before them. */
function withoutPlace(warning: string): string {
  return warning.replace(/:\d+:\d+(?=[ :])/, '');
}

function stateOf(config: Config, { warnings }: Loaded, atRestart: string[]): ConfigState {
  return {
    file: config.file,
    hash: configHash(config),
    loadedAt: new Date().toISOString(),
    lastGoodAt: undefined,
    rejected: undefined,
    atRestart,
    warnings: [...warnings],
  };
}

/** Returns the settings of a loaded file, with the running ones of all that take effect at the next start. */
function withRunning(
  next: () => readonly Setting[],
  running: readonly Setting[],
  atRestart: readonly SettingChange[],
): () => readonly Setting[] {
  if (atRestart.length === 0) return next;
  const paths = new Set(atRestart.map(({ path }) => pathWithEffect(path)));
  const kept = new Map(
    running.filter(({ key }) => paths.has(pathWithEffect(key))).map((setting) => [setting.key, setting]),
  );
  return () => next().map((setting) => kept.get(setting.key) ?? setting);
}
