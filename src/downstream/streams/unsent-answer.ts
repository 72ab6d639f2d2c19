import type { ServerResponse } from 'node:http';
import type { ByteBudget } from '../memory/byte-budget.ts';
import { STUCK_MS } from './event-stream.ts';

/** Less than this is not worth an account. */
const SMALL_BYTES = 16_384;

/**
 * Counts what the client has not read of an ended response. The connection of a client that reads nothing for {@link STUCK_MS} ends,
 * as does that of the slowest reader beyond the budget.
 */
export function holdUnsent(response: ServerResponse, budget: ByteBudget, principal: string): void {
  const bytes = response.writableLength;
  if (bytes < SMALL_BYTES) return;
  let isHeld = true;
  const free = (): void => {
    if (!isHeld) return;
    isHeld = false;
    account.subtract(bytes);
    account.leave();
  };
  const account = budget.join(principal, {
    heldBytes: bytes,
    shed: () => {
      free();
      response.destroy();
    },
  });
  response.setTimeout(STUCK_MS);
  response.once('close', free);
  account.add(bytes);
}
