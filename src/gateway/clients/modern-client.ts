import type { Catalog } from '../../catalog/catalog.ts';
import { GatewayError } from '../../errors.ts';
import { mayRequireInput } from '../../protocol/input-required.ts';
import type { RawObject } from '../../json/json.ts';
import { errorAnswer, notificationText } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { ClientGroup } from './client-group.ts';
import type { Caller } from '../front/caller.ts';
import { type ClientDialect, clientDialect } from '../dialects/client-dialect.ts';
import type { ClientQuestion } from '../exchange/client-question.ts';
import { type ConnectionHolder, digestOf } from '../exchange/connection-holder.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import { isWanted } from '../exchange/log-level.ts';
import { capabilitiesNeededFor } from '../exchange/client-capabilities.ts';
import type { InputRounds } from '../exchange/input-rounds.ts';
import type { ModernCaller } from '../front/front.ts';

/** The client of one modern request: it gets only messages of this request, and nothing is kept afterwards. */
export class ModernClient<Holder extends ConnectionHolder = ClientGroup> implements Client {
  readonly caller: Caller & Pick<ModernCaller, 'clientInfo'>;
  /** That of the caller: the callers of a group may have different modern revisions. */
  readonly dialect: ClientDialect;
  readonly group: Holder;
  /** The questions of the call, which an earlier request may have begun; undefined if the client cannot be asked during the call. */
  rounds: InputRounds | undefined;
  readonly logLevel: Severity | undefined;

  constructor(
    caller: ModernClient['caller'],
    group: Holder,
    logLevel: Severity | undefined,
    rounds: InputRounds | undefined,
  ) {
    this.caller = caller;
    this.dialect = clientDialect(caller.revision);
    this.group = group;
    this.logLevel = logLevel;
    this.rounds = rounds;
  }

  get lasting(): this {
    return this;
  }

  /** Modern requests name their application and version, and no more. Those of one application and principal count as one client. */
  get senderKey(): string | undefined {
    const { principal, clientInfo } = this.caller;
    return clientInfo === undefined ? undefined : digestOf(`${principal.key} ${clientInfo.toString()}`);
  }

  get catalog(): Catalog {
    return this.group.catalog;
  }

  get clientCapabilities(): RawObject {
    return this.group.clientCapabilities;
  }

  wantsLog(level: string | undefined): boolean {
    return this.logLevel !== undefined && isWanted(level, this.logLevel);
  }

  notify(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean {
    return exchange?.sink.send(notificationText(method, params)) ?? false;
  }

  announce(): void {
    // A request has no stream for other notifications; `subscriptions/listen` opens one.
  }

  /** Fails the request with the capabilities that it would have to declare. A request of the legacy era cannot declare any. */
  onUnsupportedRequest(method: string, params: RawObject, exchange: Exchange | undefined): void {
    if (!this.dialect.describesClient) return;
    const requiredCapabilities = capabilitiesNeededFor(method, params);
    if (exchange === undefined || requiredCapabilities === undefined) return;
    const message = `the server asks for ${method}`;
    exchange.fail(
      new GatewayError('missing-capability', { message, executed: 'unknown', data: { requiredCapabilities } }),
    );
  }

  ask(question: ClientQuestion, exchange: Exchange | undefined): void {
    const mayAsk = exchange !== undefined && mayRequireInput(exchange.request.method);
    if (mayAsk && this.rounds !== undefined) {
      this.rounds.add(question);
      return;
    }
    const message = mayAsk
      ? 'The client cannot be asked during this call'
      : 'Only tools/call, prompts/get and resources/read may be answered with questions';
    question.answer(errorAnswer(RPC.invalidParams, message));
  }
}
