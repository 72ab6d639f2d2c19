import { z } from 'zod';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import type { CatalogQuery, ExplainRequest, OperatorCall } from '../../operator/admin/admin-port.ts';
import * as answers from '../../operator/admin/answers.ts';
import { method, NOTHING, ours, type ServedMethods } from '../../store/piped/pipe-calls.ts';

const TEXT = z.string();
/** The longest time that an operation of an operator takes: that of the longest drain. */
export const OPERATOR_CALL_MS = 660_000;
/** The longest time of a tool call, which its upstream bounds: that of `timeouts.max`. */
export const TOOL_CALL_MS = 86_400_000;

/** The outcome of an operation for operators: `refused` is an `AdminError`. */
export type Answered<Value> = { readonly value: Value } | { readonly refused: z.output<typeof answers.refusalAnswer> };

/** Returns the schema of the outcome of an operation. */
export function answered<Value>(value: z.ZodType<Value>): z.ZodType<Answered<Value>> {
  return z.union([z.object({ value }), z.object({ refused: answers.refusalAnswer })]);
}

const DRAIN = z.object({ id: TEXT, drainMs: z.number() });

/** The operations for operators that a process carries out for the one that was asked. */
export const ADMIN = {
  status: method('admin.status', NOTHING, answered(answers.statusAnswer)),
  upstreams: method('admin.upstreams', NOTHING, answered(answers.upstreamsAnswer)),
  catalog: method('admin.catalog', ours<CatalogQuery>(), answered(answers.catalogAnswer)),
  explain: method('admin.explain', ours<ExplainRequest>(), answered(answers.explainAnswer)),
  clients: method('admin.clients', NOTHING, answered(answers.clientsAnswer)),
  sessions: method('admin.sessions', NOTHING, answered(answers.sessionsAnswer)),
  streams: method('admin.streams', NOTHING, answered(answers.streamsAnswer)),
  calls: method('admin.calls', NOTHING, answered(answers.callsAnswer)),
  restartUpstream: method('admin.restartUpstream', DRAIN, answered(answers.restartAnswer)),
  disableUpstream: method('admin.disableUpstream', DRAIN, answered(answers.doneAnswer)),
  endSession: method('admin.endSession', TEXT, answered(TEXT)),
  rotateKeys: method('admin.rotateKeys', z.number().optional(), answered(TEXT)),
  setLogLevel: method('admin.setLogLevel', answers.logLevelAnswer.shape.level, answered(z.boolean())),
  callTool: method(
    'admin.callTool',
    z.object({ id: TEXT, operator: TEXT, call: ours<OperatorCall>() }),
    answered(answers.toolCallAnswer),
  ),
  /** Ends the call of a tool with this id, because its operator has left. */
  endCall: method('admin.endCall', TEXT, NOTHING),
} as const;

/** Carries out an operation for another process. */
export async function outcomeOf<Value>(run: () => Value | Promise<Value>): Promise<Answered<Value>> {
  try {
    return { value: await run() };
  } catch (thrown) {
    if (!(thrown instanceof AdminError)) throw thrown;
    return { refused: { error: thrown.code, message: thrown.message } };
  }
}

/** Answers the operations that change nothing, and that other processes make one answer of. */
export function serveReads(served: Pick<ServedMethods, 'serve'>, port: AdminPort): void {
  served.serve(ADMIN.status, () => outcomeOf(() => port.status()));
  served.serve(ADMIN.upstreams, () => outcomeOf(() => port.upstreams()));
  served.serve(ADMIN.clients, () => outcomeOf(() => port.clients()));
  served.serve(ADMIN.sessions, () => outcomeOf(() => port.sessions()));
  served.serve(ADMIN.streams, () => outcomeOf(() => port.streams()));
  served.serve(ADMIN.calls, () => outcomeOf(() => port.calls()));
}
