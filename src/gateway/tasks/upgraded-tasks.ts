import { toRpcError } from '../../errors.ts';
import { inputRequestsText, type InputRequest } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { isTerminal, upgradeTask } from '../../protocol/tasks.ts';
import type { ClientGroup } from '../clients/client-group.ts';
import { waitAtMost } from '../exchange/at-most.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import type { Client } from '../exchange/exchange.ts';
import { OpenExchange } from '../exchange/open-exchange.ts';
import { InputRounds } from '../questions/input-rounds.ts';
import type { Sender } from '../forward/sender.ts';
import type { TaskSite } from './task-driver.ts';
import { release } from './task-holds.ts';
import { ModernClient } from '../clients/modern-client.ts';

export interface UpgradedTasksParts {
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly perPrincipal: number;
}

/** Where such a task is, and whose connection it is on. */
export interface UpgradedSite extends TaskSite {
  readonly holder: ClientGroup;
}

/** A task of a legacy upstream that is under way for a modern client. */
interface RunningTask {
  readonly principal: string;
  /** Stands for the client while nobody asks: what the upstream wants to know, it wants to know of this. */
  readonly exchange: OpenExchange;
  readonly rounds: InputRounds;
  readonly holder: ClientGroup;
  /** `tasks/result`, once it is asked for. */
  result: Promise<Answer> | undefined;
  timer: NodeJS.Timeout;
}

/** A task without an end is given up after this long without a word from its client. */
const UNHEARD_MS = 3_600_000;
/** What an upstream asks as soon as its result is waited for. */
const ASK_MS = 150;
const NOWHERE = { send: () => false };

/** Tasks of 2025-11-25 as clients of the extension see them, with the questions that they ask on the way. */
export class UpgradedTasks {
  readonly #parts: UpgradedTasksParts;
  readonly #running = new Map<string, RunningTask>();

  constructor(parts: UpgradedTasksParts) {
    this.#parts = parts;
  }

  /** Whether one more can be kept for this principal. */
  hasRoom(principal: string): boolean {
    let own = 0;
    for (const running of this.#running.values()) if (running.principal === principal) own++;
    return own < this.#parts.perPrincipal;
  }

  /** The upstream has made a task of a call. @returns the result that says so, without the client's id of it. */
  begin(exchange: OpenExchange, site: UpgradedSite, state: RawObject): RawObject {
    const { client } = exchange;
    // What it asked in the meantime is among the questions of the call.
    this.#keep(
      client,
      site,
      (client instanceof ModernClient ? client.rounds?.transfer() : undefined) ?? new InputRounds(),
    );
    site.holder.activeExchanges.delete(exchange);
    return this.#parts.translator.stamp(upgradeTask(state).with('resultType', '"task"'));
  }

  /** `tasks/get`. @returns the state in the client's words, or the upstream's error; neither with the client's id. */
  async get(exchange: OpenExchange, site: UpgradedSite): Promise<Answer> {
    const running = this.#find(site) ?? this.#keep(exchange.client, site, new InputRounds());
    this.#onClientContact(running, site);
    const { failure } = running.exchange;
    const answer = await this.#send(exchange, site, 'tasks/get');
    if (answer.kind === 'error') {
      this.#end(site);
      return answer;
    }
    const state = RawObject.parse(answer.result);
    const status = state.string('status');
    const told = upgradeTask(state);
    if (failure !== undefined) return this.#onEnd(running, site, told, { kind: 'error', error: toRpcError(failure) });
    if (status === 'cancelled') return this.#onEnd(running, site, told, undefined);
    if (isTerminal(status)) {
      const outcome = await exchange.unlessCancelled(this.#result(running, site));
      return this.#onEnd(running, site, told, outcome);
    }
    // What it wants to know it may ask only where its result is waited for.
    if (status === 'input_required') {
      this.#result(running, site).catch(() => undefined);
      await waitAtMost([running.rounds.nextQuestions()], ASK_MS);
    }
    return this.#inFlight(told, running.rounds.openQuestions());
  }

  #inFlight(told: RawObject, questions: readonly InputRequest[]): Answer {
    const inputRequests = questions.length === 0 ? undefined : inputRequestsText(questions);
    const status = questions.length === 0 ? '"working"' : '"input_required"';
    return this.#own(told.with('status', status).with('inputRequests', inputRequests));
  }

