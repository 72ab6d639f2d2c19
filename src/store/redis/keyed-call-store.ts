import { LIMITS } from '../../limits.ts';
import type { KeyedCallBounds, KeyedCallStore, OnKeyedCallLimit } from '../keyed-call-store.ts';
import type { RedisAccess } from './access.ts';
import { CLAIM, END, RELEASE } from './scripts/keyed-call-scripts.ts';

/** Stores calls in Redis, their outcomes encrypted. */
export function redisKeyedCallStore(
  { connection, keys, box }: RedisAccess,
  onLimit: OnKeyedCallLimit,
  bounds: KeyedCallBounds = LIMITS,
): KeyedCallStore {
  return {
    claim: async (call, claim, keepMs) => {
      const entries = keys.keyedCall(call);
      const args = [claim, Math.ceil(keepMs), bounds.keyedCallsPerPrincipal, bounds.keyedCalls];
      const reply = String(await connection.run(CLAIM, entries, args));
      const [state, rest] = [reply.charAt(0), reply.slice(1)];
      if (state === '+') return { kind: 'claimed' };
      if (state === 'c') return { kind: 'running', claim: rest };
      if (state === 'r') return { kind: 'ended', outcome: rest === '' ? undefined : box.open(entries[0], rest) };
      const limit = rest === 'all' ? 'keyedCalls' : 'keyedCallsPerPrincipal';
      onLimit(limit);
      return { kind: 'full', limit };
    },
    end: async (call, claim, outcome, keepMs) => {
      const isKept = outcome !== undefined && Buffer.byteLength(outcome) <= bounds.keyedOutcomeBytes;
      if (outcome !== undefined && !isKept) onLimit('keyedOutcomeBytes');
      const entries = keys.keyedCall(call);
      const sealed = isKept ? box.seal(entries[0], outcome) : '';
      const { keyedOutcomesBytesPerPrincipal, keyedOutcomesBytes } = bounds;
      const args = [claim, sealed, Math.ceil(keepMs), keyedOutcomesBytesPerPrincipal, keyedOutcomesBytes];
      const removed = String(await connection.run(END, entries, args));
      if (removed.includes('p')) onLimit('keyedOutcomesBytesPerPrincipal');
      if (removed.includes('a')) onLimit('keyedOutcomesBytes');
    },
    release: async (call, claim) => {
      await connection.run(RELEASE, keys.keyedCall(call), [claim]);
    },
  };
}
