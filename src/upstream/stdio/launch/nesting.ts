import { hash } from 'node:crypto';
import { COMMAND } from '../../../command-name.ts';
import { StartError } from '../../../errors.ts';

/** Environment variable of all processes that a gateway over stdio starts: the config files of the gateways around them, by digests. */
export const WITHIN = 'LINKSPAN_WITHIN';

const DIGEST_CHARS = 12;

/**
 * Returns the value of {@link WITHIN} for the processes that a gateway over stdio starts.
 *
 * @param file its config file.
 * @param around the value that the gateway was started with.
 * @throws {StartError} if it was started by a gateway with the same file: each would start the next one, without end.
 */
export function within(file: string, around: string | undefined): string {
  const digest = hash('sha256', file).slice(0, DIGEST_CHARS);
  const digests = around === undefined || around === '' ? [] : around.split(',');
  if (!digests.includes(digest)) return [...digests, digest].join(',');
  throw new StartError(
    `an upstream of ${file} has started "${COMMAND} stdio" with the same file, and so itself, again and again. ` +
      `Remove that upstream. If it is an agent that uses this gateway, set its "env" to { "${WITHIN}": "" }`,
  );
}
