import { setTimeout as sleep } from 'node:timers/promises';
import { COMMAND } from '../../command-name.ts';
import type { LogLevel } from '../../config/values/config.ts';
import type { LimitName } from '../../limits.ts';
import { AdminError, type AdminPort } from '../../operator/admin/admin-port.ts';
import type * as answers from '../../operator/admin/answers.ts';
import { JOINED_AGAIN, NOTHING_DONE, OTHER_VERSION, STARTS, TOO_LARGE } from '../../replicas/operator-question.ts';
import type { Colleague } from '../../replicas/replica-owners.ts';
import type { PipeMethod } from '../../store/piped/pipe-calls.ts';
import type { Logger } from '../../telemetry/log.ts';
import { MAX_ITEMS } from '../admin/admin-clients.ts';
import { ADMIN, type Answered, OPERATOR_CALL_MS } from '../admin/admin-methods.ts';
import { latestFirst, longestFirst, mergedUpstreams, withCountsOf } from '../admin/merged-answers.ts';
import type { LatestChanges } from './latest-changes.ts';
import { REPLICA } from './replica-answers.ts';

/** The longest time that an answer waits for another replica. */
const READ_MS = 2_000;
/** The time in which another replica ends a session. */
const END_MS = 10_000;
/** The pause before a replica that has not said what operators have changed is asked for it again. */
const AGAIN_MS = 1_000;
/** The longest wait for calls in flight when a change is taken over from another replica. */
const DRAIN_MS = 60_000;

export interface ReplicasAdminParts {
  /** The operations of this replica alone. */
  readonly own: AdminPort;
  /** The name of this replica. */
  readonly name: string;
  /** Returns the other replicas. */
  readonly colleagues: () => Promise<readonly Colleague[]>;
  readonly changes: LatestChanges;
  readonly onLimit: (limit: LimitName) => void;
  readonly log: Pick<Logger, 'warn'>;
}

interface Silent {
  readonly replica: string;
  readonly why: string;
  /** Present if it has answered that it refuses. */
  readonly code?: AdminError['code'];
}

/** The answers of the other replicas, and those that have none. */
interface Asked<Value> {
  readonly answers: readonly { readonly replica: string; readonly value: Value }[];
  readonly silent: readonly Silent[];
}

/** Answers operators for all replicas of a gateway: asks the others, and says which of them have not answered. */
export class ReplicasAdmin {
  readonly #parts: ReplicasAdminParts;
  /** Counts the times that this replica has begun to catch up. A later one replaces those before. */
  #catchUps = 0;

  constructor(parts: ReplicasAdminParts) {
    this.#parts = parts;
  }

  /** The operations for all replicas. Those about its log, its config and its readiness are of this replica alone. */
  get port(): AdminPort {
    const { own } = this.#parts;
    return {
      // The replicas have one ring of keys, so that one rotates them for all.
      ...own,
      status: () => this.#status(),
      upstreams: () => this.#upstreams(),
      clients: async () => {
        const { rows, missing } = await this.#rows(own.clients(), ADMIN.clients, (each) => each.clients, latestFirst);
        return { clients: rows, ...missing };
      },
      sessions: async () => {
        const { rows, isCut, missing } = await this.#rows(own.sessions(), ADMIN.sessions, (each) => each.sessions);
        return { sessions: rows, isCut, ...missing };
      },
      streams: async () => {
        const { rows, isCut, missing } = await this.#rows(own.streams(), ADMIN.streams, (each) => each.streams);
        return { streams: rows, isCut, ...missing };
      },
      calls: async () => {
        const { rows, isCut, missing } = await this.#rows(own.calls(), ADMIN.calls, (each) => each.calls, longestFirst);
        return { calls: rows, isCut, ...missing };
      },
      restartUpstream: (id, drainMs, operator) => this.#restart(id, drainMs, operator),
      disableUpstream: (id, drainMs, operator) => this.#disable(id, drainMs, operator),
      endSession: (digest, operator) => this.#endSession(digest, operator),
      get logLevel() {
        return own.logLevel;
      },
      setLogLevel: (level, operator) => this.#setLogLevel(level, operator),
    };
  }

  /**
   * Asks the living replicas what operators have changed, and makes the same changes. Then goes on asking those that have not answered. Never
   * rejects.
   *
   * @param drainMs the longest wait for calls in flight of what changes.
   */
  async catchUp(drainMs = DRAIN_MS): Promise<void> {
    const turn = ++this.#catchUps;
    const missed = await this.#takeChanges(drainMs);
    if (missed.size === 0 || turn !== this.#catchUps) return;
    const replicas = [...missed];
    this.#parts.log.warn(
      { replicas },
      'other replicas have not said what operators have changed; they are asked again',
    );
    void this.#askAgain(missed, turn);
  }

