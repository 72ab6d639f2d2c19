import { z } from 'zod';
import { jsonOf } from '../json/record.ts';
import { LIMITS } from '../limits.ts';
import { isOperator } from '../policy/principal.ts';
import type { ForwardedHead } from './forwarded-head.ts';
import type { ForwardedResponseHead } from './frames.ts';
import type { ServedExchange } from './incoming-channel.ts';
import { GONE, MISDIRECTED, STARTING, UNREADABLE } from './internal-server.ts';
import type { ChannelExchange, ExchangeHandler } from './outgoing-channel.ts';

/** The time in which another replica shows that it is alive. */
const REACH_MS = 2_000;

/** The answer of another replica to a question for an operator, or the reason why there is none. */
export type ReplicaAnswer = { readonly value: unknown } | { readonly why: string };

/** A question for an operator on its way to another replica. */
export class OperatorQuestion implements ExchangeHandler {
  readonly #answered = Promise.withResolvers<ReplicaAnswer>();
  readonly #deadlineMs: number;
  #timer: NodeJS.Timeout;
  #exchange: ChannelExchange | undefined;
  #pieces: Buffer[] = [];
  #bytes = 0;
  #isEnded = false;

  /** @param limitMs the longest time to wait for the answer, in ms. */
  constructor(limitMs: number) {
    this.#deadlineMs = performance.now() + limitMs;
    this.#timer = setTimeout(() => this.end({ why: NOT_REACHED }), Math.min(REACH_MS, limitMs)).unref();
  }

  /** Resolves with the answer. Never rejects. */
  get answer(): Promise<ReplicaAnswer> {
    return this.#answered.promise;
  }

  /** False once nobody waits for the answer any more. */
  get isWanted(): boolean {
    return !this.#isEnded;
  }

  /** Waits for the answer. @param exchange undefined if the question is too large. */
  start(exchange: ChannelExchange | undefined): void {
    if (exchange === undefined) {
      this.end({ why: 'the question is too large' });
      return;
    }
    this.#exchange = exchange;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.end({ why: SILENT }), this.#deadlineMs - performance.now()).unref();
  }

  /** Ends the question, unless it has ended already. */
  end(answer: ReplicaAnswer): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearTimeout(this.#timer);
    this.#pieces = [];
    this.#exchange?.reset();
    this.#answered.resolve(answer);
  }

  onResponse({ status }: ForwardedResponseHead, piece: Buffer, isLast: boolean): void {
    if (status === ANSWERED) this.onData(piece, isLast);
    else this.end({ why: 'it failed to answer; its log has the reason' });
  }

  onData(piece: Buffer, isLast: boolean): void {
    this.#bytes += piece.length;
    if (this.#bytes > LIMITS.replicaAnswerBytes) {
      this.end({ why: TOO_LARGE });
      return;
    }
    this.#pieces.push(piece);
    this.#exchange?.received.consume(piece.length);
    if (isLast) this.end({ value: jsonOf(Buffer.concat(this.#pieces).toString()) });
  }

  onRefused(status: number): void {
    this.end({ why: REFUSALS.get(status) ?? REFUSES });
  }

  onBroken(): void {
    this.end({ why: 'the connection to it broke' });
  }
}

/** Why another replica has not answered. */
export const NOT_REACHED = 'it cannot be reached';
export const TOO_LARGE = 'its answer is too large';
export const OTHER_VERSION = 'it has another version';
/** The reason of one that asks the others itself for the changes of operators, before it serves clients. */
export const STARTS = 'it is starting';
/** The reason of one that has another member id by now. */
export const JOINED_AGAIN = 'it has joined again at this moment';
const REFUSES = 'it refuses questions at the moment';
/** The reasons of replicas that have done nothing for the question. */
export const NOTHING_DONE: ReadonlySet<string> = new Set([NOT_REACHED, OTHER_VERSION, STARTS, JOINED_AGAIN, REFUSES]);
const SILENT = 'it does not answer';

const REFUSALS: ReadonlyMap<number, string> = new Map([
  [UNREADABLE, OTHER_VERSION],
  [STARTING, STARTS],
  [GONE, JOINED_AGAIN],
  [MISDIRECTED, JOINED_AGAIN],
]);

const ANSWERED = 200;
const FAILED = 500;

/** Carries out an operation for an operator; undefined if there is no such operation. @throws {z.ZodError} if its arguments are of another version. */
export type OperatorHandler = (operation: string, args: unknown) => Promise<unknown> | undefined;

/** Answers a question that another replica asks for an operator. It has no body: `method` is the operation, `target` its arguments as JSON. */
export function answerQuestion(
  exchange: ServedExchange,
  { method, target, principal }: ForwardedHead,
  handle: OperatorHandler,
  onFailed: (thrown: unknown) => void,
): void {
  const { outgoing } = exchange;
  const answered = isOperator(principal) ? handle(method, jsonOf(target)) : undefined;
  if (answered === undefined) {
    exchange.refuse(UNREADABLE);
    return;
  }
  answered.then(
    (value) => {
      outgoing.writeHead(ANSWERED);
      outgoing.end(JSON.stringify(value));
    },
    (thrown: unknown) => {
      if (thrown instanceof z.ZodError) {
        exchange.refuse(UNREADABLE);
        return;
      }
      onFailed(thrown);
      outgoing.writeHead(FAILED);
      outgoing.end();
    },
  );
}
