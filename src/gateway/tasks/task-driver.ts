import { setTimeout as sleep } from 'node:timers/promises';
import { failureOfBegunCall, GatewayError } from '../../errors.ts';
import { readRequests, readResult } from '../../protocol/input-required.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import { detach, KeptSet } from '../../json/kept-text.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { pollIntervalMs } from '../../protocol/tasks.ts';
import { UPSTREAM_DIALECTS } from '../dialects/upstream-dialect.ts';
import { assertComplete, toolFailure } from '../forward/result-translator.ts';
import { collectInput } from '../questions/collect-input.ts';
import { OpenedPages } from '../questions/opened-pages.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { UpstreamResult } from '../forward/result-translator.ts';
import type { Sender } from '../forward/sender.ts';

export interface TaskSite {
  readonly upstream: Upstream;
  readonly link: Link;
  /** The id that the upstream uses. */
  readonly task: string;
}

/** Returns the origin of answers about a task. */
export function originOf({ upstream, link }: TaskSite): UpstreamResult {
  return { upstream: upstream.id, era: link.era, source: undefined };
}

/** Returns a failure of a request about a task. If it is malformed JSON, the upstream has sent it. */
export function taskFailure(thrown: unknown, { upstream: { id } }: TaskSite): unknown {
  if (!(thrown instanceof JsonTextError)) return thrown;
  const message = `upstream "${id}" sent malformed JSON about a task`;
  return new GatewayError('upstream-protocol', { upstream: id, message }, thrown);
}

/** The pause between two polls: the default, and the bounds of the upstream's own interval. */
const POLL_MS = 1_000;
const MIN_POLL_MS = 10;
const MAX_POLL_MS = 30_000;

function pauseMs(state: RawObject): number {
  return Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, pollIntervalMs(state) ?? POLL_MS));
}

/** Waits for the end of a task on behalf of a client that does not poll it: the client's request stays open meanwhile. */
export class TaskDriver {
  readonly #sender: Sender;
  readonly #policy: QuestionPolicy;

  constructor(sender: Sender, policy: QuestionPolicy) {
    this.#policy = policy;
    this.#sender = sender;
  }

  /**
   * Resolves with the outcome of the task, untranslated: the answer that the call would have got without a task.
   *
   * @param first the state in which the upstream created the task.
   * @throws {GatewayError} `cancelled`, `upstream-timeout`, or the failure of a request to the upstream, never with `executed: "no"`: the tool is
   *   running. The task is then cancelled.
   */
  async finish(exchange: OpenExchange, site: TaskSite, first: RawObject): Promise<Answer> {
    // A task needs no slot between two polls.
    exchange.releaseSlot();
    const dueMs = performance.now() + site.upstream.config.timeouts.maxMs;
    try {
      return await this.#poll(exchange, site, first, dueMs);
    } catch (caught) {
      this.cancel(exchange, site);
      const thrown = taskFailure(caught, site);
      if (!(thrown instanceof GatewayError)) throw thrown;
      if (thrown.code !== 'client-unreachable') throw failureOfBegunCall(thrown);
      exchange.toldFailure = thrown.code;
      return toolFailure(thrown.message);
    } finally {
      site.link.connection.forgetProgress(exchange);
    }
  }

