import type { Catalog } from '../../catalog/catalog.ts';
import type { ListName } from '../../catalog/page.ts';
import { GatewayError } from '../../errors.ts';
import type { Item } from '../../policy/decide.ts';
import type { Answer, Request } from '../../protocol/jsonrpc.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { type Cancellable, itemDigest, type ExternalDecisions } from '../exchange/external-decisions.ts';
import type { Client } from '../exchange/exchange.ts';
import type { Gate } from '../exchange/gate.ts';
import { unknownItem, type UpstreamRoute } from '../exchange/route.ts';
import type { ListAnswers } from '../forward/list-answers.ts';
import type { ListRefresher } from '../lists/list-refresher.ts';
import { type LifecycleOf, noToolsNote, ownerOf, possibleOwners, unavailableOwner } from './availability.ts';
import { judgedRoute, type JudgedRoute } from './judged-route.ts';

/** Carries out the requests of clients of one era: `R` is a request in flight, `C` its client. */
export interface EraHandler<R, C> {
  /** Runs before the route of a request is looked for. */
  readonly admit?: (one: R, client: C) => Promise<void>;
  /** Returns the route of the call that a request continues, whose name leads nowhere any more; undefined if it continues none. */
  readonly formerRoute?: (one: R, client: C) => Promise<UpstreamRoute | undefined>;
  readonly call: (one: R, client: C, to: UpstreamRoute) => Promise<Answer>;
  readonly runTask: (one: R, client: C) => Promise<Answer>;
  /** Answers a method that only this era has. @throws {GatewayError} `method-not-found` */
  readonly answer: (one: R, client: C) => Answer | Promise<Answer>;
}

export interface DispatcherParts {
  readonly lists: ListAnswers;
  readonly listRefresher: ListRefresher;
  readonly gate: Gate;
  readonly external: Pick<ExternalDecisions, 'ask' | 'askAboutResource'>;
  readonly lifecycleOf: LifecycleOf;
}

/** The list, the task or the one upstream that answers a method. The methods that only one era has are in its handler. */
const ANSWERED_BY: ReadonlyMap<string, 'upstream' | 'task' | ListName> = new Map([
  ['tools/call', 'upstream'],
  ['prompts/get', 'upstream'],
  ['resources/read', 'upstream'],
  ['completion/complete', 'upstream'],
  ['tools/list', 'tools'],
  ['prompts/list', 'prompts'],
  ['resources/list', 'resources'],
  ['resources/templates/list', 'resourceTemplates'],
  ['tasks/get', 'task'],
  ['tasks/result', 'task'],
  ['tasks/list', 'task'],
  ['tasks/update', 'task'],
  ['tasks/cancel', 'task'],
]);

interface DispatchedRequest extends Cancellable {
  readonly request: Request;
  /** The item about which an external decision has allowed it, if this process has asked. */
  allowedItem: Item | undefined;
}

/** Decides which part of the gateway answers a request. Clients of the two eras differ only in the handler. */
export class Dispatcher<R extends DispatchedRequest, C extends Client> {
  readonly #parts: DispatcherParts;
  readonly #era: EraHandler<R, C>;

  constructor(parts: DispatcherParts, era: EraHandler<R, C>) {
    this.#parts = parts;
    this.#era = era;
  }

  /** @param holder has the lists of the client. @throws {GatewayError} every failure. */
  answer(one: R, client: C, holder: ConnectionHolder): Answer | Promise<Answer> {
    const { request } = one;
    const by = ANSWERED_BY.get(request.method);
    if (by === 'upstream') return this.#call(one, client, holder);
    if (by === 'task') return this.#era.runTask(one, client);
    return by === undefined ? this.#era.answer(one, client) : this.#parts.lists.answer(one, holder, by, client);
  }

