import { randomUUID } from 'node:crypto';
import type { Settings } from '../../config/values/config.ts';
import { answerOf, GatewayError, toRpcError } from '../../errors.ts';
import { inputRequestsText, type InputRequest } from '../../protocol/input-required.ts';
import { RawObject } from '../../json/json.ts';
import type { LimitName } from '../../limits.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { isTerminal, isUnknownTask, upgradeCreatedTask, upgradeTask } from '../../protocol/tasks.ts';
import { resultOrLate, resultWithin } from '../../deadline.ts';
import type { ResultTranslator } from '../forward/result-translator.ts';
import { assertDeclared } from '../exchange/client-capabilities.ts';
import type { ConnectionHolder, Link } from '../exchange/connection-holder.ts';
import { InputRounds } from '../exchange/input-rounds.ts';
import type { OpenExchange } from '../exchange/open-exchange.ts';
import type { Sender } from '../forward/sender.ts';
import { originOf, type TaskSite } from './task-driver.ts';
import { hold, release, taskExchange } from './task-holds.ts';

export interface UpgradedTasksParts {
  readonly sender: Sender;
  readonly translator: ResultTranslator;
  readonly settings: Settings<'limits'>;
  /** Runs when a question about a task is refused, because too many are open. */
  readonly onLimit: (limit: LimitName) => void;
}

/** An upgraded task at its upstream, with the holder whose link created it. */
export interface UpgradedSite extends TaskSite {
  readonly holder: ConnectionHolder;
}

/** A task of a legacy upstream that runs for a modern client. */
interface RunningTask {
  /** Represents the client between its requests: the upstream's questions about the task belong to this exchange. */
  readonly exchange: OpenExchange;
  readonly rounds: InputRounds;
  /** The answer to `tasks/result`; undefined until the gateway requests it. */
  result: Promise<Answer> | undefined;
  timer: NodeJS.Timeout | undefined;
  /** The link whose close is awaited: that of the last `tasks/get`. */
  link: Link;
  /** The link that is kept open for the task: that of the last `tasks/get` with a state. */
  held: Link | undefined;
  /** Stops waiting for the close of the link. */
  forgetLink: () => void;
}

/**
 * Sends a request about a task to its upstream, when the upstream has a free slot. @throws {GatewayError} also if the client may not use the task any
 * more after the wait.
 */
type AskUpstream = (method: 'tasks/get' | 'tasks/cancel') => Promise<Answer>;

/** A task is given up if its client sends no request about it for this time. */
const CLIENT_SILENCE_MS = 3_600_000;

/** The time for an upstream to ask its questions after `tasks/result` was sent. */
const ASK_MS = 150;

/** Tasks of 2025-11-25 as tasks of the extension, with the questions that their upstreams ask. */
export class UpgradedTasks {
  readonly #parts: UpgradedTasksParts;
  readonly #running = new Map<string, RunningTask>();

  constructor(parts: UpgradedTasksParts) {
    this.#parts = parts;
  }

