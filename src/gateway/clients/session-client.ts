import type { Catalog } from '../../catalog/catalog.ts';
import type { RawObject } from '../../json/json.ts';
import type { Principal } from '../../policy/principal.ts';
import type { Severity } from '../../protocol/severity.ts';
import type { ClientDialect } from '../dialects/client-dialect.ts';
import type { Caller } from '../front/caller.ts';
import type { ClientQuestion } from '../exchange/client-question.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';

/** Returns the catalog of a session for one principal object, whose rights may differ from those of the session at present. */
export type CatalogOf = (principal: Principal) => Catalog;

/**
 * The client of a session with the credentials of one request. Its rights stay those of that request, while other requests of the session
 * may come with other claims.
 */
export class SessionClient implements Client {
  readonly caller: Caller;
  readonly lasting: Client;
  readonly rounds = undefined;
  readonly #catalogOf: CatalogOf;
  /** The catalog of the session that {@link #own} was made for. */
  #madeFor: Catalog | undefined;
  #own: Catalog | undefined;

  /** @param session the client beyond this request. */
  constructor(session: Client, principal: Principal, catalogOf: CatalogOf) {
    this.lasting = session;
    this.caller = { ...session.caller, principal };
    this.#catalogOf = catalogOf;
  }

  get catalog(): Catalog {
    const { caller, catalog } = this.lasting;
    const { principal } = this.caller;
    if (caller.principal === principal) return catalog;
    if (this.#own === undefined || this.#madeFor !== catalog) {
      this.#madeFor = catalog;
      this.#own = this.#catalogOf(principal);
    }
    return this.#own;
  }

  get senderKey(): string | undefined {
    return this.lasting.senderKey;
  }

  get dialect(): ClientDialect {
    return this.lasting.dialect;
  }

  get clientCapabilities(): RawObject {
    return this.lasting.clientCapabilities;
  }

  get logLevel(): Severity | undefined {
    return this.lasting.logLevel;
  }

  wantsLog(level: string | undefined, unset?: Severity): boolean {
    return this.lasting.wantsLog(level, unset);
  }

  notify(method: string, params: RawObject | undefined, exchange: Exchange | undefined): boolean {
    return this.lasting.notify(method, params, exchange);
  }

  announce(method: string, params: RawObject | undefined): void {
    this.lasting.announce(method, params);
  }

  onUnsupportedRequest(method: string, params: RawObject, exchange: Exchange | undefined): void {
    this.lasting.onUnsupportedRequest(method, params, exchange);
  }

  ask(question: ClientQuestion, exchange: Exchange | undefined): void {
    this.lasting.ask(question, exchange);
  }
}
