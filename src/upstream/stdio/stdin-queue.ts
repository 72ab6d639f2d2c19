import type { Writable } from 'node:stream';
import type { Logger } from 'pino';
import { GatewayError } from '../../errors.ts';
import { oneLine } from '../../json/json.ts';
import { type LimitName, LIMITS } from '../../limits.ts';
import type { Outgoing } from '../rpc/transport.ts';

/** Bytes that are written to the pipe at once. Messages that are not written yet can still be removed. */
const WRITE_BYTES = 65_536;

/** Smaller messages have the bound for themselves. So one principal, with most of the turns of a process, cannot fill it for the others. */
const SMALL_BYTES = LIMITS.stdinQueueBytes / 32;

/** If the process reads nothing for this long, the messages that it cannot have received fail. */
const STALL_MS = 5_000;

interface WaitingMessage {
  readonly message: Outgoing;
  readonly line: string;
  readonly bytes: number;
}

/**
 * The queue of messages to a process. Messages of the same turn of the event loop share a write. Only one write is in flight at a
 * time, so no byte of any other message has been sent.
 */
export class StdinQueue {
  readonly #upstream: string;
  readonly #pipe: Writable;
  readonly #onFailed: (id: number, error: GatewayError) => void;
  readonly #log: Logger;
  readonly #onLimit: ((limit: LimitName) => void) | undefined;
  #waiting: WaitingMessage[] = [];
  /** Bytes in the queue and in the write in flight. */
  #bytes = 0;
  /** Those of small messages. */
  #smallBytes = 0;
  #isScheduled = false;
  #isWriting = false;
  #isStalled = false;
  #stallTimer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #isEnding = false;
  #isBroken = false;
  #endReason: GatewayError | undefined;

  /**
   * @param onFailed called for each request that fails; no byte of it was written.
   * @param onLimit called for each message that is refused because the queue is full.
   */
  constructor(
    upstream: string,
    pipe: Writable,
    onFailed: (id: number, error: GatewayError) => void,
    log: Logger,
    onLimit?: (limit: LimitName) => void,
  ) {
    this.#upstream = upstream;
    this.#pipe = pipe;
    this.#onFailed = onFailed;
    this.#log = log;
    this.#onLimit = onLimit;
  }

  /** Number of dropped notifications and responses. */
  get dropped(): number {
    return this.#dropped;
  }

  /** Queues a message, or fails it if the queue is full or the process is ending. */
  add(message: Outgoing): void {
    if (this.#isEnding || this.#endReason !== undefined) {
      this.#refuse(message, this.#closedError());
      return;
    }
    const line = `${oneLine(message.text)}\n`;
    const bytes = Buffer.byteLength(line);
    // A single message may exceed the bound, so that each can be sent.
    const isFull = (bytes > SMALL_BYTES ? this.#bytes : this.#smallBytes) >= LIMITS.stdinQueueBytes;
    if (isFull) this.#onLimit?.('stdinQueueBytes');
    if (this.#isStalled || isFull) {
      this.#refuse(message, this.#overloadedError());
      return;
    }
    this.#waiting.push({ message, line, bytes });
    this.#count(bytes, 1);
    if (this.#isScheduled || this.#isWriting || this.#isBroken) return;
    this.#isScheduled = true;
    // One write after all sockets of this turn: with 32 callers this saves a third of the CPU, and one caller loses nothing.
    setImmediate(this.#flush);
  }

  /** Removes a request that is not written yet. Returns `unsent` if there was one. */
  forget(id: number): 'unsent' | undefined {
    const at = this.#waiting.findIndex(({ message }) => message.id === id);
    const [taken] = at < 0 ? [] : this.#waiting.splice(at, 1);
    if (taken === undefined) return undefined;
    this.#count(taken.bytes, -1);
    return 'unsent';
  }

  /** Writes the queue, then ends the pipe. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    if (!this.#isWriting) this.#flush();
  }

  /**
   * Stops writing, because the pipe is broken. Messages wait until {@link close} has the reason, which is often the exit of the
   * process: the broken pipe may be seen first.
   */
  stopWriting(): void {
    this.#isBroken = true;
    clearTimeout(this.#stallTimer);
  }

  /** Fails the queued messages, and all that follow. @param reason why the process is not there any more. */
  close(reason: GatewayError): void {
    this.stopWriting();
    this.#endReason ??= reason;
    this.#refuseWaiting(this.#closedError());
  }

  #count(bytes: number, sign: 1 | -1): void {
    this.#bytes += sign * bytes;
    if (bytes <= SMALL_BYTES) this.#smallBytes += sign * bytes;
  }

  readonly #flush = () => {
    this.#isScheduled = false;
    if (this.#isBroken || this.#isWriting) return;
    let text = '';
    let count = 0;
    let bytes = 0;
    for (const waiting of this.#waiting) {
      if (count > 0 && bytes + waiting.bytes > WRITE_BYTES) break;
      text += waiting.line;
      bytes += waiting.bytes;
      count++;
    }
    if (count === 0) {
      if (this.#isEnding) this.#pipe.end();
      return;
    }

    const batch = this.#waiting.splice(0, count);
    this.#isWriting = true;
    this.#pipe.write(text, (error) => this.#onWritten(batch, error));
    // A pipe that fails at once has accepted no byte; a pipe that fails later may have accepted some.
    if (this.#pipe.errored !== null) this.#waiting.unshift(...batch);
    else if (this.#pipe.writableLength > 0) this.#stallTimer = setTimeout(this.#onStall, STALL_MS);
  };

  #onWritten(batch: readonly WaitingMessage[], error: Error | null | undefined): void {
    clearTimeout(this.#stallTimer);
    // The transport gets the error event of the pipe, and closes this queue.
    if (error !== null && error !== undefined) return;
    this.#isWriting = false;
    this.#isStalled = false;
    for (const { bytes } of batch) this.#count(bytes, -1);
    this.#flush();
  }

  readonly #onStall = () => {
    this.#isStalled = true;
    this.#log.warn({ waiting: this.#waiting.length }, 'upstream does not read its input');
    this.#refuseWaiting(this.#overloadedError());
  };

  #refuseWaiting(error: GatewayError): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { message, bytes } of waiting) {
      this.#count(bytes, -1);
      this.#refuse(message, error);
    }
  }

  #refuse(message: Outgoing, error: GatewayError): void {
    if (message.id !== undefined) {
      this.#onFailed(message.id, error);
      return;
    }
    this.#dropped++;
    this.#log.debug({ method: message.method, reason: error.code }, 'message to upstream dropped');
  }

  #overloadedError(): GatewayError {
    const why = this.#isStalled
      ? `upstream "${this.#upstream}" does not read its messages`
      : `more messages than ${LIMITS.stdinQueueBytes} bytes wait for upstream "${this.#upstream}"`;
    const message = `${why}; try again later`;
    return new GatewayError('overloaded', { upstream: this.#upstream, message, executed: 'no' });
  }

  #closedError(): GatewayError {
    const message = this.#endReason?.detail.message;
    const ending = `the process of upstream "${this.#upstream}" is ending`;
    const detail = {
      upstream: this.#upstream,
      message: message ?? ending,
      advice: 'the request was not sent, try again',
      executed: 'no',
      retryable: true,
    } as const;
    return new GatewayError('upstream-lost', detail, this.#endReason?.cause);
  }
}
