import { hash } from 'node:crypto';
import type { Logger } from 'pino';
import { toClient as urisToClient } from '../../catalog/rewrite.ts';
import { upstreamIn, type View, type ViewUpstream, viewWith } from '../../catalog/view.ts';
import type { ClientFeature, UpstreamConfig } from '../../config/values/upstream-config.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';
import { lookalike, MemberNames } from '../../protocol/member-names.ts';
import { featuresOf } from '../../protocol/revisions.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import { assertDeclared, type Question } from '../exchange/client-capabilities.ts';
import type { Client } from '../exchange/exchange.ts';
import { SamplingBudget } from './sampling-budget.ts';
import { labelled } from './question-labels.ts';
import { boundedSampling, unsafeReason, visibleForm } from './safe-question.ts';

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
  ) => Pick<UpstreamConfig, 'isolation' | 'clientFeatures' | 'elicitationHosts' | 'samplingBudget'> | undefined;
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

/** Returns the name of a question of a task: short, whatever the upstream has chosen as task id and key. */
function nameOf(task: string, key: string): string {
  return hash('sha256', JSON.stringify([task, key]));
}

/** Returns whether the model of a client may get context of servers. In its first revisions every one may. */
function knowsContext({ caller, clientCapabilities }: Client): boolean {
  const isDeclared = clientCapabilities.object('sampling')?.raw('context') !== undefined;
  return isDeclared || !featuresOf(caller.revision).samplingTools;
}

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

  /**
   * Returns the reason why a question must not reach the client; undefined if it may. Counts the refusal.
   *
   * @param isPage true if it is a page in the error of a call. Such an error has one recipient also where clients share the upstream.
   */
  refusal(upstream: string, method: string, params: RawObject, isPage = false): string | undefined {
    const feature = FEATURES.get(method);
    const rules = this.#parts.rulesOf(upstream);
    if (feature !== undefined && rules?.clientFeatures.includes(feature) !== true) {
      const reason = `upstream "${upstream}" may not use ${feature} of clients; its clientFeatures in the config allow it`;
      return this.#recordRefusal(upstream, feature, reason);
    }
    if (feature !== undefined && rules?.isolation === 'shared' && !isPage) {
      const reason = `upstream "${upstream}" may not use ${feature} of clients, because they share it (isolation: shared)`;
      return this.#recordRefusal(upstream, feature, reason);
    }
    const odd = feature === undefined ? undefined : JUDGED.findLookalike(params);
    if (feature !== undefined && odd !== undefined) {
      return this.#recordRefusal(upstream, feature, `the question has a member ${lookalike(odd)}`);
    }
    const unsafe = unsafeReason(method, params, rules?.elicitationHosts);
    return unsafe === undefined ? undefined : this.#recordRefusal(upstream, 'url', unsafe);
  }

  /** Throws if one of the questions in an answer must not reach the client, or they are too many. @throws {GatewayError} `upstream-protocol` */
  assertAllowed(upstream: string, questions: readonly Question[], arePages = false): void {
    if (questions.length > LIMITS.questionsPerCall) {
      this.#parts.metrics.countLimit('questionsPerCall');
      throw notAllowed(upstream, `it asks more than ${LIMITS.questionsPerCall} questions at once`);
    }
    for (const { method, params = RawObject.EMPTY } of questions) {
      const reason = this.refusal(upstream, method, params, arePages);
      if (reason !== undefined) throw notAllowed(upstream, reason);
    }
  }

  /**
   * Throws if the questions in an answer are too many, or one of them must not reach the client. So it does if the request does not declare
   * one.
   *
   * @throws {GatewayError} `missing-capability`, `upstream-protocol`
   */
  assertAskable(client: Client, upstream: string, questions: readonly Question[], arePages = false): void {
    this.assertAllowed(upstream, questions, arePages);
    assertDeclared(upstream, client.clientCapabilities, questions);
  }

  /**
   * Returns the params of a question for the client: within the limits, with published URIs, and with the upstream's name.
   *
   * @param routed the view by which the request was routed that the question is about, if that is known.
   * @throws {GatewayError} `upstream-protocol`: a part that may hold a URI is not well-formed.
   */
  toClient(
    client: Client,
    upstream: string,
    { method, params = RawObject.EMPTY }: Question,
    routed: View | undefined,
  ): RawObject {
    const view = viewWith(upstream, client.catalog.view, routed);
    switch (method) {
      case 'sampling/createMessage': {
        const onCap = () => this.#parts.metrics.countLimit('samplingTokens');
        const bounded = boundedSampling(params, view.upstreams.length === 1 && knowsContext(client), onCap);
        const viewed = upstreamIn(view, upstream);
        if (viewed === undefined) return bounded;
        return published(viewed, method, bounded);
      }
      case 'elicitation/create':
        return labelled(view, upstream, visibleForm(params));
      default:
        return params;
    }
  }

  /**
   * Takes the tokens of questions that the client can be asked now from the budget of sampling, all or none. Returns the reason why they
   * must not reach the client; undefined if they may. Counts the refusal.
   *
   * @param questions as {@link toClient} has made their params.
   * @param of the task that they are about and their key there, if the client reads its state again and again.
   */
  takeTokens(
    { caller }: Pick<Client, 'caller'>,
    upstream: string,
    questions: readonly Question[],
    of?: { readonly task: string; readonly key: string },
  ): string | undefined {
    const asked = questions.filter(({ method }) => method === 'sampling/createMessage');
    if (asked.length === 0) return undefined;
    const budget = this.#parts.rulesOf(upstream)?.samplingBudget ?? 0;
    const tokens = asked.reduce((sum, { params }) => sum + Number(params?.raw('maxTokens') ?? '0'), 0);
    const question =
      of === undefined
        ? undefined
        : {
            name: nameOf(of.task, of.key),
            content: hash('sha256', asked.map(({ params }) => params?.toString()).join()),
          };
    const refused = this.#budget.take(upstream, caller.principal, tokens, budget, question);
    if (refused === undefined) return undefined;
    const reason = `upstream "${upstream}" asks for ${tokens} tokens, and ${refused.left} of its samplingBudget (${budget} in an hour) are left`;
    return refused.isNew ? this.#recordRefusal(upstream, 'budget', reason) : reason;
  }

  /**
   * Takes the tokens again if a question of a task is asked again under one of these keys, which the client answers. Returns the function to call if the
   * answers have not arrived.
   */
  onAnswered({ caller }: Pick<Client, 'caller'>, upstream: string, task: string, keys: readonly string[]): () => void {
    const names = keys.map((key) => nameOf(task, key));
    return this.#budget.forget(upstream, caller.principal, names);
  }

  /** Takes the tokens as {@link takeTokens} does. @throws {GatewayError} `upstream-protocol` if they exceed the budget. */
  assertTokens(client: Pick<Client, 'caller'>, upstream: string, questions: readonly Question[]): void {
    const reason = this.takeTokens(client, upstream, questions);
    if (reason !== undefined) throw notAllowed(upstream, reason);
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
