import type { Setting } from '../config/settings.ts';
import type { ConfigState } from './admin/answers.ts';

/**
 * The difference between the running config and the files on disk at this moment, one line for each setting. It is a reason if they cannot
 * be used.
 */
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
