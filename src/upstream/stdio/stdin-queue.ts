import type { Writable } from 'node:stream';
import type { Logger } from 'pino';
import { GatewayError } from '../../errors.ts';
import { oneLine } from '../../json/json.ts';
import type { Outgoing } from '../rpc/transport.ts';

/** With this much waiting, nothing more is taken. One message may exceed it, so that every single one can be sent. */
const LIMIT_BYTES = 1_048_576;

/** What is handed to the pipe at once. What is not handed over yet can still be taken back. */
const WRITE_BYTES = 65_536;

/** A process that reads nothing for this long is given up on, as far as messages go that it cannot have seen. */
const STALL_MS = 5_000;

interface Waiting {
  readonly message: Outgoing;
  readonly line: string;
  readonly bytes: number;
}

/**
 * What waits to be written to a process. Messages of the same turn of the event loop share a write, and only one write is
 * under way at a time, so that of every other message it is known that no byte has left.
 */
export class StdinQueue {
  readonly #upstream: string;
  readonly #pipe: Writable;
  readonly #failed: (id: number, error: GatewayError) => void;
  readonly #log: Logger;
  #waiting: Waiting[] = [];
  /** Waiting, and in the write under way. */
  #bytes = 0;
  #isScheduled = false;
  #isWriting = false;
  #isStalled = false;
  #stallTimer: NodeJS.Timeout | undefined;
  #dropped = 0;
  #isEnding = false;
  #isClosed = false;

  /** @param failed told of requests of which no byte was written */
  constructor(upstream: string, pipe: Writable, failed: (id: number, error: GatewayError) => void, log: Logger) {
    this.#upstream = upstream;
    this.#pipe = pipe;
    this.#failed = failed;
    this.#log = log;
  }

  /** Notifications and responses that were dropped. */
  get dropped(): number {
    return this.#dropped;
  }

  add(message: Outgoing): void {
    if (this.#isEnding || this.#isClosed) {
      this.#refuse(message, this.#onPipeError());
      return;
    }
    if (this.#isStalled || this.#bytes >= LIMIT_BYTES) {
      this.#refuse(message, this.#overloaded());
      return;
    }
    const line = `${oneLine(message.text)}\n`;
    const bytes = Buffer.byteLength(line);
    this.#waiting.push({ message, line, bytes });
    this.#bytes += bytes;
    if (this.#isScheduled || this.#isWriting) return;
    this.#isScheduled = true;
    // After all sockets of this turn, not after this one: at 32 callers that saves a third of the CPU, and costs one nothing.
    setImmediate(this.#flush);
  }

  /** Takes a request back, if it still can be. */
  forget(id: number): void {
    const at = this.#waiting.findIndex(({ message }) => message.id === id);
    const [taken] = at < 0 ? [] : this.#waiting.splice(at, 1);
    if (taken !== undefined) this.#bytes -= taken.bytes;
  }

  /** Writes what is waiting, then ends the pipe. */
  end(): void {
    if (this.#isEnding) return;
    this.#isEnding = true;
    if (!this.#isWriting) this.#flush();
  }

  /** Fails what is waiting: nothing can be written any more. */
  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#stallTimer);
    this.#refuseWaiting(this.#onPipeError());
  }

  readonly #flush = () => {
    this.#isScheduled = false;
    if (this.#isClosed || this.#isWriting) return;
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
    this.#pipe.write(text, (error) => this.#onWritten(bytes, error));
    // A pipe that fails at once has taken nothing; one that fails later may have taken a part.
    if (this.#pipe.errored !== null) this.#waiting.unshift(...batch);
    else if (this.#pipe.writableLength > 0) this.#stallTimer = setTimeout(this.#stall, STALL_MS);
  };

  #onWritten(bytes: number, error: Error | null | undefined): void {
    clearTimeout(this.#stallTimer);
    // The pipe's owner hears of the error from the pipe, and closes us.
    if (error !== null && error !== undefined) return;
    this.#isWriting = false;
    this.#isStalled = false;
    this.#bytes -= bytes;
    this.#flush();
  }

  readonly #stall = () => {
    this.#isStalled = true;
    this.#log.warn({ waiting: this.#waiting.length }, 'upstream does not read its input');
    this.#refuseWaiting(this.#overloaded());
  };

  #refuseWaiting(error: GatewayError): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const { message, bytes } of waiting) {
      this.#bytes -= bytes;
      this.#refuse(message, error);
    }
  }

  #refuse(message: Outgoing, error: GatewayError): void {
    if (message.id !== undefined) {
      this.#failed(message.id, error);
      return;
    }
    this.#dropped++;
    this.#log.debug({ method: message.method, reason: error.code }, 'message to upstream dropped');
  }

  #overloaded(): GatewayError {
    const message = `upstream "${this.#upstream}" does not read what is sent to it; try again later`;
    return new GatewayError('overloaded', { upstream: this.#upstream, message, executed: 'no' });
  }

  #onPipeError(): GatewayError {
    const message = `the process of upstream "${this.#upstream}" is ending; try again`;
    return new GatewayError('upstream-lost', {
      upstream: this.#upstream,
      message,
      executed: 'no',
      retryable: true,
    });
  }
}
