import type { AdminPort } from '../../operator/admin/admin-port.ts';
import type { PipeCalls } from '../../store/piped/pipe-calls.ts';
import { ADMIN, outcomeOf, serveReads, TOOL_CALL_MS } from '../admin/admin-methods.ts';

/** Answers the operations of operators that reach the parent. */
export function serveAdmin(calls: Pick<PipeCalls, 'serve'>, port: AdminPort): void {
  serveReads(calls, port);
  calls.serve(ADMIN.catalog, (query) => outcomeOf(() => port.catalog(query)));
  calls.serve(ADMIN.explain, (request) => outcomeOf(() => port.explain(request)));
  calls.serve(ADMIN.restartUpstream, ({ id, drainMs }) => outcomeOf(() => port.restartUpstream(id, drainMs)));
  calls.serve(ADMIN.disableUpstream, ({ id, drainMs }) => outcomeOf(() => port.disableUpstream(id, drainMs)));
  calls.serve(ADMIN.endSession, (digest) => outcomeOf(() => port.endSession(digest)));
  calls.serve(ADMIN.rotateKeys, (graceMs) => outcomeOf(() => port.rotateKeys(graceMs)));
  calls.serve(ADMIN.setLogLevel, (level) =>
    outcomeOf(async () => {
      await port.setLogLevel(level);
      return true;
    }),
  );
  serveCalls(calls, port);
}

/** Makes calls of tools for operators, which end when the operator leaves. */
export function serveCalls(calls: Pick<PipeCalls, 'serve'>, port: Pick<AdminPort, 'callTool'>): void {
  const running = new Map<string, AbortController>();
  calls.serve(ADMIN.callTool, ({ id, operator, call }) =>
    outcomeOf(async () => {
      const leaving = new AbortController();
      running.set(id, leaving);
      try {
        const signal = AbortSignal.any([leaving.signal, AbortSignal.timeout(TOOL_CALL_MS)]);
        return await port.callTool(operator, call, signal);
      } finally {
        running.delete(id);
      }
    }),
  );
  calls.serve(ADMIN.endCall, async (id) => running.get(id)?.abort());
}
