import { isRecord, memberOf } from '../../json/record.ts';
import type { Source } from '../../catalog/names/named-items.ts';
import { type Caching, readCaching, UNCACHED } from '../../catalog/caching.ts';
import { errorToClient, toClient as urisToClient } from '../../catalog/rewrite.ts';
import { upstreamIn, type ViewUpstream } from '../../catalog/view.ts';
import { GatewayError } from '../../errors.ts';
import { JsonTextError, RawObject } from '../../json/json.ts';
import { isAnonymous } from '../../policy/principal.ts';
import { boundedCompletion } from '../../protocol/completion.ts';
import type { ResultReading } from '../../protocol/input-required.ts';
import { type Answer, errorAnswer, parsed, type Result, type RpcError } from '../../protocol/jsonrpc.ts';
import { lookalike, MemberNames } from '../../protocol/member-names.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import type { Era } from '../../protocol/revisions.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import {
  hasWrappedOutput,
  downgradeModernError,
  downgradeModernResult,
} from '../../protocol/translation/downgrade-modern.ts';
import {
  unknownItemError,
  upgradeError,
  upgradeResult,
  withoutReservedCode,
  withStamp,
} from '../../protocol/translation/upgrade.ts';
import type { ClientDialect } from '../dialects/client-dialect.ts';
import { declaresAll, opensPages } from '../exchange/client-capabilities.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import { namesUnlistedItem } from '../exchange/route.ts';
import type { QuestionPolicy } from '../questions/question-policy.ts';

/** Codes of a modern upstream for faults in the gateway's part of a request. */
const GATEWAY_FAULTS: ReadonlySet<number> = new Set([RPC.headerMismatch, RPC.unsupportedVersion]);

export interface UpstreamResult {
  readonly upstream: string;
  readonly era: Era;
  /** The called tool, if its upstream lists it. */
  readonly source: Source | undefined;
  /** The time since a cached answer was received; undefined for any other. */
  readonly ageMs?: number;
}

type Asked = Pick<Exchange, 'client' | 'request'> & Partial<Pick<Exchange, 'view'>>;

/** Translates the answers of upstreams of one era for clients of one era. URIs and names are translated before. */
interface Translation {
  /** @param text the result with the URIs that the client knows. */
  result(exchange: Asked, from: UpstreamResult, answer: Result, text: string, serverInfo: string): Result;
  /** @throws {GatewayError} `upstream-protocol`, `client-unreachable` */
  error(exchange: Asked, from: UpstreamResult, error: RpcError, policy: QuestionPolicy): Answer;
}

/** By the era of the client, then by the era of the upstream. */
const TRANSLATIONS: Readonly<Record<Era, Readonly<Record<Era, Translation>>>> = {
  legacy: {
    legacy: {
      result: ({ client, request }, _from, answer, text) => {
        const result = client.dialect.downgradeResult(request.method, text);
        return result === answer.result ? answer : { kind: 'result', result };
      },
      error: (exchange, { upstream }, error, policy) => {
        if (error.code !== RPC.urlElicitationRequired) return { kind: 'error', error };
        const named = { ...error, data: elicitationsToClient(policy, exchange, upstream, error.data) };
        return opensPages(exchange.client) ? { kind: 'error', error: named } : pagesAsText(exchange, named);
      },
    },
    modern: {
      result: ({ client, request: { method } }, { source }, answer, text) => {
        const whole = parsedResult(answer, text);
        const isWrapped =
          whole.raw('structuredContent') !== undefined && source !== undefined && hasWrappedOutput(source.item);
        const downgraded = downgradeModernResult(method, whole, isWrapped).toString();
        return { kind: 'result', result: client.dialect.downgradeResult(method, downgraded) };
      },
      error: ({ request: { method } }, { upstream }, error) => {
        assertNoGatewayFault(upstream, error);
        assertNoPages(upstream, method, error);
        if (error.code === RPC.missingCapability) return unsupportedByClient(upstream, method, error);
        return { kind: 'error', error: downgradeModernError(method, error) };
      },
    },
  },
  modern: {
    legacy: {
      result: ({ request: { method } }, _from, _answer, text, serverInfo) => {
        return { kind: 'result', result: upgradeResult(method, text, { serverInfo, ttlMs: 0, cacheScope: 'private' }) };
      },
      error: (exchange, { upstream }, error) => {
        assertNoPages(upstream, exchange.request.method, error);
        return upgradedError(exchange, error);
      },
    },
    modern: {
      // Replaces the server's name, and `public` behind authentication.
      result: ({ client, request: { method } }, { ageMs = 0 }, answer, text, serverInfo) => {
        const result = parsedResult(answer, text);
        const { ttlMs, isPublic } = (method === 'resources/read' ? readCaching(result) : undefined) ?? UNCACHED;
        const restMs = Math.max(0, Math.floor(ttlMs - ageMs));
        const cacheScope = isPublic && isAnonymous(client.caller.principal) ? 'public' : 'private';
        const typed = result.raw('resultType') === undefined ? result.with('resultType', '"complete"') : result;
        const stamped = withStamp(method, typed, { serverInfo, ttlMs: restMs, cacheScope });
        return { kind: 'result', result: stamped.toString(), parsedResult: stamped };
      },
      error: (exchange, { upstream }, error) => {
        assertNoGatewayFault(upstream, error);
        assertNoPages(upstream, exchange.request.method, error);
        const isMissing =
          error.code === RPC.missingCapability && isRecord(memberOf(error.data, 'requiredCapabilities'));
        if (!isMissing) return upgradedError(exchange, error);
        if (!declaresMissing(exchange.client, error)) return { kind: 'error', error };
        const message = `upstream "${upstream}" needs what cannot be carried to it: ${error.message}`;
        throw new GatewayError('client-unreachable', { upstream, executed: 'no', message });
      },
    },
  },
};