  /** Asks until each replica has answered, has left, or cannot know the answer. Keeps no process alive. */
  async #askAgain(first: ReadonlySet<string>, turn: number): Promise<void> {
    let missed = first;
    while (missed.size > 0) {
      await sleep(AGAIN_MS, undefined, { ref: false });
      if (turn !== this.#catchUps) return;
      missed = await this.#takeChanges(DRAIN_MS, missed);
    }
  }

  /** Makes the changes that the others know. Returns the names of those to ask again. @param from default: all. */
  async #takeChanges(drainMs: number, from?: ReadonlySet<string>): Promise<ReadonlySet<string>> {
    const asked = await this.#askOthers(REPLICA.changes, undefined, '', READ_MS, from);
    this.#parts.changes.apply(
      asked.answers.map(({ value }) => value),
      drainMs,
    );
    return new Set(asked.silent.filter(({ why }) => !HAS_NONE.has(why)).map(({ replica }) => replica));
  }

  /** Asks no replica again. */
  close(): void {
    this.#catchUps++;
  }

  async #askOthers<Args, Value>(
    { name, result }: PipeMethod<Args, Answered<Value>>,
    args: Args,
    operator = '',
    limitMs = READ_MS,
    from?: ReadonlySet<string>,
  ): Promise<Asked<Value>> {
    const found: { replica: string; value: Value }[] = [];
    const silent: Silent[] = [];
    const ask = async ({ name: replica, ask: send }: Colleague): Promise<void> => {
      const answer = await send(operator, name, args, limitMs);
      if ('why' in answer) {
        if (answer.why === TOO_LARGE) this.#parts.onLimit('replicaAnswerBytes');
        silent.push({ replica, why: answer.why });
        return;
      }
      const { data } = result.safeParse(answer.value);
      if (data === undefined) silent.push({ replica, why: OTHER_VERSION });
      else if ('value' in data) found.push({ replica, value: data.value });
      else silent.push({ replica, why: data.refused.message, code: data.refused.error });
    };
    const colleagues = await this.#parts.colleagues();
    await Promise.all(colleagues.filter(({ name: replica }) => from?.has(replica) ?? true).map(ask));
    // One that has restarted at its address is a member twice until its old lease lapses.
    const [former, others] = [silent.filter(isFormer), silent.filter((each) => !isFormer(each))];
    const known = new Set([this.#parts.name, ...[...found, ...others].map(({ replica }) => replica)]);
    const missing = [...others, ...former.filter(({ replica }) => !known.has(replica))];
    return { answers: found.toSorted(byReplica), silent: missing.toSorted(byReplica) };
  }

  async #status(): Promise<answers.StatusAnswer> {
    const { own, name } = this.#parts;
    const [mine, others] = await Promise.all([own.status(), this.#askOthers(ADMIN.status, undefined)]);
    if (isAlone(others)) return mine;
    const rowOf = (replica: string, status: answers.StatusAnswer, isAsked: boolean) => ({
      replica,
      isAsked,
      version: status.version,
      startedAt: status.startedAt,
      configHash: status.config.hash,
      isReady: status.isReady,
      reasons: status.reasons,
    });
    return {
      ...withCountsOf(
        mine,
        others.answers.map(({ value }) => value),
      ),
      replicas: [rowOf(name, mine, true), ...others.answers.map(({ replica, value }) => rowOf(replica, value, false))],
      ...missingOf(others),
    };
  }

  async #upstreams(): Promise<answers.UpstreamsAnswer> {
    const { own, name } = this.#parts;
    const [mine, others] = await Promise.all([own.upstreams(), this.#askOthers(ADMIN.upstreams, undefined)]);
    if (isAlone(others)) return mine;
    const all = [{ replica: name, value: mine }, ...others.answers];
    const merged = mergedUpstreams(all.map(({ value }) => value.upstreams));
    const upstreams = merged.map((upstream) => {
      const rows = all.flatMap(({ replica, value }) =>
        value.upstreams
          .filter(({ id }) => id === upstream.id)
          .map(({ state, reason, isDisabled }) => ({ replica, state, reason, isDisabled })),
      );
      const isSame = rows.every(
        ({ state, isDisabled }) => state === upstream.state && isDisabled === upstream.isDisabled,
      );
      return isSame && rows.length === all.length ? upstream : { ...upstream, replicas: rows };
    });
    return { upstreams, ...missingOf(others) };
  }

  /** Returns the rows of a list at all replicas, each with the name of its replica if there are several. */
  async #rows<Value extends object, Row extends { replica?: string | undefined }>(
    own: Value | Promise<Value>,
    list: PipeMethod<void, Answered<Value>>,
    rowsOf: (answer: Value) => readonly Row[],
    compare: (a: Row, b: Row) => number = () => 0,
  ) {
    const [mine, others] = await Promise.all([own, this.#askOthers(list, undefined)]);
    const all = [{ replica: this.#parts.name, value: mine }, ...others.answers];
    const rows = all.flatMap(({ replica, value }) =>
      rowsOf(value).map((row) => (isAlone(others) ? row : { ...row, replica })),
    );
    const isCut = all.some(({ value }) => 'isCut' in value && value.isCut === true) || rows.length > MAX_ITEMS;
    return { rows: rows.toSorted(compare).slice(0, MAX_ITEMS), isCut, missing: missingOf(others) };
  }

  async #restart(id: string, drainMs: number, operator = ''): Promise<answers.RestartAnswer> {
    const { own, name, changes } = this.#parts;
    if (!changes.hasUpstream(id)) return await own.restartUpstream(id, drainMs);
    const at = changes.now();
    changes.noteUpstream(id, at, false);
    const args = { id, drainMs, at, operator, through: name };
    const [mine, others] = await Promise.all([
      own.restartUpstream(id, drainMs),
      this.#askOthers(REPLICA.restartUpstream, args, operator, OPERATOR_CALL_MS),
    ]);
    const failed = others.answers.filter(({ value }) => !value.isStarted);
    const texts = [mine.message, ...failed.map(({ replica, value }) => `At ${replica}: ${value.message}`)];
    return { isStarted: mine.isStarted && failed.length === 0, ...confirmed(texts.join(' '), others.silent) };
  }

  async #disable(id: string, drainMs: number, operator = ''): Promise<answers.DoneAnswer> {
    const { own, name, changes } = this.#parts;
    if (!changes.hasUpstream(id)) return await own.disableUpstream(id, drainMs);
    const at = changes.now();
    // Before the members are read: one that joins after that asks for it.
    changes.noteUpstream(id, at, true);
    const args = { id, drainMs, at, operator, through: name };
    const [{ message }, { silent }] = await Promise.all([
      own.disableUpstream(id, drainMs),
      this.#askOthers(REPLICA.disableUpstream, args, operator, OPERATOR_CALL_MS),
    ]);
    return confirmed(message, silent);
  }

  /** A session is at one replica; the others do not know it. */
  async #endSession(digest: string, operator = ''): Promise<string> {
    const { own, name } = this.#parts;
    try {
      return await own.endSession(digest);
    } catch (thrown) {
      if (!(thrown instanceof AdminError) || thrown.code !== 'not-found') throw thrown;
      const asked = await this.#askOthers(REPLICA.endSession, { digest, operator, through: name }, operator, END_MS);
      const [ended] = asked.answers;
      if (ended !== undefined) return ended.value;
      const silent = asked.silent.filter(({ code }) => code !== 'not-found');
      if (silent.length === 0) throw thrown;
      const unknown = silent.filter(({ why }) => !NOTHING_DONE.has(why));
      if (unknown.length > 0) {
        const message = `The session "${digest}" may have ended. Replicas whose outcome is unknown: ${textOf(unknown)}.`;
        throw new AdminError('internal-error', `${message} "${COMMAND} ls sessions" shows whether it is there.`);
      }
      throw new AdminError('not-found', `${thrown.message} Not asked: ${textOf(silent)}.`);
    }
  }

  async #setLogLevel(level: LogLevel, operator = ''): Promise<readonly string[]> {
    const { own, name, changes } = this.#parts;
    const at = changes.now();
    changes.noteLogLevel(level, at);
    await own.setLogLevel(level);
    const args = { level, at, operator, through: name };
    const { silent } = await this.#askOthers(REPLICA.setLogLevel, args, operator);
    return unconfirmedOf(silent).map(({ replica }) => replica);
  }
}

/** The reasons of replicas without changes to take over. One that starts asks for them itself. */
const HAS_NONE: ReadonlySet<string> = new Set([STARTS, OTHER_VERSION, TOO_LARGE]);

function byReplica(a: { readonly replica: string }, b: { readonly replica: string }): number {
  return a.replica.localeCompare(b.replica);
}

function isAlone({ answers: others, silent }: Asked<unknown>): boolean {
  return others.length === 0 && silent.length === 0;
}

function isFormer({ why }: Silent): boolean {
  return why === JOINED_AGAIN;
}

/** Returns the member of an answer that names the replicas without a part in it. */
function missingOf({ silent }: Asked<unknown>): { unanswered?: { replica: string; why: string }[] } {
  return silent.length === 0 ? {} : { unanswered: silent.map(({ replica, why }) => ({ replica, why })) };
}

/** Returns the replicas that a change may not hold for. One that starts asks for it itself. */
function unconfirmedOf(silent: readonly Silent[]): readonly Silent[] {
  return silent.filter(({ why }) => why !== STARTS);
}

function textOf(silent: readonly Silent[]): string {
  return silent.map(({ replica, why }) => `${replica} (${why})`).join(', ');
}

/** Returns the outcome of a change in words, with the replicas that have not confirmed it. */
function confirmed(message: string, silent: readonly Silent[]): { message: string; unconfirmed?: string[] } {
  const unconfirmed = unconfirmedOf(silent);
  if (unconfirmed.length === 0) return { message };
  const text = `${message} Replicas that have not confirmed it: ${textOf(unconfirmed)}.`;
  return { message: text, unconfirmed: unconfirmed.map(({ replica }) => replica) };
}