  /** Returns whether the principal may have one more task. */
  hasRoom(principal: string): boolean {
    const isOwn = ({ exchange }: RunningTask) => exchange.client.caller.principal.key === principal;
    return [...this.#running.values()].filter(isOwn).length < this.#parts.settings().limits.parkedPerPrincipal;
  }

  /**
   * Adds the task that an upstream has made of a call. Returns the result for the client, without a task id.
   *
   * @param created the result of the upstream, with this state.
   */
  begin(exchange: OpenExchange, site: UpgradedSite, created: RawObject, state: RawObject): RawObject {
    const { client } = exchange;
    // The upstream may have asked before the task existed.
    const rounds = client.rounds?.transfer() ?? new InputRounds(this.#parts.onLimit);
    const running = this.#add(exchange, site, rounds);
    this.#hold(running, site, state);
    site.link.connection.forgetProgress(exchange);
    site.holder.removeExchange(exchange);
    return this.#parts.translator.stamp(upgradeCreatedTask(created, state));
  }

  /** Answers `tasks/get` with the translated state or the upstream's error, without a task id. */
  async get(exchange: OpenExchange, site: UpgradedSite, ask: AskUpstream): Promise<Answer> {
    const known = this.#find(site);
    // No key of the questions of a task that is added again equals one of before.
    const laterRounds = () => new InputRounds(this.#parts.onLimit, undefined, `_${randomUUID()}`);
    const running = known ?? this.#add(exchange, site, laterRounds());
    this.#onClientContact(running, site);
    if (running.link !== site.link) this.#awaitClose(running, site);
    const { failure } = running.exchange;
    const answer = await ask('tasks/get');
    if (answer.kind === 'error') {
      // After any other error the task goes on, with its questions.
      if (known === undefined || isUnknownTask(answer.error)) this.#endThis(running, site);
      return answer;
    }
    const state = RawObject.parse(answer.result);
    const status = state.string('status');
    const upgraded = upgradeTask(state);
    if (failure !== undefined) {
      if (!isTerminal(status)) await ask('tasks/cancel').catch(() => undefined);
      return this.#finish(running, site, upgraded, { kind: 'error', error: toRpcError(failure) });
    }
    if (status === 'cancelled') return this.#finish(running, site, upgraded, undefined);
    if (isTerminal(status)) {
      let outcome: Answer;
      try {
        outcome = await exchange.unlessCancelled(this.#resultInTime(running, site));
      } catch (thrown) {
        exchange.throwIfCancelled();
        if (this.#isKnown(running, site)) throw thrown;
        // Another request has read the outcome, and ended the request for it that this one waited for.
        return await this.get(exchange, site, ask);
      }
      return this.#finish(running, site, upgraded, outcome);
    }
    // It may have ended meanwhile.
    if (!this.#isKnown(running, site)) return this.#unfinished(upgraded, []);
    if (running.held !== site.link) this.#hold(running, site, state);
    // The upstream may ask its questions only after `tasks/result` was sent.
    if (status === 'input_required') {
      this.#result(running, site).catch(() => undefined);
      await resultWithin(running.rounds.nextQuestions(), ASK_MS);
    }
    const questions = running.rounds.openQuestions();
    assertDeclared(site.upstream.id, exchange.client.clientCapabilities, questions);
    // The upstream waits as long as the client polls.
    running.rounds.reportWaiting();
    return this.#unfinished(upgraded, questions);
  }

  #unfinished(upgraded: RawObject, questions: readonly InputRequest[]): Answer {
    const inputRequests = questions.length === 0 ? undefined : inputRequestsText(questions);
    const status = questions.length === 0 ? '"working"' : '"input_required"';
    return this.#complete(upgraded.with('status', status).with('inputRequests', inputRequests));
  }

  /** Removes the task and returns its last state. Only an error fails it: a tool that failed has a result. */
  #finish(running: RunningTask, site: UpgradedSite, upgraded: RawObject, outcome: Answer | undefined): Answer {
    this.#endThis(running, site);
    if (outcome === undefined) return this.#complete(upgraded);
    const translated = answerOf(() => this.#parts.translator.toClient(running.exchange, originOf(site), outcome));
    return this.#complete(
      translated.kind === 'error'
        ? upgraded.with('status', '"failed"').with('error', JSON.stringify(translated.error))
        : upgraded.with('status', '"completed"').with('result', translated.result),
    );
  }

  #complete(members: RawObject): Answer {
    const result = this.#parts.translator.stamp(members.with('resultType', '"complete"'));
    return { kind: 'result', result: result.toString() };
  }

  /**
   * Answers `tasks/update`. Ignores responses to questions that are not open.
   *
   * @throws {GatewayError} `invalid-params` if a response is not a valid answer: its question stays open.
   */
  async update({ request }: OpenExchange, site: UpgradedSite, ask: AskUpstream): Promise<Answer> {
    const responses = request.params?.object('inputResponses');
    if (responses === undefined) {
      throw new GatewayError('invalid-params', { message: '"inputResponses" must be an object' });
    }
    const running = this.#find(site);
    if (running !== undefined) {
      this.#onClientContact(running, site);
      running.rounds.assertValid(responses, site.upstream.id, 'task');
      running.rounds.answer(responses);
      return this.#complete(RawObject.EMPTY);
    }
    const answer = await ask('tasks/get');
    return answer.kind === 'error' ? answer : this.#complete(RawObject.EMPTY);
  }

  /** Answers `tasks/cancel`: an empty result if the upstream knows the task, even if it cannot be cancelled any more. */
  async cancel(site: UpgradedSite, ask: AskUpstream): Promise<Answer> {
    const answer = await ask('tasks/cancel');
    if (answer.kind === 'error') {
      const state = await ask('tasks/get');
      if (state.kind === 'error') return state;
    } else {
      this.end(site);
    }
    return this.#complete(RawObject.EMPTY);
  }

  /** Requests the result from the upstream; only once for concurrent callers. */
  #result(running: RunningTask, { upstream, link, task }: UpgradedSite): Promise<Answer> {
    const { sender } = this.#parts;
    running.result ??= sender
      .send(running.exchange, upstream, link, {
        method: 'tasks/result',
        params: RawObject.of({ taskId: task }),
        silentMs: CLIENT_SILENCE_MS,
      })
      .answer.then(
        (answer) => {
          // Only the error of a task that has ended is its outcome, and is the same when the result is requested again.
          if (answer.kind === 'error') running.result = undefined;
          return answer;
        },
        (thrown: unknown) => {
          // The next request of the client tries again.
          running.result = undefined;
          throw thrown;
        },
      );
    return running.result;
  }

  /** Returns the result of a task that has ended. @throws {GatewayError} `upstream-timeout`: the next poll waits for the same request. */
  #resultInTime(running: RunningTask, site: UpgradedSite): Promise<Answer> {
    const { id, config } = site.upstream;
    const { callMs } = config.timeouts;
    return resultOrLate(this.#result(running, site), callMs, () => {
      const message = `upstream "${id}" did not answer tasks/result within ${callMs / 1000} s (timeouts.call)`;
      return new GatewayError('upstream-timeout', { upstream: id, executed: 'unknown', message });
    });
  }

