import type { Step } from '../fixtures/servers/nonce-acts.ts';
import type { Rpc, RpcId } from './swarm-client.ts';
import type { PlannedCall, PlannedSession } from './swarm-plan.ts';
import { isRecord } from '../../src/json/record.ts';

/** The messages that a client has received about one call of its own. */
interface Account {
  readonly planned: PlannedCall;
  isCancelled: boolean;
  answers: number;
  progress: number;
  readonly logs: Set<number>;
  asked: number;
}

const NONCE = /nonce:\d+:\d+;/g;

function count(steps: readonly Step[], ...kinds: readonly Step[]): number {
  return steps.filter((step) => kinds.includes(step)).length;
}

/** Checks every message to one session, and records those that are wrong or missing. */
export class Witness {
  readonly faults: string[] = [];
  /** Withdrawals that arrived before their questions. */
  readonly #early = new Map<RpcId, string>();
  /** The number of messages by kind. */
  readonly tally = new Map<string, number>();
  readonly #session: PlannedSession;
  readonly #byNonce = new Map<string, Account>();
  readonly #byId = new Map<RpcId, Account>();
  readonly #byToken = new Map<RpcId, Account>();
  /** Questions that the gateway has not withdrawn. */
  readonly #questions = new Map<RpcId, Account>();
  readonly #logsReach: (call: PlannedCall, step: Step) => boolean;

  /** @param logsReach whether log messages of this call can be attributed to this session. */
  constructor(session: PlannedSession, logsReach: (call: PlannedCall, step: Step) => boolean) {
    this.#session = session;
    this.#logsReach = logsReach;
    for (const planned of session.calls) {
      const account: Account = { planned, isCancelled: false, answers: 0, progress: 0, logs: new Set(), asked: 0 };
      this.#byNonce.set(planned.act.nonce, account);
      this.#byId.set(planned.id, account);
      if (planned.token !== undefined) this.#byToken.set(planned.token, account);
    }
  }

  onCancel({ id }: PlannedCall): void {
    const account = this.#byId.get(id);
    if (account !== undefined) account.isCancelled = true;
  }

  /** Checks one message. @returns the nonce in it, if there is one. */
  onMessage(message: Rpc, text: string): string | undefined {
    // The ledger is requested after the last call, and names the calls of all sessions. A list names none.
    if (message.id === 'init' || message.id === 'ledger') return undefined;
    if (message.id === 'list' && !NONCE.test(text)) return undefined;
    // Lists that are ready after `initialize` are announced to every session.
    if (
      message.method !== undefined &&
      /^notifications\/(?:tools|prompts|resources)\/list_changed$/.test(message.method)
    ) {
      return undefined;
    }
    const [nonce, ...others] = new Set(text.match(NONCE));
    if (others.length > 0) this.#fault(`many nonces in ${text}`);
    const account = nonce === undefined ? undefined : this.#byNonce.get(nonce);
    const kind = message.method ?? (nonce === undefined ? 'cancelled' : 'answered');
    this.tally.set(kind, (this.tally.get(kind) ?? 0) + 1);
    if (nonce !== undefined && account === undefined) this.#fault(`received a message of another session: ${text}`);
    else if (message.method === undefined) this.#onAnswer(message, account, text);
    else if (message.method === 'notifications/cancelled') this.#onWithdrawal(message, text);
    else if (account === undefined) this.#fault(`received a message of no call: ${text}`);
    else this.#onMessageAbout(account, message, text);
    return nonce;
  }

  /** Records the messages that are missing after the last one. */
  finish(): void {
    for (const text of this.#early.values()) this.#fault(`takes back what was not asked: ${text}`);
    for (const account of this.#byId.values()) for (const what of this.#missing(account)) this.#fault(what);
  }

  /** Returns whether each call has all its messages. Those on another stream than that of the call may come after its answer. */
  get isComplete(): boolean {
    return [...this.#byId.values()].every((account) => this.#missing(account).length === 0);
  }

  /** Returns what is missing of the messages about one call. */
  #missing({ planned, isCancelled, answers, progress, logs, asked }: Account): string[] {
    const { act, upstream } = planned;
    // The answer may have been sent before the gateway received the cancellation.
    const isAnswered = answers === 1 || (answers === 0 && isCancelled);
    const missing = isAnswered ? [] : [`${act.nonce} was answered ${answers} times`];
    if (isCancelled) return missing;
    const isExact = (step: Step) => (step === 'log' || step === 'aside') && this.#logsReach(planned, step);
    const received = { progress, logs: logs.size, asked };
    const due = {
      progress: count(act.steps, 'progress'),
      logs: act.steps.filter((step) => isExact(step)).length,
      asked: count(act.steps, 'elicit', 'sample'),
    };
    const hasAll = received.progress === due.progress && received.logs >= due.logs && received.asked === due.asked;
    if (hasAll) return missing;
    return [
      ...missing,
      `${act.nonce} at ${upstream} received ${JSON.stringify(received)} instead of ${JSON.stringify(due)}`,
    ];
  }

  #fault(what: string): void {
    this.faults.push(`session ${this.#session.number} (${this.#session.revision}): ${what}`);
  }

  #onAnswer({ id, error }: Rpc, about: Account | undefined, text: string): void {
    const account = id === undefined ? undefined : this.#byId.get(id);
    if (account === undefined) {
      this.#fault(`answer to no request: ${text}`);
      return;
    }
    account.answers++;
    const { act } = account.planned;
    const isGatewaysOwn = error !== undefined && about === undefined;
    if (isGatewaysOwn) {
      this.#fault(`${act.nonce} was answered ${text}`);
    } else if (about !== account || act.fails !== (error !== undefined)) {
      this.#fault(`${act.nonce} got the answer ${text}`);
    }
  }

  #onMessageAbout(account: Account, { id, method, params = {} }: Rpc, text: string): void {
    const { planned } = account;
    switch (method) {
      case 'notifications/progress': {
        const token = params['progressToken'];
        const isKnown = typeof token === 'number' || typeof token === 'string';
        if (!isKnown || this.#byToken.get(token) !== account) this.#fault(`the wrong token for ${text}`);
        if (account.answers > 0) this.#fault(`progress after the answer: ${text}`);
        if (params['progress'] !== ++account.progress) this.#fault(`progress out of order: ${text}`);
        return;
      }
      case 'notifications/message': {
        const { data } = params;
        const number = isRecord(data) ? Number(data['number']) : Number.NaN;
        if (account.logs.has(number)) this.#fault(`received twice: ${text}`);
        account.logs.add(number);
        return;
      }
      case 'elicitation/create':
      case 'sampling/createMessage':
        if (id === undefined || this.#questions.has(id)) this.#fault(`asked twice: ${text}`);
        else this.#questions.set(id, account);
        if (id !== undefined && this.#early.delete(id) && !account.isCancelled)
          this.#fault(`took back what is wanted: ${text}`);
        if (++account.asked > count(planned.act.steps, 'elicit', 'sample')) this.#fault(`asked too often: ${text}`);
        return;
      case undefined:
      default:
        this.#fault(`unexpected: ${text}`);
    }
  }

  #onWithdrawal({ params = {} }: Rpc, text: string): void {
    const id = params['requestId'];
    const isKnown = typeof id === 'number' || typeof id === 'string';
    if (!isKnown) {
      this.#fault(`takes back nothing: ${text}`);
      return;
    }
    const account = this.#questions.get(id);
    // The withdrawal of an ended call is not on the stream of the question, so it may arrive before the question.
    if (account === undefined) this.#early.set(id, text);
    else if (!account.isCancelled) this.#fault(`takes back what is wanted: ${text}`);
  }
}
