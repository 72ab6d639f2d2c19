import type { Setting } from '../config/settings.ts';

/** The running config and the one on disk, as the operator sees them. Nothing in it is a secret. */
export interface ConfigState {
  readonly file: string;
  /** The first 12 hex digits of the SHA-256 of the running config; equal in replicas with equal configs. */
  readonly hash: string;
  /** The time when the running config was loaded; ISO 8601. */
  readonly loadedAt: string;
  /**
   * Set if the file was broken at the start (`--last-good`): the time when its upstreams, which run, were saved; ISO 8601. Then
   * `rejected` has the reason. Undefined again as soon as the file is applied.
   */
  readonly lastGoodAt: string | undefined;
  /** The last attempt to load the file, if it was rejected: the running config stays. */
  readonly rejected: { readonly at: string; readonly reason: string } | undefined;
  /** Changed settings that take effect at the next start, one line each. */
  readonly atRestart: readonly string[];
  readonly warnings: readonly string[];
}

/** The difference between the running config and the files on disk at this moment, one line for each setting; or why they cannot be used. */
export type DiskDifference = { readonly lines: readonly string[] } | { readonly problem: string };

/** The outcome of an attempt to load the config. */
export type ReloadResult =
  | { readonly outcome: 'unchanged' }
  | { readonly outcome: 'applied'; readonly lines: readonly string[] }
  | { readonly outcome: 'rejected'; readonly reason: string };

/** The cause of a reload, for the log. */
export type ReloadCause = 'file' | 'signal' | 'operator';

/** Shows and changes the running config: for the log, the signals, the status and the admin API. */
export interface ConfigControl {
  readonly state: ConfigState;
  /** Returns every running setting with its origin, without secrets. */
  settings(): readonly Setting[];
  /** Reads the files and compares them. Changes nothing. */
  difference(): Promise<DiskDifference>;
  /** Loads the files and applies them. Never rejects. Attempts run one after another. */
  reload(cause: ReloadCause): Promise<ReloadResult>;
}