/** Translates answers of upstreams to the revision of the client, with the URIs that the client knows. */
export class ResultTranslator {
  readonly #serverInfo: string;
  readonly #policy: QuestionPolicy;

  constructor(serverInfo: RawObject, policy: QuestionPolicy) {
    this.#policy = policy;
    this.#serverInfo = serverInfo.toString();
  }

  /** Translates an answer, also of an upstream that has left the view of the client since. @throws {GatewayError} `upstream-protocol`, `client-unreachable` */
  toClient(exchange: Asked, from: UpstreamResult, answer: Answer): Answer {
    const { client, request } = exchange;
    const viewed = viewedBy(exchange, from.upstream);
    const translation = TRANSLATIONS[client.dialect.era][from.era];
    try {
      if (answer.kind === 'error') {
        const error = viewed === undefined ? answer.error : errorToClient(answer.error, viewed);
        return translation.error(exchange, from, error, this.#policy);
      }
      const published = viewed === undefined ? answer.result : urisToClient(request.method, viewed, answer.result);
      const text = request.method === 'completion/complete' ? boundedCompletion(published) : published;
      return translation.result(exchange, from, answer, text, this.#serverInfo);
    } catch (thrown) {
      if (!(thrown instanceof JsonTextError)) throw thrown;
      const { upstream } = from;
      const message = `upstream "${upstream}" answered ${request.method} with malformed JSON`;
      throw new GatewayError('upstream-protocol', { upstream, executed: 'yes', message }, thrown);
    }
  }

  /** Returns members of a result with the URIs that the client knows. @throws {GatewayError} `upstream-protocol` */
  publish(exchange: Asked, upstream: string, members: RawObject): RawObject {
    const viewed = viewedBy(exchange, upstream);
    return viewed === undefined
      ? members
      : RawObject.parse(urisToClient(exchange.request.method, viewed, members.toString()));
  }

  stamp(result: RawObject): RawObject {
    return withMeta(result, [[META.serverInfo, this.#serverInfo]]);
  }

  /** Returns a result of the gateway itself with the members that the client's revision requires. */
  stampOwn(dialect: ClientDialect, method: string, result: string, caching: Caching = UNCACHED): string {
    const { ttlMs, isPublic } = caching;
    const cacheScope = isPublic ? 'public' : 'private';
    return dialect.stampResult(method, result, { serverInfo: this.#serverInfo, ttlMs, cacheScope });
  }
}

/** Returns the upstream as the client sees it, or saw it when it sent the request. */
function viewedBy({ client, view }: Asked, upstream: string): ViewUpstream | undefined {
  return upstreamIn(client.catalog.view, upstream) ?? upstreamIn(view, upstream);
}

/** Returns the parsed result; the one that was parsed before, if the text is still the same. */
function parsedResult(answer: Result, text: string): RawObject {
  return text === answer.result ? parsed(answer).parsedResult : RawObject.parse(text);
}

/** Returns the error for a modern client. If no list has the resource or prompt of the request, the upstream may not know it. */
function upgradedError({ client, request }: Asked, sent: RpcError): Answer {
  const error = withoutReservedCode(sent);
  if (error !== sent) return { kind: 'error', error };
  if (!namesUnlistedItem(client.catalog, request)) return { kind: 'error', error: upgradeError(error) };
  const { method, params } = request;
  const uri = method === 'resources/read' ? params?.string('uri') : undefined;
  return { kind: 'error', error: unknownItemError(error, uri) };
}

/** @throws {GatewayError} `upstream-protocol`: the upstream refused the gateway's part of a request. */
function assertNoGatewayFault(upstream: string, { code, message: reason }: RpcError): void {
  if (!GATEWAY_FAULTS.has(code)) return;
  const message = `upstream "${upstream}" refused how it was asked: ${reason}`;
  throw new GatewayError('upstream-protocol', { upstream, executed: 'no', message });
}

/**
 * Refuses an error that names pages for the user, where revision 2026-07-28 is on one side. That revision has no such error, so no policy
 * for pages is asked there.
 *
 * @throws {GatewayError} `upstream-protocol`
 */
function assertNoPages(upstream: string, method: string, { code, message: reason }: RpcError): void {
  if (code !== RPC.urlElicitationRequired) return;
  const message = `upstream "${upstream}" wants URLs opened, and ${method} cannot wait for that: ${reason}`;
  throw new GatewayError('upstream-protocol', { upstream, executed: 'unknown', message });
}

/** Returns whether the client declares all capabilities that the error names as missing. */
function declaresMissing(client: Client, { data }: RpcError): boolean {
  const missing = memberOf(data, 'requiredCapabilities');
  return missing !== undefined && declaresAll(client.caller.capabilities, missing);
}

/**
 * Returns the answer for a legacy client that lacks a capability: a tool failure, so that the model can read the reason.
 * Such a client cannot declare more for a single call.
 *
 * @throws {GatewayError} `client-unreachable` for other methods.
 */
function unsupportedByClient(upstream: string, method: string, { message: reason }: RpcError): Answer {
  const message = `upstream "${upstream}" needs something that the client does not support: ${reason}`;
  if (method !== 'tools/call') throw new GatewayError('client-unreachable', { upstream, executed: 'no', message });
  return toolFailure(message);
}

/** Returns a tool result that reports a failure to the model. */
export function toolFailure(text: string): Result {
  const result = RawObject.of({ content: [{ type: 'text', text }], isError: true });
  return { kind: 'result', result: result.toString() };
}

/** Returns an error that names pages, with their URLs in its text. The user of a client that cannot open them can read it. */
function pagesAsText({ request }: Asked, { message, data }: RpcError): Answer {
  const listed = memberOf(data, 'elicitations');
  const pages = (Array.isArray(listed) ? listed : []).map(
    (page: unknown) => `${String(memberOf(page, 'message'))}: ${String(memberOf(page, 'url'))}`,
  );
  const text = [message, ...pages].join('\n');
  return request.method === 'tools/call' ? toolFailure(text) : errorAnswer(RPC.internalError, text);
}

const PAGES = new MemberNames(['elicitations']);

/** Returns the data of a URL elicitation error with the name of the upstream, and the ids that the client knows. @throws {GatewayError} if the policy refuses. */
function elicitationsToClient(
  policy: QuestionPolicy,
  { client, view }: Asked,
  upstream: string,
  data: unknown,
): unknown {
  const elicitations = memberOf(data, 'elicitations');
  if (!isRecord(data)) return data;
  const odd = PAGES.findLookalike(RawObject.of(data));
  if (odd !== undefined) {
    const message = `upstream "${upstream}" sent an error with a member ${lookalike(odd)}`;
    throw new GatewayError('upstream-protocol', { upstream, message });
  }
  if (!Array.isArray(elicitations)) return data;
  const questions = elicitations.map((one: unknown) => {
    const params = RawObject.of({ url: null, ...Object(one), mode: 'url' });
    return { method: 'elicitation/create', params };
  });
  policy.assertAllowed(upstream, questions, true);
  const mapped = elicitations.map((elicitation: unknown) => {
    const params = RawObject.of(Object(elicitation));
    const shown: unknown = JSON.parse(
      policy.toClient(client, upstream, { method: 'elicitation/create', params }, view).toString(),
    );
    return shown;
  });
  return { ...data, elicitations: mapped };
}

/**
 * Throws unless a result of a modern upstream is complete: it must not ask, since nobody would judge the questions.
 *
 * @throws {GatewayError} `upstream-protocol`
 */
export function assertComplete(upstream: string, method: string, reading: ResultReading): void {
  const broken = (why: string) =>
    new GatewayError('upstream-protocol', { upstream, message: `upstream "${upstream}" answered with ${why}` });
  switch (reading.kind) {
    case 'complete':
    case 'absent':
      return;
    case 'input-required':
      throw broken(`questions, which ${method} may not be answered with`);
    case 'task':
      throw broken('a task, which nobody asked for');
    case 'unknown':
      throw broken(`a result of type ${reading.resultType}, which nobody declared`);
    case 'malformed':
      throw broken(`a result that ${reading.why}`);
  }
}
