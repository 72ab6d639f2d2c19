import { randomUUID } from 'node:crypto';
import { addAbortListener } from 'node:events';
import { GatewayError } from '../../errors.ts';
import { AdminError, type AdminPort, type OperatorCall } from '../../operator/admin/admin-port.ts';
import type { DoneAnswer, StatusAnswer } from '../../operator/admin/answers.ts';
import type { PipeMethod } from '../../store/piped/pipe-calls.ts';
import { disabledReason } from '../reload/upstream-changes.ts';
import { ADMIN, type Answered, OPERATOR_CALL_MS, TOOL_CALL_MS } from '../admin/admin-methods.ts';
import {
  longestFirst,
  mergedClients,
  mergedSessions,
  mergedStreams,
  mergedUpstreams,
  withCountsOf,
} from '../admin/merged-answers.ts';
import type { OperatorChanges } from './methods.ts';
import type { WorkerProcess } from './worker-process.ts';

/** The operations of the port that workers answer. The others are those of the parent. */
type WorkerAnswers = Pick<AdminPort, Exclude<keyof typeof ADMIN, 'endCall'>>;

const NO_WORKER = 'No worker runs at the moment. Try again.';

/** The part of a worker that answers operators. */
type AskedWorker = Pick<WorkerProcess, 'call' | 'given'>;

/** Asks the workers, and makes one answer of theirs. Changes go to all of them, and the first refusal is reported. */
export class MergedAdmin {
  readonly #workers: () => readonly AskedWorker[];
  readonly #disabled = new Map<string, string>();

  constructor(workers: () => readonly AskedWorker[]) {
    this.#workers = workers;
  }

