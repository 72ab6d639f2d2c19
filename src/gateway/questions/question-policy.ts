import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import { toClient as urisToClient } from '../../catalog/rewrite.ts';
import type { ViewUpstream } from '../../catalog/view.ts';
import type { ClientFeature, UpstreamConfig } from '../../config/upstream-config.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { InputRequest } from '../../protocol/input-required.ts';
import { lookalike, MemberNames } from '../../protocol/member-names.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Client } from '../exchange/exchange.ts';
import { SamplingBudget } from './sampling-budget.ts';
import { labelled } from './question-labels.ts';
import { boundedSampling, unsafeReason, visibleForm } from './safe-question.ts';

/** The client feature that each question uses. */
const FEATURES: ReadonlyMap<string, ClientFeature> = new Map([
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
  ['roots/list', 'roots'],
]);

/** The members of questions that are judged or changed here. */
const JUDGED = new MemberNames([
  'mode',
  'url',
  'message',
  'requestedSchema',
  'elicitationId',
  'messages',
  'maxTokens',
  'includeContext',
  'tools',
  'toolChoice',
  '_meta',
  'task',
]);

export interface QuestionPolicyParts {
  /** Returns what an upstream may ask for; undefined for an unknown upstream. */
  readonly rulesOf: (
    upstream: string,
  ) => Pick<UpstreamConfig, 'clientFeatures' | 'elicitationHosts' | 'samplingBudget'> | undefined;
  readonly metrics: Pick<Metrics, 'countLimit' | 'countRefusedQuestion'>;
  readonly log: Logger;
}

/** Returns the params of a question with published URIs. @throws {GatewayError} `upstream-protocol` */
function published(upstream: ViewUpstream, method: string, params: RawObject): RawObject {
  const text = params.toString();
  try {
    const changed = urisToClient(method, upstream, text);
    return changed === text ? params : RawObject.parse(changed);
  } catch (thrown) {
    if (!(thrown instanceof GatewayError)) throw thrown;
    const message = `"${upstream.title}" asked by ${method} with malformed JSON; report this to its maintainers.`;
    throw new GatewayError('upstream-protocol', { message, upstream: upstream.id }, thrown);
  }
}

function notAllowed(upstream: string, reason: string): GatewayError {
  const message = `upstream "${upstream}" sent a request that is not allowed: ${reason}`;
  return new GatewayError('upstream-protocol', { upstream, message });
}

type Question = Pick<InputRequest, 'method' | 'params'>;

/** Decides which questions of upstreams reach clients, and with which parameters. Counts what it refuses or changes. */
export class QuestionPolicy {
  readonly #parts: QuestionPolicyParts;
  readonly #budget: SamplingBudget;
  /** Upstream and cause of the refusals that were logged. */
  readonly #logged = new Set<string>();

  constructor(parts: QuestionPolicyParts) {
    this.#parts = parts;
    this.#budget = new SamplingBudget((limit) => parts.metrics.countLimit(limit));
  }

  /** Returns the reason why a question must not reach the client; undefined if it may. Counts the refusal. */
  refusal(upstream: string, method: string, params: RawObject): string | undefined {
    const feature = FEATURES.get(method);
    const rules = this.#parts.rulesOf(upstream);
    if (feature !== undefined && rules?.clientFeatures.includes(feature) !== true) {
      const reason = `upstream "${upstream}" may not use ${feature} of clients; its clientFeatures in the config allow it`;
      return this.#recordRefusal(upstream, feature, reason);
    }
    const odd = feature === undefined ? undefined : JUDGED.findLookalike(params);
    if (feature !== undefined && odd !== undefined) {
      return this.#recordRefusal(upstream, feature, `the question has a member ${lookalike(odd)}`);
    }
    const unsafe = unsafeReason(method, params, rules?.elicitationHosts);
    return unsafe === undefined ? undefined : this.#recordRefusal(upstream, 'url', unsafe);
  }

  /** Throws if one of the questions must not reach the client. @throws {GatewayError} `upstream-protocol` */
  assertAllowed(upstream: string, questions: readonly Question[]): void {
    for (const { method, params = RawObject.EMPTY } of questions) {
      const reason = this.refusal(upstream, method, params);
      if (reason !== undefined) throw notAllowed(upstream, reason);
    }
  }

  /**
   * Returns the params of a question for the client: within the limits, with published URIs, and with the upstream's name.
   *
   * @param task the task that the question is about, if the client reads its state again and again.
   * @throws {GatewayError} `upstream-protocol`: a part that may hold a URI is not well-formed, or the budget of sampling is used up.
   */
  toClient(client: Client, upstream: string, question: Question, task?: string): RawObject {
    const { method, params = RawObject.EMPTY } = question;
    switch (method) {
      case 'sampling/createMessage': {
        const { upstreams } = client.catalog.view;
        const onCap = () => this.#parts.metrics.countLimit('samplingTokens');
        const bounded = boundedSampling(params, upstreams.length === 1, onCap);
        this.#takeTokens(client, upstream, bounded, task);
        const viewed = upstreams.find(({ id }) => id === upstream);
        if (viewed === undefined) return bounded;
        return published(viewed, method, bounded);
      }
      case 'elicitation/create':
        return labelled(client, upstream, visibleForm(params));
      default:
        return params;
    }
  }

  /** @throws {GatewayError} `upstream-protocol` if the budget is used up. */
  #takeTokens({ caller }: Client, upstream: string, params: RawObject, task: string | undefined): void {
    const budget = this.#parts.rulesOf(upstream)?.samplingBudget ?? 0;
    const tokens = Number(params.raw('maxTokens') ?? '0');
    const question = task === undefined ? undefined : hash('sha256', `${task} ${params.toString()}`);
    if (this.#budget.take(upstream, caller.principal, tokens, budget, question)) return;
    const reason = `upstream "${upstream}" has asked for all tokens of its samplingBudget in this hour (${budget})`;
    throw notAllowed(upstream, this.#recordRefusal(upstream, 'budget', reason));
  }

  #recordRefusal(upstream: string, cause: ClientFeature | 'url' | 'budget', reason: string): string {
    this.#parts.metrics.countRefusedQuestion(cause);
    const key = `${upstream} ${cause}`;
    if (!this.#logged.has(key)) {
      this.#logged.add(key);
      this.#parts.log.warn({ upstream, reason }, 'question of an upstream refused');
    }
    return reason;
  }
}
