import type { OnChange } from '../lock/pins.ts';
import type { Config } from './config.ts';
import type { UpstreamConfig } from './upstream-config.ts';

/** Returns the reaction to a definition of an upstream that differs from the lock; undefined if nothing of it is pinned. */
export function onChangeOf({ lock }: Pick<Config, 'lock'>, upstream: UpstreamConfig): OnChange | undefined {
  if (lock === undefined || upstream.lock === 'off') return undefined;
  return upstream.lock ?? lock.onChange;
}
