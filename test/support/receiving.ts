import { ReceivingBudget } from '../../src/upstream/rpc/receiving-budget.ts';

/** A budget of received messages without a bound. */
export const UNBOUNDED = new ReceivingBudget(Infinity, () => undefined);
