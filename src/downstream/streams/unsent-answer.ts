import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { ByteBudget } from '../memory/byte-budget.ts';
import { STUCK_MS } from './event-stream.ts';

/** Smaller answers are not counted. */
const SMALL_BYTES = 16_384;

/**
 * Counts the unread bytes of an ended response in the budget. Closes the connection if the client reads nothing for
 * {@link STUCK_MS}, or if the budget is exceeded and this is the biggest holder.
 */
export function holdUnsent(response: ClientResponse, budget: ByteBudget, principal: string): void {
  const bytes = response.writableLength;
  if (bytes < SMALL_BYTES) return;
  const account = budget.join(principal, {
    heldBytes: bytes,
    shed: () => {
      account.leave();
      response.destroy();
    },
  });
  response.setTimeout(STUCK_MS);
  response.once('close', () => account.leave());
  account.add(bytes);
}
