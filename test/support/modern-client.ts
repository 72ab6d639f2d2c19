import assert from 'node:assert/strict';
import type { ModernCall, ModernCaller } from '../../src/gateway/front/front.ts';
import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { RawObject } from '../../src/json/json.ts';
import { type Answer, type Message, parseMessage } from '../../src/protocol/jsonrpc.ts';
import { META } from '../../src/protocol/meta.ts';
import { LATEST_MODERN } from '../../src/protocol/revisions.ts';
import type { Severity } from '../../src/protocol/severity.ts';
import type { TestCore } from './core.ts';

/** The caller of requests without credentials, of a client with no capabilities. */
export const LOCAL_CALLER: ModernCaller = {
  principal: LOCAL,
  view: '',
  revision: LATEST_MODERN,
  capabilities: RawObject.EMPTY,
  logLevel: undefined,
  clientInfo: undefined,
};

export interface ModernOptions {
  readonly capabilities?: object;
  readonly principal?: Principal;
  readonly view?: string;
  readonly logLevel?: Severity;
  /** The name of the application. */
  readonly application?: string;
  readonly progressToken?: string | number;
  /** Further members of `_meta`. */
  readonly meta?: object;
  /** The id as raw JSON; by default a new number. */
  readonly id?: string;
  readonly onMessage?: (message: Message) => void;
}

export interface ModernReply {
  readonly result: Readonly<Record<string, unknown>> | undefined;
  readonly error: { readonly code: number; readonly message: string; readonly data?: unknown } | undefined;
}

/** One request in flight: the messages about it so far, and its outcome. */
export interface ModernRequest {
  readonly call: ModernCall;
  readonly messages: readonly Message[];
  readonly reply: Promise<ModernReply>;
}

/** The answer to a call that must be sent again. */
export interface InputRequired {
  readonly inputRequests: Readonly<Record<string, { readonly method: string; readonly params?: object }>>;
  readonly requestState: string;
  /** The name in `serverInfo`. */
  readonly serverName: unknown;
}

let lastId = 0;

/** Sends one request of 2026-07-28 to the core, as the client's edge does. */
export function modernRequest(
  { core }: Pick<TestCore, 'core'>,
  method: string,
  params: object = {},
  options: ModernOptions = {},
): ModernRequest {
  const { capabilities = {}, principal = LOCAL, view = '', logLevel, progressToken, id = String(++lastId) } = options;
  const clientInfo = { name: options.application ?? 'test', version: '1' };
  const messages: Message[] = [];
  const _meta = {
    [META.protocolVersion]: LATEST_MODERN,
    [META.clientInfo]: clientInfo,
    [META.clientCapabilities]: capabilities,
    ...(logLevel === undefined ? {} : { [META.logLevel]: logLevel }),
    ...(progressToken === undefined ? {} : { progressToken }),
    ...options.meta,
  };
  const request = { kind: 'request', id, method, params: RawObject.of({ ...params, _meta }) } as const;
  const caller: ModernCaller = {
    principal,
    view,
    revision: LATEST_MODERN,
    capabilities: RawObject.of(capabilities),
    logLevel,
    clientInfo: RawObject.of(clientInfo),
  };
  const { promise, resolve } = Promise.withResolvers<Answer>();
  const sink = {
    receivedMs: performance.now(),
    answer: resolve,
    send: (text: string) => {
      const message = parseMessage(text);
      messages.push(message);
      options.onMessage?.(message);
      return true;
    },
  };
  const call = core.gateway.handleModernRequest(request, caller, sink, undefined);
  const reply = promise.then((answer): ModernReply =>
    answer.kind === 'result'
      ? { result: JSON.parse(answer.result), error: undefined }
      : { result: undefined, error: answer.error },
  );
  return { call, messages, reply };
}

/** A client whose requests all have the same envelope, and the ids 1, 2, 3 and so on. */
export class ModernClient {
  readonly #core: TestCore;
  readonly #capabilities: object;
  readonly #principal: Principal;
  #lastId = 0;

  constructor(core: TestCore, capabilities: object = {}, principal: Principal = LOCAL) {
    this.#core = core;
    this.#capabilities = capabilities;
    this.#principal = principal;
  }

  request(method: string, params: object = {}, options: ModernOptions = {}): ModernRequest {
    const own = { capabilities: this.#capabilities, principal: this.#principal, id: String(++this.#lastId) };
    return modernRequest(this.#core, method, params, { ...own, ...options });
  }

  /** Returns the result of a request that must succeed. */
  async result(method: string, params: object = {}): Promise<NonNullable<ModernReply['result']>> {
    const { result, error } = await this.request(method, params).reply;
    if (result === undefined) throw new Error(`${method}: ${JSON.stringify(error)}`);
    return result;
  }

  /** Returns the error of a request that must fail. */
  async error(method: string, params: object = {}): Promise<NonNullable<ModernReply['error']>> {
    const { result, error } = await this.request(method, params).reply;
    if (error === undefined) throw new Error(`${method}: ${JSON.stringify(result)}`);
    return error;
  }
}

/** Returns the questions in a reply that must have some. */
export function inputRequiredIn({ result, error }: ModernReply): InputRequired {
  assert.equal(result?.['resultType'], 'input_required', JSON.stringify(result ?? error));
  const { inputRequests, requestState, _meta } = result;
  const { name } = Object(Object(_meta)[META.serverInfo]);
  assert.ok(typeof inputRequests === 'object' && inputRequests !== null, JSON.stringify(result));
  assert.ok(typeof requestState === 'string');
  return { inputRequests: JSON.parse(JSON.stringify(inputRequests)), requestState, serverName: name };
}

/** Returns the parsed first text of a result that must be complete. */
export function answersIn({ result, error }: ModernReply): unknown {
  assert.equal(result?.['resultType'], 'complete', JSON.stringify(result ?? error));
  const { content } = result;
  assert.ok(Array.isArray(content), JSON.stringify(result));
  return JSON.parse(String(content[0].text));
}