  /** Asks one worker. @throws {AdminError} */
  async #ask<Args, Value>(
    worker: AskedWorker,
    method: PipeMethod<Args, Answered<Value>>,
    args: Args,
    callMs?: number,
  ): Promise<Value> {
    const answer = await worker.call(method, args, callMs);
    if ('value' in answer) return answer.value;
    throw new AdminError(answer.refused.error, answer.refused.message);
  }

  /** Asks all workers. One that ends meanwhile has no answer. @throws {AdminError} the first refusal, after all have answered. */
  async #askAll<Args, Value>(
    method: PipeMethod<Args, Answered<Value>>,
    args: Args,
    callMs?: number,
  ): Promise<readonly Value[]> {
    const answers = await Promise.allSettled(this.#workers().map((worker) => this.#ask(worker, method, args, callMs)));
    const refusal = answers.find((each) => each.status === 'rejected' && !(each.reason instanceof GatewayError));
    if (refusal?.status === 'rejected') throw refusal.reason;
    return answers.flatMap((each) => (each.status === 'fulfilled' ? [each.value] : []));
  }

  /** The first worker. @throws {AdminError} if none runs. */
  get #first(): AskedWorker {
    const [worker] = this.#workers();
    if (worker === undefined) throw new AdminError('internal-error', NO_WORKER);
    return worker;
  }

  async #askFirst<Args, Value>(method: PipeMethod<Args, Answered<Value>>, args: Args, callMs?: number): Promise<Value> {
    return await this.#ask(this.#first, method, args, callMs);
  }

  get port(): WorkerAnswers {
    return {
      status: () => this.#status(),
      upstreams: async () => {
        const answers = await this.#askAll(ADMIN.upstreams, undefined);
        return { upstreams: [...mergedUpstreams(answers.map(({ upstreams }) => upstreams))] };
      },
      catalog: (query) => this.#askFirst(ADMIN.catalog, query),
      explain: (request) => this.#askFirst(ADMIN.explain, request),
      clients: async () => {
        const answers = await this.#askAll(ADMIN.clients, undefined);
        return { clients: mergedClients(answers.flatMap(({ clients }) => clients)) };
      },
      sessions: async () => {
        const answers = await this.#askAll(ADMIN.sessions, undefined);
        const sessions = mergedSessions(answers.flatMap((each) => each.sessions));
        return { sessions, isCut: answers.some(({ isCut }) => isCut) };
      },
      streams: async () => {
        const answers = await this.#askAll(ADMIN.streams, undefined);
        const streams = mergedStreams(answers.flatMap((each) => each.streams));
        return { streams, isCut: answers.some(({ isCut }) => isCut) };
      },
      calls: async () => {
        const answers = await this.#askAll(ADMIN.calls, undefined);
        const calls = answers.flatMap((each) => each.calls).toSorted(longestFirst);
        return { calls, isCut: answers.some(({ isCut }) => isCut) };
      },
      restartUpstream: (id, drainMs) => this.#restart(id, drainMs),
      disableUpstream: (id, drainMs) => this.#disable(id, drainMs),
      endSession: (digest) => this.#endSession(digest),
      // One worker adds the key. The others read it.
      rotateKeys: (graceMs) => this.#askFirst(ADMIN.rotateKeys, graceMs),
      setLogLevel: (level) => {
        void this.#askAll(ADMIN.setLogLevel, level).catch(() => undefined);
        return [];
      },
      callTool: (operator, call, signal) => this.#call(operator, call, signal),
    };
  }

  async #status(): Promise<StatusAnswer> {
    const [first, ...others] = await this.#askAll(ADMIN.status, undefined);
    if (first === undefined) throw new AdminError('internal-error', NO_WORKER);
    const all = [first, ...others];
    const upstreams = all.map((each) => each.upstreams).reduce((a, b) => (a.ready >= b.ready ? a : b));
    const reasons = [...new Set(all.flatMap((each) => each.reasons))];
    return { ...withCountsOf(first, others), isReady: all.every(({ isReady }) => isReady), reasons, upstreams };
  }

  /** The reasons why operators have taken upstreams out of service, by id. A worker that starts gets them. */
  get disabled(): ReadonlyMap<string, string> {
    return new Map(this.#disabled);
  }

  /** Forgets upstreams that the config does not have any more. @param ids those that it has. */
  forgetRemoved(ids: ReadonlySet<string>): void {
    for (const id of this.#disabled.keys()) if (!ids.has(id)) this.#disabled.delete(id);
  }

  /** Tells a worker what operators have changed while it has started. Never rejects. */
  async bringUpToDate(worker: AskedWorker, { disabled, logLevel }: OperatorChanges): Promise<void> {
    const given = worker.given;
    if (given === undefined) return;
    const at = (id: string) => ({ id, drainMs: 0 });
    const added = [...disabled.keys()].filter((id) => !given.disabled.has(id));
    const ended = [...given.disabled.keys()].filter((id) => !disabled.has(id));
    await Promise.allSettled([
      ...added.map((id) => this.#ask(worker, ADMIN.disableUpstream, at(id), OPERATOR_CALL_MS)),
      ...ended.map((id) => this.#ask(worker, ADMIN.restartUpstream, at(id), OPERATOR_CALL_MS)),
      ...(logLevel === given.logLevel ? [] : [this.#ask(worker, ADMIN.setLogLevel, logLevel)]),
    ]);
  }

  async #restart(id: string, drainMs: number) {
    this.#disabled.delete(id);
    const answers = await this.#askAll(ADMIN.restartUpstream, { id, drainMs }, OPERATOR_CALL_MS);
    const answer = answers.find(({ isStarted }) => !isStarted) ?? answers[0];
    return answer ?? (await this.#askFirst(ADMIN.restartUpstream, { id, drainMs }, OPERATOR_CALL_MS));
  }

  async #disable(id: string, drainMs: number): Promise<DoneAnswer> {
    const isNew = !this.#disabled.has(id);
    // Before it is drained, which takes a while: a worker that starts meanwhile needs it too.
    if (isNew) this.#disabled.set(id, disabledReason(id));
    try {
      const [done] = await this.#askAll(ADMIN.disableUpstream, { id, drainMs }, OPERATOR_CALL_MS);
      return done ?? (await this.#askFirst(ADMIN.disableUpstream, { id, drainMs }, OPERATOR_CALL_MS));
    } catch (thrown) {
      if (isNew) this.#disabled.delete(id);
      throw thrown;
    }
  }

  /** A session is at one worker; the others do not know it. */
  async #endSession(digest: string): Promise<string> {
    let refusal = new AdminError('not-found', NO_WORKER);
    for (const worker of this.#workers()) {
      try {
        return await this.#ask(worker, ADMIN.endSession, digest);
      } catch (thrown) {
        if (!(thrown instanceof AdminError) || thrown.code !== 'not-found') throw thrown;
        refusal = thrown;
      }
    }
    throw refusal;
  }

  async #call(operator: string, call: OperatorCall, signal: AbortSignal) {
    const id = randomUUID();
    const worker = this.#first;
    const called = this.#ask(worker, ADMIN.callTool, { id, operator, call }, TOOL_CALL_MS);
    using _leaving = addAbortListener(signal, () => void worker.call(ADMIN.endCall, id).catch(() => undefined));
    return await called;
  }
}
