import type { Logger } from 'pino';
import { toClient as urisToClient } from '../../catalog/rewrite.ts';
import type { ViewUpstream } from '../../catalog/view.ts';
import type { ClientFeature, UpstreamConfig } from '../../config/upstream-config.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import type { InputRequest } from '../../protocol/input-required.ts';
import type { Metrics } from '../../telemetry/metrics.ts';
import type { Client } from '../exchange/exchange.ts';
import { labelled } from './question-labels.ts';
import { boundedSampling, unsafeReason, visibleForm } from './safe-question.ts';

/** The client feature that each question uses. */
const FEATURES: ReadonlyMap<string, ClientFeature> = new Map([
  ['sampling/createMessage', 'sampling'],
  ['elicitation/create', 'elicitation'],
  ['roots/list', 'roots'],
]);

export interface QuestionPolicyParts {
  /** Returns what an upstream may ask for; undefined for an unknown upstream. */
  readonly rulesOf: (upstream: string) => Pick<UpstreamConfig, 'clientFeatures' | 'elicitationHosts'> | undefined;
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

type Question = Pick<InputRequest, 'method' | 'params'>;

/** Decides which questions of upstreams reach clients, and with which parameters. Counts what it refuses or changes. */
export class QuestionPolicy {
  readonly #parts: QuestionPolicyParts;
  /** Upstream and cause of the refusals that were logged. */
  readonly #logged = new Set<string>();

  constructor(parts: QuestionPolicyParts) {
    this.#parts = parts;
  }

  /** Returns the reason why a question must not reach the client; undefined if it may. Counts the refusal. */
  refusal(upstream: string, method: string, params: RawObject): string | undefined {
    const feature = FEATURES.get(method);
    const rules = this.#parts.rulesOf(upstream);
    if (feature !== undefined && rules?.clientFeatures.includes(feature) !== true) {
      const reason = `upstream "${upstream}" may not use ${feature} of clients; its clientFeatures in the config allow it`;
      return this.#recordRefusal(upstream, feature, reason);
    }
    const unsafe = unsafeReason(method, params, rules?.elicitationHosts);
    return unsafe === undefined ? undefined : this.#recordRefusal(upstream, 'url', unsafe);
  }

  /** Throws if one of the questions must not reach the client. @throws {GatewayError} `upstream-protocol` */
  assertAllowed(upstream: string, questions: readonly Question[]): void {
    for (const { method, params = RawObject.EMPTY } of questions) {
      const reason = this.refusal(upstream, method, params);
      if (reason === undefined) continue;
      const message = `upstream "${upstream}" sent a request that is not allowed: ${reason}`;
      throw new GatewayError('upstream-protocol', { upstream, message });
    }
  }

  /**
   * Returns the params of a question for the client: within the limits, with published URIs, and with the upstream's name.
   *
   * @throws {GatewayError} `upstream-protocol`: a part that may hold a URI is not well-formed.
   */
  toClient(client: Client, upstream: string, { method, params = RawObject.EMPTY }: Question): RawObject {
    switch (method) {
      case 'sampling/createMessage': {
        const { upstreams } = client.catalog.view;
        const onCap = () => this.#parts.metrics.countLimit('samplingTokens');
        const bounded = boundedSampling(params, upstreams.length === 1, onCap);
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

  #recordRefusal(upstream: string, cause: ClientFeature | 'url', reason: string): string {
    this.#parts.metrics.countRefusedQuestion(cause);
    const key = `${upstream} ${cause}`;
    if (!this.#logged.has(key)) {
      this.#logged.add(key);
      this.#parts.log.warn({ upstream, reason }, 'question of an upstream refused');
    }
    return reason;
  }
}
