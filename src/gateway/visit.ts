import type { Catalog } from '../catalog/catalog.ts';
import { GatewayError } from '../errors.ts';
import { mayAsk } from '../protocol/input-required.ts';
import type { RawObject } from '../json/json.ts';
import { notificationText } from '../protocol/jsonrpc.ts';
import type { Severity } from '../protocol/severity.ts';
import type { Affinity } from './affinity.ts';
import type { Caller } from './caller.ts';
import type { Client, Exchange, Inquiry } from './exchange.ts';
import { isWanted } from './log-level.ts';
import { capabilitiesFor } from './features.ts';
import type { Rounds } from './rounds.ts';

/** A modern client, as long as one request lasts: nothing of it is remembered, and it is told nothing but of this request. */
export class Visit implements Client {
  readonly caller: Caller;
  readonly affinity: Affinity;
  readonly rounds: Rounds | undefined;
  readonly logLevel: Severity | undefined;

  /** @param rounds of the call, which this request may only have taken up; none for a client that can be asked nothing. */
  constructor(caller: Caller, affinity: Affinity, logLevel: Severity | undefined, rounds: Rounds | undefined) {
    this.caller = caller;
    this.affinity = affinity;
    this.logLevel = logLevel;
    this.rounds = rounds;
  }

  get catalog(): Catalog {
    return this.affinity.catalog;
  }

  get offered(): RawObject {
    return this.affinity.offered;
  }

  isLogWanted(level: string | undefined): boolean {
    return this.logLevel !== undefined && isWanted(level, this.logLevel);
  }

  tell(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean {
    return exchange?.outlet.send(notificationText(method, params)) ?? false;
  }

  announce(): void {
    // It has no stream for what belongs to no request, but for those it opens with subscriptions/listen.
  }

  /** The request did not declare what it takes, so it is refused with what it would take. */
  cannotBeAsked(method: string, params: RawObject, exchange: Exchange | undefined): void {
    const requiredCapabilities = capabilitiesFor(method, params);
    if (exchange === undefined || requiredCapabilities === undefined) return;
    const say = `the server asks for ${method}`;
    exchange.fail(new GatewayError('missing-capability', { say, executed: 'unknown', data: { requiredCapabilities } }));
  }

  ask(inquiry: Inquiry, exchange: Exchange | undefined): void {
    if (exchange !== undefined && mayAsk(exchange.request.method)) {
      this.rounds?.put(inquiry);
      return;
    }
    const message = 'Only tools/call, prompts/get and resources/read may be answered with questions';
    inquiry.answer({ kind: 'error', error: { code: -32602, message } });
  }
}