  #find(site: UpgradedSite): RunningTask | undefined {
    const running = this.#running.get(keyOf(site));
    return running?.exchange.holder === site.holder ? running : undefined;
  }

  /** Adds a running task with an exchange that the upstream's questions belong to. */
  #add({ client, view }: OpenExchange, site: UpgradedSite, rounds: InputRounds): RunningTask {
    this.end(site);
    const { holder, upstream } = site;
    const { caller, catalog } = client;
    const exchange = taskExchange(caller, holder, view ?? catalog.view, rounds);
    exchange.upstream = upstream.id;
    holder.addExchange(exchange);
    const running: RunningTask = {
      exchange,
      rounds,
      result: undefined,
      timer: undefined,
      link: site.link,
      held: undefined,
      forgetLink: () => undefined,
    };
    this.#running.set(keyOf(site), running);
    this.#onClientContact(running, site);
    this.#awaitClose(running, site);
    return running;
  }

  /** Keeps the link open for the task, and no other one any more. */
  #hold(running: RunningTask, site: UpgradedSite, state: RawObject): void {
    if (running.held !== undefined) release({ ...site, link: running.held });
    running.held = site.link;
    hold(site, state, running.exchange, this.#parts.onLimit);
  }

  /** Ends the task when this link closes. It stays if only a poll has used the link, and another one is kept open for the task. */
  #awaitClose(running: RunningTask, site: UpgradedSite): void {
    const { held = site.link } = running;
    const link = site.link.connection.isClosed ? held : site.link;
    const awaited = { ...site, link };
    running.forgetLink();
    if (link.connection.isClosed) return this.end(awaited);
    running.link = link;
    // One that is given up finishes its requests first.
    running.forgetLink = link.connection.onClosed(() => this.#awaitClose(running, awaited));
  }

  #onClientContact(running: RunningTask, site: UpgradedSite): void {
    clearTimeout(running.timer);
    running.timer = setTimeout(() => this.end(site), CLIENT_SILENCE_MS).unref();
  }

  /** Returns whether the task is still the one that a request has begun with. Another request may have removed it, and a third one added it again. */
  #isKnown(running: RunningTask, site: UpgradedSite): boolean {
    return this.#running.get(keyOf(site)) === running;
  }

  #endThis(running: RunningTask, site: UpgradedSite): void {
    if (this.#isKnown(running, site)) this.end(site);
  }

  /** Removes the task and cancels its questions. A later request about it adds it again. */
  end(site: UpgradedSite): void {
    const running = this.#running.get(keyOf(site));
    if (running === undefined) return;
    this.#running.delete(keyOf(site));
    clearTimeout(running.timer);
    running.forgetLink();
    running.rounds.cancelAll('the task is over');
    running.exchange.holder.removeExchange(running.exchange);
    running.exchange.cancel('the task is over');
    if (running.held !== undefined) release({ ...site, link: running.held });
  }
}

function keyOf({ upstream, task, holder }: UpgradedSite): string {
  return `${holder.key} ${upstream.id} ${task}`;
}