  /** An error is what a failed task has; a tool that failed is a result like any other. */
  #onEnd({ exchange }: RunningTask, site: UpgradedSite, told: RawObject, outcome: Answer | undefined): Answer {
    this.#end(site);
    if (outcome === undefined) return this.#own(told);
    const { client, request } = exchange;
    const given = { upstream: site.upstream.id, isModern: false, source: undefined };
    const ended = this.#parts.translator.toClient({ client, request }, given, outcome);
    return this.#own(
      ended.kind === 'error'
        ? told.with('status', '"failed"').with('error', JSON.stringify(ended.error))
        : told.with('status', '"completed"').with('result', ended.result),
    );
  }

  #own(state: RawObject): Answer {
    const result = this.#parts.translator.stamp(state.with('resultType', '"complete"'));
    return { kind: 'result', result: result.toString() };
  }

  /** `tasks/update`: what is not asked any more is passed over. */
  async update(exchange: OpenExchange, site: UpgradedSite): Promise<Answer> {
    const running = this.#find(site);
    if (running !== undefined) {
      this.#onClientContact(running, site);
      running.rounds.answer(exchange.request.params?.object('inputResponses'));
      return this.#own(RawObject.EMPTY);
    }
    const answer = await this.#send(exchange, site, 'tasks/get');
    return answer.kind === 'error' ? answer : this.#own(RawObject.EMPTY);
  }

  /** `tasks/cancel`: to have heard it is all that is promised, also where the task has ended or cannot be cancelled. */
  async cancel(exchange: OpenExchange, site: UpgradedSite): Promise<Answer> {
    const answer = await this.#send(exchange, site, 'tasks/cancel');
    if (answer.kind === 'error') {
      const known = await this.#send(exchange, site, 'tasks/get');
      if (known.kind === 'error') return known;
    }
    return this.#own(RawObject.EMPTY);
  }

  /** Waits for the result, once however often it is asked for. */
  #result(running: RunningTask, { upstream, link, task }: UpgradedSite): Promise<Answer> {
    const { sender } = this.#parts;
    running.result ??= sender
      .send(running.exchange, upstream, link, {
        method: 'tasks/result',
        params: RawObject.of({ taskId: task }),
        silentMs: UNHEARD_MS,
      })
      .answer.catch((thrown: unknown) => {
        // It can be had again.
        running.result = undefined;
        throw thrown;
      });
    return running.result;
  }

  async #send(exchange: OpenExchange, { upstream, link, task }: UpgradedSite, method: string): Promise<Answer> {
    await exchange.acquireSlot(upstream.limiter);
    try {
      const params = RawObject.of({ taskId: task });
      return await this.#parts.sender.send(exchange, upstream, link, { method, params }).answer;
    } finally {
      exchange.releaseSlot();
    }
  }

  #find(site: UpgradedSite): RunningTask | undefined {
    const running = this.#running.get(keyOf(site));
    return running?.holder === site.holder ? running : undefined;
  }

  /** From here on there is somebody whom the upstream can ask. */
  #keep({ caller }: Client, site: UpgradedSite, rounds: InputRounds): RunningTask {
    this.#end(site);
    const { holder, upstream } = site;
    const call = { kind: 'request', id: '0', method: 'tools/call', params: undefined } as const;
    const exchange = new OpenExchange(new ModernClient(caller, holder, undefined, rounds), holder, call, NOWHERE);
    exchange.upstream = upstream.id;
    holder.activeExchanges.add(exchange);
    const timer = setTimeout(() => this.#end(site), UNHEARD_MS).unref();
    const running: RunningTask = {
      principal: caller.principal.key,
      exchange,
      rounds,
      holder,
      result: undefined,
      timer,
    };
    this.#running.set(keyOf(site), running);
    return running;
  }

  #onClientContact(running: RunningTask, site: UpgradedSite): void {
    clearTimeout(running.timer);
    running.timer = setTimeout(() => this.#end(site), UNHEARD_MS).unref();
  }

  /** Nobody waits for it any more. */
  #end(site: UpgradedSite): void {
    const running = this.#running.get(keyOf(site));
    if (running === undefined) return;
    this.#running.delete(keyOf(site));
    clearTimeout(running.timer);
    running.rounds.cancelAll('the task is over');
    running.holder.activeExchanges.delete(running.exchange);
    running.exchange.cancel('the task is over');
    release(site);
  }
}

function keyOf({ upstream, task, holder }: UpgradedSite): string {
  return `${holder.key} ${upstream.id} ${task}`;
}
