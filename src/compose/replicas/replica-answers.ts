import { z } from 'zod';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import * as answers from '../../operator/admin/answers.ts';
import type { OperatorHandler } from '../../replicas/operator-question.ts';
import { method, NOTHING, ServedMethods } from '../../store/piped/pipe-calls.ts';
import { answered, outcomeOf, serveReads } from '../admin/admin-methods.ts';
import { changesRecord, type LatestChanges } from './latest-changes.ts';

const TEXT = z.string();
/** The operator who asks, and the replica that was asked. */
const ORIGIN = { operator: TEXT, through: TEXT };
const UPSTREAM = z.object({ id: TEXT, drainMs: z.number(), at: z.number(), ...ORIGIN });

/** The operations that a replica carries out for another one, besides the reads of `ADMIN`. */
export const REPLICA = {
  changes: method('replica.changes', NOTHING, answered(changesRecord)),
  restartUpstream: method('replica.restartUpstream', UPSTREAM, answered(answers.restartAnswer)),
  disableUpstream: method('replica.disableUpstream', UPSTREAM, answered(answers.doneAnswer)),
  endSession: method('replica.endSession', z.object({ digest: TEXT, ...ORIGIN }), answered(TEXT)),
  setLogLevel: method(
    'replica.setLogLevel',
    z.object({ level: answers.logLevelAnswer.shape.level, at: z.number(), ...ORIGIN }),
    answered(z.boolean()),
  ),
} as const;

export interface ReplicaAnswersParts {
  /** The operations of this replica alone. */
  readonly own: AdminPort;
  readonly changes: LatestChanges;
  readonly hasSession: (digest: string) => boolean;
  /** Records an operation for which another replica was asked. */
  readonly onOperation: (operator: string, operation: string, target: string | undefined, through: string) => void;
}

const LATER = 'a later change of an operator holds';

/** @throws {AdminError} if the later change has not the same effect, so that the asked one is not confirmed. */
function yieldToLater(isSame: boolean): void {
  if (!isSame) throw new AdminError('invalid-request', LATER);
}

export function replicaAnswers(parts: ReplicaAnswersParts): OperatorHandler {
  const { own, changes, hasSession, onOperation } = parts;
  const served = new ServedMethods();
  serveReads(served, own);
  served.serve(REPLICA.changes, async () => ({ value: changes.record }));
  served.serve(REPLICA.restartUpstream, ({ id, drainMs, at, operator, through }) =>
    outcomeOf(async () => {
      onOperation(operator, 'restartUpstream', id, through);
      if (changes.noteUpstream(id, at, false)) return await own.restartUpstream(id, drainMs);
      yieldToLater(!changes.isDisabled(id));
      return { isStarted: true, message: LATER };
    }),
  );
  served.serve(REPLICA.disableUpstream, ({ id, drainMs, at, operator, through }) =>
    outcomeOf(async () => {
      onOperation(operator, 'disableUpstream', id, through);
      if (changes.noteUpstream(id, at, true)) return await own.disableUpstream(id, drainMs);
      yieldToLater(changes.isDisabled(id));
      return { message: LATER };
    }),
  );
  served.serve(REPLICA.endSession, ({ digest, operator, through }) =>
    outcomeOf(async () => {
      // Only the replica that has the session records it, also if it fails to end it.
      if (hasSession(digest)) onOperation(operator, 'endSession', digest, through);
      return await own.endSession(digest);
    }),
  );
  served.serve(REPLICA.setLogLevel, ({ level, at, operator, through }) =>
    outcomeOf(async () => {
      onOperation(operator, 'setLogLevel', undefined, through);
      if (changes.noteLogLevel(level, at)) await own.setLogLevel(level);
      else yieldToLater(own.logLevel === level);
      return true;
    }),
  );
  return (operation, args) => served.answer(operation, args);
}
