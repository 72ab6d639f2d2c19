import { featuresOf, type Revision } from '../../protocol/revisions.ts';
import type { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { UpstreamRoute } from '../exchange/route.ts';
import type { Sender } from '../forward/sender.ts';
import { type CallAnswersParts, toOutcome } from './call-answers.ts';
import { type CallOutcome, urlsRequired } from './call-outcome.ts';
import type { TaskCalls } from './task-calls.ts';

export interface LegacyCallsParts extends CallAnswersParts {
  readonly sender: Sender;
  readonly taskCalls: TaskCalls;
}

/** Makes calls at upstreams of the revisions before 2026-07-28, which ask their questions during a call. */
export class LegacyCalls {
  readonly #parts: LegacyCallsParts;

  constructor(parts: LegacyCallsParts) {
    this.#parts = parts;
  }

  /** Makes a call at a legacy upstream, as a task if the client or the tool asks for one. */
  async call(
    exchange: OpenExchange,
    upstream: Upstream,
    link: Link,
    { params, source }: UpstreamRoute,
  ): Promise<CallOutcome> {
    const { sender, taskCalls } = this.#parts;
    const { client, request } = exchange;
    const sent = paramsKnownTo(request.method, link.hello.revision, client.dialect.withoutEnvelope(params));
    const plan = taskCalls.planOf(exchange, upstream, link, sent, source);
    let answer: Answer;
    if (plan === 'plain') {
      answer = await sender.send(exchange, upstream, link, { params: sent.with('task', undefined) }).answer;
    } else {
      const called = await taskCalls.call(plan, exchange, upstream, link, sent);
      if (called.isTranslated) return called.answer;
      answer = called.answer;
    }
    if (answer.kind === 'error' && answer.error.code === RPC.urlElicitationRequired && client.dialect.asksInAnswers) {
      return urlsRequired(upstream.id, exchange, answer.error);
    }
    return toOutcome(this.#parts, exchange, link, source, answer);
  }
}

/** Returns params without the members that an upstream of this revision does not know. */
function paramsKnownTo(method: string, revision: Revision, params: RawObject): RawObject {
  if (method !== 'completion/complete' || featuresOf(revision).completionContext) return params;
  return params.with('context', undefined);
}
