import { setTimeout as sleep } from 'node:timers/promises';
import { GatewayError } from '../../errors.ts';
import { readRequests } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { taskError, isTerminal, pollIntervalMs } from '../../protocol/tasks.ts';
import { toolFailure } from '../forward/result-translator.ts';
import { modernCapabilities } from '../exchange/client-capabilities.ts';
import { collectInput } from '../questions/collect-input.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { Sender } from '../forward/sender.ts';

/** Where an upstream's task is. */
export interface TaskSite {
  readonly upstream: Upstream;
  readonly link: Link;
  /** The upstream's id of it. */
  readonly task: string;
}

/** Between two looks at a task, where its upstream does not say, and what is made of it where it does. */
const POLL_MS = 1_000;
const MIN_POLL_MS = 10;
const MAX_POLL_MS = 30_000;

function pauseMs(state: RawObject): number {
  return Math.min(MAX_POLL_MS, Math.max(MIN_POLL_MS, pollIntervalMs(state) ?? POLL_MS));
}

/** Waits for an upstream's task where the client does not: in one request, from its beginning to its end. */
export class TaskDriver {
  readonly #sender: Sender;
  readonly #policy: QuestionPolicy;

  constructor(sender: Sender, policy: QuestionPolicy) {
    this.#policy = policy;
    this.#sender = sender;
  }

  /**
   * How the task ends, in the upstream's words: what its call would have been answered with.
   *
   * @param state as the upstream first described it.
   * @throws {GatewayError} `cancelled`, `upstream-timeout`, and why the upstream could not be asked; the task is then cancelled.
   */
  async finish(exchange: OpenExchange, site: TaskSite, state: RawObject): Promise<Answer> {
    // A task takes the upstream's time, but no place in its line.
    exchange.releaseSlot();
    const dueMs = performance.now() + site.upstream.config.timeouts.maxMs;
    try {
      if (site.link.era === 'legacy') return await this.#core(exchange, site, state, dueMs);
      return await this.#extension(exchange, site, state, dueMs);
    } catch (thrown) {
      this.cancel(exchange, site);
      if (thrown instanceof GatewayError && thrown.code === 'client-unreachable') return toolFailure(thrown.message);
      throw thrown;
    } finally {
      site.link.connection.forgetProgress(exchange);
    }
  }

  async #core(exchange: OpenExchange, site: TaskSite, first: RawObject, dueMs: number): Promise<Answer> {
    for (let state = first; ;) {
      const status = state.string('status');
      if (status === 'cancelled') throw wasCancelled(site);
      // What it wants to know it asks while its result is waited for.
      if (isTerminal(status) || status === 'input_required') {
        return await this.#ask(exchange, site, 'tasks/result', {}, dueMs - performance.now());
      }
      await pause(exchange, site, state, dueMs);
      const answer = await this.#ask(exchange, site, 'tasks/get');
      if (answer.kind === 'error') return answer;
      state = RawObject.parse(answer.result);
    }
  }

  async #extension(exchange: OpenExchange, site: TaskSite, first: RawObject, dueMs: number): Promise<Answer> {
    const asked = new Set<string>();
    for (let state = first; ;) {
      const status = state.string('status');
      if (status === 'cancelled') throw wasCancelled(site);
      if (status === 'completed') return { kind: 'result', result: state.raw('result') ?? '{}' };
      if (status === 'failed') return { kind: 'error', error: taskError(state) };
      if (status === 'input_required') await this.#answerTo(exchange, site, state, asked);
      await pause(exchange, site, state, dueMs);
      const answer = await this.#ask(exchange, site, 'tasks/get');
      if (answer.kind === 'error') return answer;
      state = RawObject.parse(answer.result);
    }
  }

  /** Asks the client what it was not asked before. */
  async #answerTo(exchange: OpenExchange, site: TaskSite, state: RawObject, asked: Set<string>): Promise<void> {
    const requests = readRequests(state.object('inputRequests') ?? RawObject.EMPTY);
    if (requests === undefined) {
      const message = `upstream "${site.upstream.id}" asks in a task for what is no request`;
      throw new GatewayError('upstream-protocol', { upstream: site.upstream.id, message });
    }
    const inputRequests = requests.filter(({ key }) => !asked.has(key));
    if (inputRequests.length === 0) return;
    for (const { key } of inputRequests) asked.add(key);
    const { inputResponses } = await collectInput(this.#policy, exchange, site.upstream.id, {
      inputRequests,
      requestState: undefined,
    });
    await this.#ask(exchange, site, 'tasks/update', { inputResponses: inputResponses?.toString() });
  }

  async #ask(
    exchange: OpenExchange,
    { upstream, link, task }: TaskSite,
    method: string,
    members: Readonly<Record<string, string | undefined>> = {},
    silentMs?: number,
  ): Promise<Answer> {
    let params = RawObject.of({ taskId: task });
    for (const [key, raw] of Object.entries(members)) params = params.with(key, raw);
    return await this.#sender.send(exchange, upstream, link, {
      method,
      params,
      ...(silentMs === undefined ? {} : { silentMs }),
    }).answer;
  }

  /** Tells the upstream that nobody waits for its task any more; whether it heard that changes nothing. */
  cancel({ client }: OpenExchange, { upstream, link, task }: TaskSite): void {
    const { callMs } = upstream.config.timeouts;
    link.connection.call('tasks/cancel', RawObject.of({ taskId: task }), {
      timeoutMs: callMs,
      maxMs: callMs,
      progress: false,
      isBackground: true,
      context: undefined,
      ...(link.era === 'legacy' ? {} : { capabilities: upstream.usableCapabilities(modernCapabilities(client)) }),
    });
  }
}

/** @throws {GatewayError} `cancelled`, `upstream-timeout` */
async function pause(exchange: OpenExchange, { upstream }: TaskSite, state: RawObject, dueMs: number): Promise<void> {
  const leftMs = dueMs - performance.now();
  if (leftMs <= 0) {
    const message = `upstream "${upstream.id}" was not done with its task within ${upstream.config.timeouts.maxMs / 1000} s`;
    throw new GatewayError('upstream-timeout', { upstream: upstream.id, message });
  }
  const over = new AbortController();
  const { signal } = over;
  try {
    await exchange.unlessCancelled(
      sleep(Math.min(pauseMs(state), leftMs), undefined, { signal }).catch(() => undefined),
    );
  } finally {
    over.abort();
  }
}

function wasCancelled({ upstream }: TaskSite): GatewayError {
  const message = `the task was cancelled at upstream "${upstream.id}"`;
  return new GatewayError('cancelled', { upstream: upstream.id, message });
}
