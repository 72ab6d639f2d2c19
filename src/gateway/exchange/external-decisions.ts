import { hash } from 'node:crypto';
import type { Settings } from '../../config/values/config.ts';
import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { LIMITS } from '../../limits.ts';
import type { AccessConfig, ExternalConfig } from '../../policy/access-config.ts';
import { readArguments } from '../../policy/conditions/arguments.ts';
import { type Item, plainItem } from '../../policy/decide.ts';
import {
  decidesAbout,
  type ExternalAnswer,
  externalQuestion,
  type ExternalRequest,
  isDenial,
} from '../../policy/external-question.ts';
import { isOperator, personOf, type Principal } from '../../policy/principal.ts';
import type { Caller } from '../front/caller.ts';
import { type Asked, HAS_ARGUMENTS, type VerdictObserver } from './gate.ts';
import { unknownResource, type UpstreamResource } from './route.ts';

export interface ExternalDecisionsParts {
  readonly settings: Settings<'access'>;
  /** Asks a question about a request of a person. Never rejects. */
  ask(
    config: ExternalConfig,
    owner: string,
    question: string,
    signal: AbortSignal,
    isReported: boolean,
  ): Promise<ExternalAnswer>;
  /** Runs for a request that is denied without a question. */
  readonly onAmbiguous: (answer: ExternalAnswer) => void;
  readonly report: VerdictObserver;
}

export interface Cancellable {
  /** Waits for a promise. @throws {GatewayError} `cancelled` */
  unlessCancelled<T>(wanted: Promise<T>): Promise<T>;
  /** Asks after a wait if many other questions about the request are asked. Default: asks at once. */
  inTurn?<T>(ask: () => Promise<T>): Promise<T>;
}

/** Asks a decision point about requests that the access policy allows, where the config has one. It may deny them, and allows nothing else. */
export class ExternalDecisions {
  readonly #parts: ExternalDecisionsParts;

  constructor(parts: ExternalDecisionsParts) {
    this.#parts = parts;
  }

  /**
   * Asks whether a request may go on. Returns undefined if nobody has to be asked. A denial is reported.
   *
   * @param inFlight the request, which is not asked about any more once it is cancelled.
   * @param params that its upstream gets.
   * @throws {GatewayError} `access-unavailable` if there is no decision; `cancelled`
   */
  ask(
    caller: Caller,
    asked: Asked,
    item: Item,
    inFlight?: Cancellable,
    params?: RawObject,
  ): Promise<boolean> | undefined {
    const { access } = this.#parts.settings();
    if (!asksAbout(access, caller.principal, item.upstream)) return undefined;
    return this.#ask(access, caller, asked, item, inFlight, params);
  }

  /**
   * Asks as {@link ask} about a subscription to a resource.
   *
   * @param uri as the client names it.
   * @throws {GatewayError} `unknown-resource` if it is denied
   */
  askAboutResource(
    caller: Caller,
    asked: Asked,
    uri: string,
    found: UpstreamResource,
    inFlight?: Cancellable,
  ): Promise<void> | undefined {
    const item = plainItem('resource', found.upstream, found.uri);
    return this.ask(caller, asked, item, inFlight)?.then((isAllowed) => {
      if (!isAllowed) throw unknownResource(uri);
    });
  }

  /** Returns the answer about a request that nobody has sent, for explanations; undefined if nobody has to be asked. */
  explain(request: ExternalRequest): Promise<ExternalAnswer> | undefined {
    const { access } = this.#parts.settings();
    return asksAbout(access, request.principal, request.item.upstream)
      ? this.#decide(access, request, undefined, false)
      : undefined;
  }

  async #ask(
    access: AskingAccess,
    { principal, view }: Caller,
    asked: Asked,
    item: Item,
    inFlight: Cancellable | undefined,
    params: RawObject | undefined,
  ): Promise<boolean> {
    const { method } = asked;
    const args = HAS_ARGUMENTS.has(method) ? params?.raw('arguments') : undefined;
    const { outcome, why } = await this.#decide(access, { principal, view, method, item, args }, inFlight);
    if (outcome === 'allowed') return true;
    if (!isDenial(outcome)) throw unavailable(item.upstream, outcome);
    const request = 'kind' in asked ? asked : undefined;
    const external = outcome === 'ambiguous' ? 'external-arguments' : 'external';
    const denial = { effect: 'deny', external, rule: undefined, why, failed: [] } as const;
    this.#parts.report({ principal, endpoint: view, method, request, item, ...denial });
    return false;
  }

  async #decide(
    access: AskingAccess,
    request: ExternalRequest,
    inFlight?: Cancellable,
    isReported = true,
  ): Promise<ExternalAnswer> {
    const { external } = access;
    const args = external.arguments ? request.args : undefined;
    // The upstream might read other arguments than the decision point. A question with too large ones is not asked, so that nobody reads them.
    const isRead = args !== undefined && Buffer.byteLength(args) <= LIMITS.externalQuestionBytes;
    const read = isRead ? readArguments(args, new Set()) : undefined;
    if (typeof read === 'string') {
      const answer = { outcome: 'ambiguous', why: `the decision point is not asked: ${read}` } as const;
      if (isReported) this.#parts.onAmbiguous(answer);
      return answer;
    }
    const giveUp = new AbortController();
    const ask = () => {
      const question = externalQuestion(access, { ...request, args }, new Date());
      return this.#parts.ask(external, personOf(request.principal), question, giveUp.signal, isReported);
    };
    try {
      const asking = inFlight?.inTurn === undefined ? ask() : inFlight.inTurn(ask);
      return await (inFlight === undefined ? asking : inFlight.unlessCancelled(asking));
    } finally {
      giveUp.abort();
    }
  }
}

type AskingAccess = AccessConfig & { readonly external: ExternalConfig };

/** Returns a hash of an item, by which another process recognises it. */
export function itemDigest({ kind, upstream, name, hints }: Item): string {
  const { readOnly, destructive, idempotent, openWorld } = hints;
  const text = JSON.stringify([kind, upstream, name, readOnly, destructive, idempotent, openWorld]);
  return hash('sha256', text, 'base64url');
}

/** Returns whether a decision point is asked about what the rules allow a principal at an upstream. */
export function asksAbout(
  access: AccessConfig | undefined,
  principal: Principal,
  upstream: string,
): access is AskingAccess {
  if (access?.external === undefined || isOperator(principal)) return false;
  return decidesAbout(access.external, upstream);
}

function unavailable(upstream: string, outcome: ExternalAnswer['outcome']): GatewayError {
  const isTooLarge = outcome === 'too-large';
  const message = isTooLarge
    ? 'the request is too large for the external decision about it; send less'
    : 'there is no external decision about it; send it again later';
  return new GatewayError('access-unavailable', { upstream, message, retryable: !isTooLarge });
}
