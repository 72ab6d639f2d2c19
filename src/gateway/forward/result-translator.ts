import type { Source } from '../../catalog/names/named-items.ts';
import { type Caching, readCaching, UNCACHED } from '../../catalog/caching.ts';
import { isListedResource } from '../../catalog/catalog.ts';
import { errorToClient, toClient as urisToClient } from '../../catalog/rewrite.ts';
import type { ViewUpstream } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import { type Answer, parsed, type Request, type Result, type RpcError } from '../../protocol/jsonrpc.ts';
import { downgradeResult } from '../../protocol/translation/downgrade.ts';
import {
  hasWrappedOutput,
  downgradeModernError,
  downgradeModernResult,
} from '../../protocol/translation/downgrade-modern.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import { unknownResourceError, upgradeError, upgradeResult, withStamp } from '../../protocol/translation/upgrade.ts';
import { MODERN } from '../../protocol/revisions.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';
import { isAnonymous } from '../../policy/principal.ts';
import type { Caller } from '../exchange/caller.ts';
import { elicitationIdToClient } from '../questions/question-labels.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import { declaresAll } from '../exchange/client-capabilities.ts';

/** URL_ELICITATION_REQUIRED of 2025-11-25. */
export const NEEDS_URL = -32042;
/** A capability is missing that the request did not declare; of the modern era. */
const MISSING_CAPABILITY = -32021;

/** Header mismatch, unsupported version: errors of a modern upstream about what the gateway wrote, not the client. */
const OURS_ALONE = new Set([-32020, -32022]);

/** Where an answer comes from. */
export interface UpstreamResult {
  readonly upstream: string;
  readonly isModern: boolean;
  /** The tool that was called, where it is listed. */
  readonly source: Source | undefined;
}

/** Translates answers of upstreams to the revision of the client, with the URIs that the client knows. */
export class ResultTranslator {
  readonly #serverInfo: string;
  readonly #policy: QuestionPolicy;

  /** @param serverInfo name and version of the gateway. */
  constructor(serverInfo: RawObject, policy: QuestionPolicy) {
    this.#policy = policy;
    this.#serverInfo = serverInfo.toString();
  }

