import { setDeadline } from '../../deadline.ts';
import { messageOf } from '../../thrown.ts';
import { z } from 'zod';
import { GatewayError, isErrorCode } from '../../errors.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import type { Pipe } from './pipe.ts';

/** The longest time that a call waits for its answer. */
const CALL_MS = 5_000;

/** An operation that one process asks another one for. Both sides check what they get. */
export interface PipeMethod<Args, Result> {
  readonly name: string;
  readonly args: z.ZodType<Args>;
  readonly result: z.ZodType<Result>;
}

/** The schema of no arguments, or of no result. */
export const NOTHING: z.ZodType<void> = z.unknown().transform((): void => undefined);

export function method<Args, Result>(
  name: string,
  args: z.ZodType<Args>,
  result: z.ZodType<Result>,
): PipeMethod<Args, Result> {
  return { name, args, result };
}

/** Returns the schema of a value of this program, which both sides have in the same version. */
export function ours<Value>(): z.ZodType<Value> {
  return z.custom<Value>((value) => typeof value === 'object' && value !== null);
}

/** The operations that a process carries out for another one. */
export class ServedMethods {
  readonly #methods = new Map<string, (args: unknown) => Promise<unknown>>();

  /** Answers calls of a method from now on. */
  serve<Args, Result>({ name, args, result }: PipeMethod<Args, Result>, handle: (args: Args) => Promise<Result>): void {
    this.#methods.set(name, async (given) => result.parse(await handle(args.parse(given))));
  }

  /** Carries out a call. Returns undefined if there is no such method. @throws {z.ZodError} if its arguments are of another version. */
  answer(name: string, args: unknown): Promise<unknown> | undefined {
    return this.#methods.get(name)?.(args);
  }
}

const MESSAGE = z.union([
  z.object({ call: z.int(), method: z.string(), args: z.unknown() }),
  z.object({ reply: z.int(), value: z.unknown() }),
  z.object({ failed: z.int(), message: z.string(), code: z.string().optional() }),
]);

interface Pending {
  resolve(value: unknown): void;
  reject(error: Error): void;
  readonly timer: NodeJS.Timeout;
}

/** Calls in both directions over a pipe. Answers may come in another order than calls. */
export class PipeCalls {
  readonly #pipe: Pipe;
  readonly #onLimit: (limit: LimitName) => void;
  readonly #callMs: number;
  readonly #served = new ServedMethods();
  readonly #pending = new Map<number, Pending>();
  #last = 0;
  #isClosed = false;

  /** @param callMs the longest time that a call waits, in ms. Default: 5 s. */
  constructor(pipe: Pipe, onLimit: (limit: LimitName) => void, callMs = CALL_MS) {
    this.#pipe = pipe;
    this.#onLimit = onLimit;
    this.#callMs = callMs;
    pipe.onMessage((message) => this.#onMessage(message));
    pipe.onClosed(() => this.#close());
  }

  /** Answers calls of a method from now on. */
  serve<Args, Result>(served: PipeMethod<Args, Result>, handle: (args: Args) => Promise<Result>): void {
    this.#served.serve(served, handle);
  }

  /**
   * Asks the other side.
   *
   * @param callMs the longest time to wait, in ms.
   * @throws {GatewayError} the failure of the other side; `store-unavailable` if there is no answer in time, or too many calls wait. The call may have been carried out then.
   */
  async call<Args, Result>(
    { name, result }: PipeMethod<Args, Result>,
    args: Args,
    callMs: number = this.#callMs,
  ): Promise<Result> {
    if (this.#isClosed) throw unavailable('the process that keeps the state has gone');
    if (this.#pending.size >= LIMITS.pipeCalls) {
      this.#onLimit('pipeCalls');
      throw unavailable('too many calls wait for the process that keeps the state');
    }
    const number = ++this.#last;
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const fail = () => this.#take(number)?.reject(unavailable(`no answer within ${callMs} ms`));
    const timer = setDeadline(fail, callMs);
    this.#pending.set(number, { resolve, reject, timer });
    try {
      this.#pipe.send({ call: number, method: name, args });
    } catch (thrown) {
      this.#take(number);
      throw thrown;
    }
    return result.parse(await promise);
  }

  #onMessage(text: unknown): void {
    const { data: message } = MESSAGE.safeParse(text);
    // Other messages on the pipe are Node's.
    if (message === undefined) return;
    if ('call' in message) void this.#answer(message.call, message.method, message.args);
    else if ('reply' in message) this.#take(message.reply)?.resolve(message.value);
    else this.#take(message.failed)?.reject(errorOf(message.code, message.message));
  }

  async #answer(call: number, name: string, args: unknown): Promise<void> {
    try {
      const answer = this.#served.answer(name, args);
      if (answer === undefined) throw new Error(`no method ${name}`);
      this.#pipe.send({ reply: call, value: await answer });
    } catch (thrown) {
      const failure =
        thrown instanceof GatewayError
          ? { message: thrown.detail.message ?? '', code: thrown.code }
          : { message: messageOf(thrown) };
      this.#pipe.send({ failed: call, ...failure });
    }
  }

  /** Returns a call that waits, once. */
  #take(number: number): Pending | undefined {
    const pending = this.#pending.get(number);
    this.#pending.delete(number);
    clearTimeout(pending?.timer);
    return pending;
  }

  #close(): void {
    this.#isClosed = true;
    for (const number of this.#pending.keys()) this.#take(number)?.reject(unavailable('the other process has gone'));
  }
}

function unavailable(why: string): GatewayError {
  return new GatewayError('store-unavailable', {}, new Error(why));
}

function errorOf(code: string | undefined, message: string): Error {
  if (!isErrorCode(code)) return new Error(message);
  return new GatewayError(code, message === '' ? {} : { message });
}