  async #poll(exchange: OpenExchange, site: TaskSite, first: RawObject, dueMs: number): Promise<Answer> {
    const dialect = UPSTREAM_DIALECTS[site.link.era];
    const asked = new KeptSet();
    for (let state = first; ;) {
      if (state.string('status') === 'cancelled') throw cancelledByUpstream(site);
      const step = dialect.taskStep(state);
      if (step.kind === 'end') {
        // The error is the upstream's, though it came in a result: its data may look like that of the gateway.
        if (step.answer.kind === 'error') exchange.outcome = { answer: step.answer, error: 'rpc_error' };
        else assertComplete(site.upstream.id, 'a task', readResult(RawObject.parse(step.answer.result)));
        return step.answer;
      }
      if (step.kind === 'fetch') {
        // The last poll may say that the task is done, when its time is over.
        const silentMs = Math.max(site.upstream.config.timeouts.callMs, dueMs - performance.now());
        return await this.#send(exchange, site, 'tasks/result', { silentMs });
      }
      if (step.kind === 'ask') await this.#answerQuestions(exchange, site, state, asked);
      await pause(exchange, site, state, dueMs);
      const answer = await this.#send(exchange, site, 'tasks/get');
      if (answer.kind === 'error') return answer;
      state = RawObject.parse(answer.result);
    }
  }

  /** Asks the client the questions that are not in `asked` yet, and sends its answers to the upstream. */
  async #answerQuestions(exchange: OpenExchange, site: TaskSite, state: RawObject, asked: KeptSet): Promise<void> {
    const raw = state.raw('inputRequests') ?? 'null';
    const requests = raw === 'null' ? [] : readRequests(raw);
    if (requests === undefined) {
      const message = `upstream "${site.upstream.id}" has a task whose input request is not a valid request`;
      throw new GatewayError('upstream-protocol', { upstream: site.upstream.id, message });
    }
    const inputRequests = requests.filter(({ key }) => !asked.has(key));
    if (inputRequests.length === 0) return;
    for (const { key } of inputRequests) asked.add(detach(key));
    const questions = { inputRequests, requestState: undefined };
    // Its questions are asked once anyway, by their keys.
    const opened = new OpenedPages(0);
    const { inputResponses } = await collectInput(this.#policy, exchange, site.upstream.id, questions, opened);
    await this.#send(exchange, site, 'tasks/update', {}, inputResponses);
  }

  async #send(
    exchange: OpenExchange,
    { upstream, link, task }: TaskSite,
    method: string,
    limits: { readonly silentMs?: number } = {},
    inputResponses?: RawObject,
  ): Promise<Answer> {
    const params = RawObject.of({ taskId: task }).with('inputResponses', inputResponses?.toString());
    return await this.#sender.send(exchange, upstream, link, { method, params, ...limits }).answer;
  }

  /** Cancels the task at the upstream. Does not wait for the answer, but keeps the connection in use until then. */
  cancel({ client }: OpenExchange, { upstream, link, task }: TaskSite): void {
    const { callMs } = upstream.config.timeouts;
    upstream.beginCall(link);
    const cancelling = link.connection.call('tasks/cancel', RawObject.of({ taskId: task }), {
      timeoutMs: callMs,
      maxMs: callMs,
      progress: false,
      isBackground: true,
      context: undefined,
      sender: client,
      capabilities: UPSTREAM_DIALECTS[link.era].envelopeCapabilities(upstream, client),
    });
    // The task goes on until the upstream has answered.
    cancelling.abandon();
    const end = () => upstream.endCall(link);
    cancelling.answer.then(end, end);
  }
}

/** Waits until the next poll. @throws {GatewayError} `cancelled`, `upstream-timeout` */
async function pause(exchange: OpenExchange, { upstream }: TaskSite, state: RawObject, dueMs: number): Promise<void> {
  const leftMs = dueMs - performance.now();
  if (leftMs <= 0) {
    const message = `upstream "${upstream.id}" was not done with its task within ${upstream.config.timeouts.maxMs / 1000} s`;
    throw new GatewayError('upstream-timeout', { upstream: upstream.id, message });
  }
  const end = new AbortController();
  const { signal } = end;
  try {
    await exchange.unlessCancelled(
      sleep(Math.min(pauseMs(state), leftMs), undefined, { signal }).catch(() => undefined),
    );
  } finally {
    end.abort();
  }
}

function cancelledByUpstream({ upstream }: TaskSite): GatewayError {
  const message = `the task was cancelled at upstream "${upstream.id}"`;
  return new GatewayError('cancelled', { upstream: upstream.id, message });
}