  /** An upstream's answer as the client can read it, under the URIs it knows. @throws {GatewayError} `upstream-protocol` */
  toClient({ client, request }: Pick<Exchange, 'client' | 'request'>, given: UpstreamResult, answer: Answer): Answer {
    const { method } = request;
    const viewed = client.catalog.view.upstreams.find(({ id }) => id === given.upstream);
    if (viewed === undefined) return answer;
    const { revision } = client.caller;
    try {
      if (answer.kind === 'error')
        return errorAnswer(this.#policy, client, given, request, errorToClient(answer.error, viewed));
      // The usual case, and nothing to do.
      if (revision !== MODERN && !given.isModern) {
        const result = downgradeResult(method, revision, urisToClient(method, viewed, answer.result));
        return result === answer.result ? answer : { kind: 'result', result };
      }
      return this.#translate(client, given, viewed, method, answer);
    } catch (thrown) {
      if (!(thrown instanceof JsonTextError)) throw thrown;
      const message = `upstream "${viewed.id}" answered ${method} with what is not well-formed JSON`;
      throw new GatewayError('upstream-protocol', { upstream: viewed.id, executed: 'yes', message }, thrown);
    }
  }

  #translate(client: Client, given: UpstreamResult, viewed: ViewUpstream, method: string, answer: Result): Result {
    const { revision } = client.caller;
    const known = urisToClient(method, viewed, answer.result);
    if (revision === MODERN && !given.isModern) return { kind: 'result', result: this.#upgrade(method, known) };
    const whole = known === answer.result ? parsed(answer).parsedResult : RawObject.parse(known);
    if (revision === MODERN) return this.#relay(method, whole, client.caller);
    const { source } = given;
    const isWrapped =
      whole.raw('structuredContent') !== undefined && source !== undefined && hasWrappedOutput(source.item);
    const result = downgradeResult(method, revision, downgradeModernResult(method, whole, isWrapped).toString());
    return { kind: 'result', result };
  }

  #upgrade(method: string, result: string): string {
    return upgradeResult(method, result, { serverInfo: this.#serverInfo, ttlMs: 0, cacheScope: 'private' });
  }

  /** From a modern upstream to a modern client: only the server's name changes, and `public` behind authentication. */
  #relay(method: string, result: RawObject, { principal }: Caller): Result {
    const { ttlMs, isPublic } = (method === 'resources/read' ? readCaching(result) : undefined) ?? UNCACHED;
    const cacheScope = isPublic && isAnonymous(principal) ? 'public' : 'private';
    const typed = result.raw('resultType') === undefined ? result.with('resultType', '"complete"') : result;
    const parsedResult = withStamp(method, typed, { serverInfo: this.#serverInfo, ttlMs, cacheScope });
    return { kind: 'result', result: parsedResult.toString(), parsedResult: parsedResult };
  }

  /** A result that is in a modern client's words already, under our name. */
  stamp(result: RawObject): RawObject {
    return withMeta(result, [[META.serverInfo, this.#serverInfo]]);
  }

  /** A result of our own, as a modern client reads it. */
  stampOwn(method: string, result: string, { ttlMs, isPublic }: Caching = UNCACHED): string {
    const cacheScope = isPublic ? 'public' : 'private';
    return upgradeResult(method, result, { serverInfo: this.#serverInfo, ttlMs, cacheScope });
  }
}

function errorAnswer(
  policy: QuestionPolicy,
  client: Client,
  given: UpstreamResult,
  request: Request,
  error: RpcError,
): Answer {
  const { method } = request;
  if (given.isModern && OURS_ALONE.has(error.code)) throw betweenUs(given.upstream, error);
  if (client.caller.revision === MODERN) {
    if (given.isModern && error.code === MISSING_CAPABILITY) {
      if (!lacksNothing(client, error)) return { kind: 'error', error };
      const message = `upstream "${given.upstream}" needs what cannot be carried to it: ${error.message}`;
      throw new GatewayError('client-unreachable', { upstream: given.upstream, executed: 'no', message });
    }
    const unlisted = unlistedUri(client, request);
    return {
      kind: 'error',
      error: unlisted === undefined ? upgradeError(error) : unknownResourceError(error, unlisted),
    };
  }
  if (given.isModern) {
    if (error.code === MISSING_CAPABILITY) return incapable(given.upstream, method, error);
    return { kind: 'error', error: downgradeModernError(method, error) };
  }
  if (error.code !== NEEDS_URL) return { kind: 'error', error };
  return { kind: 'error', error: { ...error, data: elicitationsToClient(policy, client, given.upstream, error.data) } };
}

/** Returns the URI of a read, as the client knows it, where no list and no template has it. */
function unlistedUri({ catalog }: Client, { method, params }: Request): string | undefined {
  const uri = method === 'resources/read' ? params?.string('uri') : undefined;
  return uri === undefined || isListedResource(catalog, uri) ? undefined : uri;
}

/** Returns the failure for an upstream that refused the gateway's part of a request, not the client's. */
function betweenUs(upstream: string, { message }: RpcError): GatewayError {
  const say = `upstream "${upstream}" refused how it was asked: ${message}`;
  return new GatewayError('upstream-protocol', { upstream, executed: 'no', message: say });
}

function lacksNothing(client: Client, { data }: RpcError): boolean {
  const isNamed = typeof data === 'object' && data !== null && 'requiredCapabilities' in data;
  return isNamed && declaresAll(client.caller.capabilities, data.requiredCapabilities);
}

/** Answers a legacy client, which declared its capabilities once and cannot declare more: a model may read the reason. */
function incapable(upstream: string, method: string, { message }: RpcError): Answer {
  const say = `upstream "${upstream}" needs what the client cannot do: ${message}`;
  if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', message: say });
  return toolFailure(say);
}

/** A failure of ours as a modern client reads it. */
export function upgradedAnswer(answer: Answer): Answer {
  return answer.kind === 'error' ? { kind: 'error', error: upgradeError(answer.error) } : answer;
}

/** A failure that the model is to read. */
export function toolFailure(text: string): Answer {
  const result = RawObject.of({ content: [{ type: 'text', text }], isError: true });
  return { kind: 'result', result: result.toString() };
}

function elicitationsToClient(policy: QuestionPolicy, client: Client, upstream: string, data: unknown): unknown {
  if (typeof data !== 'object' || data === null || !('elicitations' in data)) return data;
  const { elicitations } = data;
  if (!Array.isArray(elicitations)) return data;
  const questions = elicitations.map((one: unknown) => {
    const url = String(Object.getOwnPropertyDescriptor(Object(one), 'url')?.value);
    return { method: 'elicitation/create', params: RawObject.of({ mode: 'url', url }) };
  });
  policy.assertAllowed(upstream, questions);
  const mapped = elicitations.map((elicitation: unknown) => {
    if (typeof elicitation !== 'object' || elicitation === null || !('elicitationId' in elicitation))
      return elicitation;
    const id = elicitationIdToClient(client, upstream, String(elicitation.elicitationId));
    return { ...elicitation, elicitationId: id };
  });
  return { ...data, elicitations: mapped };
}