  /**
   * Sends a request where its route says. A name that is in no list is looked for once more after the lists that may have it
   * were refreshed. So is a tool that goes to its upstream unlisted. A client may call before it lists. It is also looked for after the first lists of an upstream that has just started. A
   * name that the access policy denies has the answer of an unknown one.
   */
  async #call(one: R, client: C, holder: ConnectionHolder): Promise<Answer> {
    const { gate, listRefresher, lifecycleOf } = this.#parts;
    const { request } = one;
    const admitting = this.#era.admit?.(one, client);
    if (admitting !== undefined) await admitting;
    let judged = judgedRoute(gate, client, request);
    let isBeingListed = false;
    if (mayBeUnlisted(judged)) {
      const askedMs = performance.now();
      const { catalog } = client;
      const { changedMs } = gate;
      const refreshing = listRefresher.refreshFor(holder, possibleOwners(catalog.view, request));
      if (refreshing !== undefined) await one.unlessCancelled(refreshing);
      if (client.catalog !== catalog || gate.changedMs !== changedMs) judged = judgedRoute(gate, client, request);
      const owner = mayBeUnlisted(judged) ? ownerOf(client.catalog.view, request) : undefined;
      if (owner !== undefined) {
        const waitedMs = performance.now() - askedMs;
        isBeingListed = await one.unlessCancelled(listRefresher.awaitFirstLists(holder, owner, waitedMs));
        judged = judgedRoute(gate, client, request);
      }
    }
    // Not one that the access policy hides.
    if (judged.to.kind === 'nowhere' && judged.verdict === undefined) {
      const former = await this.#era.formerRoute?.(one, client);
      if (former !== undefined) judged = judgedRoute(gate, client, request, former);
    }
    const asking = this.#ask(one, client, judged);
    if (asking !== undefined) {
      one.allowedItem = await asking;
      // A reload may have changed the rules meanwhile.
      judged =
        one.allowedItem !== undefined
          ? judgedRoute(gate, client, request, judged.to)
          : { to: unknownItem(request), verdict: undefined };
    }
    const { to, verdict } = judged;
    if (verdict !== undefined) gate.report(verdict);
    if (to.kind === 'upstream') return await this.#era.call(one, client, to);
    if (verdict?.lacking !== undefined) throw to.error;
    const { view } = client.catalog;
    const failureOf = (upstream: string) => listRefresher.failedListing(holder, upstream)?.error;
    const nowMs = performance.now();
    throw unavailableOwner(view, lifecycleOf, request, nowMs, isBeingListed, failureOf) ?? to.error;
  }

  /**
   * Asks for an external decision, unless the process that has passed the request on has asked about the same item. By its lists the name
   * may lead elsewhere. Returns undefined if nobody is asked, else a promise of the item, or of undefined if it is denied.
   */
  #ask(one: R, { caller }: C, { to, verdict }: JudgedRoute): Promise<Item | undefined> | undefined {
    if (to.kind !== 'upstream' || verdict === undefined || !('kind' in verdict.item)) return undefined;
    const { item } = verdict;
    if (caller.allowedItem !== undefined && caller.allowedItem === itemDigest(item)) return undefined;
    const asking = this.#parts.external.ask(caller, one.request, item, one, to.params);
    return asking?.then((isAllowed) => (isAllowed ? item : undefined));
  }

  /** Returns the instructions of an endpoint as JSON: the reason why it has no tools, if so, and those of its upstreams. */
  instructionsOf({ tools, view, instructions }: Catalog): string | undefined {
    const note = tools.size === 0 ? noToolsNote(view, this.#parts.lifecycleOf, performance.now()) : undefined;
    const texts = [note, instructions].filter((text) => text !== undefined);
    return texts.length === 0 ? undefined : JSON.stringify(texts.join('\n\n'));
  }
}

/**
 * Returns whether further lists may lead to the name of a request, or say how the tool that it names is called. They cannot change what a
 * scope decides, and a wait could cost the status of the answer.
 */
function mayBeUnlisted({ to, verdict }: JudgedRoute): boolean {
  if (to.kind === 'upstream') return to.tool !== undefined && to.source === undefined;
  return verdict?.lacking === undefined;
}

export function tooManyInFlight(count: number): GatewayError {
  return new GatewayError('overloaded', { message: `${count} requests are already in flight` });
}
