import { LOCAL, type Principal } from '../../src/policy/principal.ts';
import { RawObject } from '../../src/protocol/json.ts';
import { type Answer, type Message, parseMessage } from '../../src/protocol/jsonrpc.ts';
import { MODERN } from '../../src/protocol/revisions.ts';
import type { ModernCall, ModernCaller } from '../../src/gateway/front.ts';
import type { TestCore } from './core.ts';

/** One request of a modern client that is under way. */
export interface Visited {
  readonly call: ModernCall;
  readonly said: Message[];
}

/** A client of 2026-07-28 before a core: nothing but what each of its requests says. */
export class ModernVisitor {
  readonly #core: TestCore;
  readonly #capabilities: object;
  readonly #principal: Principal;
  #lastId = 0;

  constructor(core: TestCore, capabilities: object = {}, principal: Principal = LOCAL) {
    this.#core = core;
    this.#capabilities = capabilities;
    this.#principal = principal;
  }

  begin(method: string, params: object = {}, onMessage?: (message: Message) => void): Visited {
    const said: Message[] = [];
    const outlet = {
      send: (text: string) => {
        const message = parseMessage(text);
        said.push(message);
        onMessage?.(message);
        return true;
      },
    };
    const caller: ModernCaller = {
      principal: this.#principal,
      view: '',
      revision: MODERN,
      capabilities: RawObject.of(this.#capabilities),
      logLevel: undefined,
    };
    const request = { kind: 'request', id: String(++this.#lastId), method, params: RawObject.of(params) } as const;
    return { call: this.#core.core.gateway.modern(request, caller, outlet, undefined), said };
  }

  async answer(method: string, params: object = {}): Promise<Answer> {
    return await this.begin(method, params).call.answer;
  }

  /** The result of a request that must succeed, parsed. */
  async result(method: string, params: object = {}): Promise<Record<string, unknown>> {
    const answer = await this.answer(method, params);
    if (answer.kind === 'error') throw new Error(`${method}: ${JSON.stringify(answer.error)}`);
    return JSON.parse(answer.result);
  }

  /** The error of a request that must fail. */
  async error(method: string, params: object = {}): Promise<{ code: number; message: string; data?: unknown }> {
    const answer = await this.answer(method, params);
    if (answer.kind === 'result') throw new Error(`${method}: ${answer.result}`);
    return answer.error;
  }
}
