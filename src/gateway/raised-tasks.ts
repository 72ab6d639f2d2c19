import { toRpcError } from '../errors.ts';
import { inputRequestsText, type InputRequest } from '../protocol/input-required.ts';
import { RawObject } from '../json/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { isEnd, raiseTask } from '../protocol/tasks.ts';
import type { Affinity } from './affinity.ts';
import { atMost } from './at-most.ts';
import type { Answers } from './answers.ts';
import type { Client } from './exchange.ts';
import { OpenExchange } from './open-exchange.ts';
import { Rounds } from './rounds.ts';
import type { Sender } from './sender.ts';
import type { TaskSite } from './task-driver.ts';
import { release } from './task-holds.ts';
import { Visit } from './visit.ts';

export interface RaisedTasksParts {
  readonly sender: Sender;
  readonly answers: Answers;
  readonly perPrincipal: number;
}

/** Where such a task is, and whose connection it is on. */
export interface RaisedSite extends TaskSite {
  readonly party: Affinity;
}

/** A task of a legacy upstream that is under way for a modern client. */
interface Running {
  readonly principal: string;
  /** Stands for the client while nobody asks: what the upstream wants to know, it wants to know of this. */
  readonly exchange: OpenExchange;
  readonly rounds: Rounds;
  readonly party: Affinity;
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
export class RaisedTasks {
  readonly #parts: RaisedTasksParts;
  readonly #running = new Map<string, Running>();

  constructor(parts: RaisedTasksParts) {
    this.#parts = parts;
  }

  /** Whether one more can be kept for this principal. */
  hasRoom(principal: string): boolean {
    let own = 0;
    for (const running of this.#running.values()) if (running.principal === principal) own++;
    return own < this.#parts.perPrincipal;
  }

  /** The upstream has made a task of a call. @returns the result that says so, without the client's id of it. */
  begin(exchange: OpenExchange, site: RaisedSite, state: RawObject): RawObject {
    const { client } = exchange;
    // What it asked in the meantime is among the questions of the call.
    this.#keep(client, site, (client instanceof Visit ? client.rounds?.moved() : undefined) ?? new Rounds());
    site.party.working.delete(exchange);
    return this.#parts.answers.stamp(raiseTask(state).with('resultType', '"task"'));
  }

  /** `tasks/get`. @returns the state in the client's words, or the upstream's error; neither with the client's id. */
  async get(exchange: OpenExchange, site: RaisedSite): Promise<Answer> {
    const running = this.#find(site) ?? this.#keep(exchange.client, site, new Rounds());
    this.#heard(running, site);
    const { failure } = running.exchange;
    const answer = await this.#send(exchange, site, 'tasks/get');
    if (answer.kind === 'error') {
      this.#end(site);
      return answer;
    }
    const state = RawObject.parse(answer.result);
    const status = state.string('status');
    const told = raiseTask(state);
    if (failure !== undefined) return this.#ended(running, site, told, { kind: 'error', error: toRpcError(failure) });
    if (status === 'cancelled') return this.#ended(running, site, told, undefined);
    if (isEnd(status)) {
      const outcome = await exchange.unlessCancelled(this.#result(running, site));
      return this.#ended(running, site, told, outcome);
    }
    // What it wants to know it may ask only where its result is waited for.
    if (status === 'input_required') {
      this.#result(running, site).catch(() => undefined);
      await atMost([running.rounds.asked()], ASK_MS);
    }
    return this.#underWay(told, running.rounds.take());
  }

  #underWay(told: RawObject, questions: readonly InputRequest[]): Answer {
    const inputRequests = questions.length === 0 ? undefined : inputRequestsText(questions);
    const status = questions.length === 0 ? '"working"' : '"input_required"';
    return this.#own(told.with('status', status).with('inputRequests', inputRequests));
  }

  /** An error is what a failed task has; a tool that failed is a result like any other. */
  #ended({ exchange }: Running, site: RaisedSite, told: RawObject, outcome: Answer | undefined): Answer {
    this.#end(site);
    if (outcome === undefined) return this.#own(told);
    const { client, request } = exchange;
    const given = { upstream: site.upstream.id, isModern: false, source: undefined };
    const ended = this.#parts.answers.toClient({ client, request }, given, outcome);
    return this.#own(
      ended.kind === 'error'
        ? told.with('status', '"failed"').with('error', JSON.stringify(ended.error))
        : told.with('status', '"completed"').with('result', ended.result),
    );
  }

  #own(state: RawObject): Answer {
    const result = this.#parts.answers.stamp(state.with('resultType', '"complete"'));
    return { kind: 'result', result: result.toString() };
  }

  /** `tasks/update`: what is not asked any more is passed over. */
  async update(exchange: OpenExchange, site: RaisedSite): Promise<Answer> {
    const running = this.#find(site);
    if (running !== undefined) {
      this.#heard(running, site);
      running.rounds.answer(exchange.request.params?.object('inputResponses'));
      return this.#own(RawObject.EMPTY);
    }
    const answer = await this.#send(exchange, site, 'tasks/get');
    return answer.kind === 'error' ? answer : this.#own(RawObject.EMPTY);
  }

  /** `tasks/cancel`: to have heard it is all that is promised, also where the task has ended or cannot be cancelled. */
  async cancel(exchange: OpenExchange, site: RaisedSite): Promise<Answer> {
    const answer = await this.#send(exchange, site, 'tasks/cancel');
    if (answer.kind === 'error') {
      const known = await this.#send(exchange, site, 'tasks/get');
      if (known.kind === 'error') return known;
    }
    return this.#own(RawObject.EMPTY);
  }

  /** Waits for the result, once however often it is asked for. */
  #result(running: Running, { upstream, link, task }: RaisedSite): Promise<Answer> {
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

  async #send(exchange: OpenExchange, { upstream, link, task }: RaisedSite, method: string): Promise<Answer> {
    await exchange.enter(upstream.gate);
    try {
      const params = RawObject.of({ taskId: task });
      return await this.#parts.sender.send(exchange, upstream, link, { method, params }).answer;
    } finally {
      exchange.leave();
    }
  }

  #find(site: RaisedSite): Running | undefined {
    const running = this.#running.get(keyOf(site));
    return running?.party === site.party ? running : undefined;
  }

  /** From here on there is somebody whom the upstream can ask. */
  #keep({ caller }: Client, site: RaisedSite, rounds: Rounds): Running {
    this.#end(site);
    const { party, upstream } = site;
    const call = { kind: 'request', id: '0', method: 'tools/call', params: undefined } as const;
    const exchange = new OpenExchange(new Visit(caller, party, undefined, rounds), party, call, NOWHERE);
    exchange.upstream = upstream.id;
    party.working.add(exchange);
    const timer = setTimeout(() => this.#end(site), UNHEARD_MS).unref();
    const running: Running = {
      principal: caller.principal.key,
      exchange,
      rounds,
      party,
      result: undefined,
      timer,
    };
    this.#running.set(keyOf(site), running);
    return running;
  }

  #heard(running: Running, site: RaisedSite): void {
    clearTimeout(running.timer);
    running.timer = setTimeout(() => this.#end(site), UNHEARD_MS).unref();
  }

  /** Nobody waits for it any more. */
  #end(site: RaisedSite): void {
    const running = this.#running.get(keyOf(site));
    if (running === undefined) return;
    this.#running.delete(keyOf(site));
    clearTimeout(running.timer);
    running.rounds.abandon('the task is over');
    running.party.working.delete(running.exchange);
    running.exchange.cancel('the task is over');
    release(site);
  }
}

function keyOf({ upstream, task, party }: RaisedSite): string {
  return `${party.key} ${upstream.id} ${task}`;
}
