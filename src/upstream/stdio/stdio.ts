import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Logger } from 'pino';
import type { StdioTarget } from '../../config/config.ts';
import { GatewayError } from '../../errors.ts';
import { type Preparsed, RawObject } from '../../json/json.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../../protocol/jsonrpc.ts';
import { LineSplitter } from '../../protocol/lines.ts';
import { childEnvironment } from './environment.ts';
import { NonProtocolOutput } from './non-protocol-output.ts';
import { isModernRevision } from '../../protocol/revisions.ts';
import { StdinQueue } from './stdin-queue.ts';
import { ProcessGroup } from './process-group.ts';
import type { ProcessGuard } from './process-guard.ts';
import { spawnFailure } from './spawn-failure.ts';
import { TAG_NAME } from './tagged-processes.ts';
import { printable, RecentLines } from './recent-lines.ts';
import {
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  disconnecting,
  unlessAborted,
} from '../rpc/transport.ts';
import type { WrapperCommands } from './wrapper-commands.ts';

export interface StdioOptions {
  readonly upstream: string;
  /** The longest line taken from it. */
  readonly messageBytes: number;
  readonly log: Logger;
  readonly guard: ProcessGuard;
  /** Finds the command that an `npx` or `uvx` runs. Without it the wrapper stays beside the server. */
  readonly wrappers?: WrapperCommands;
  /** Told of each line on stdout that is no message. */
  readonly onNonProtocolOutput?: () => void;
  /** It sends too fast, and is not read for a moment. */
  readonly onPause?: () => void;
}

/** Between the end of stdin and SIGTERM, and again between that and SIGKILL. */
const GRACE_MS = 2_000;

/**
 * The end of a process and of its pipes are noticed apart and in any order: one waits this long for the other. Not longer,
 * for a grandchild may hold the pipe.
 */
const DRAIN_MS = 100;

const STDERR_LINE_BYTES = 16_384;
const STDERR_TAIL_CHARS = 2_048;
const QUOTE_CHARS = 300;

/** Lines of junk that are logged within one window. */
const JUNK_LOGGED = 5;

const BYTE_ORDER_MARK = 0xfeff;
const OUR_ID = /^\d+$/;

/**
 * A process of our own that speaks JSON-RPC, one message a line. Starting runs the program and sends nothing.
 *
 * What operators alone may read, such as the PATH searched and the last line of stderr, is the message of an error's cause.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
 */
export function stdioTransport(target: StdioTarget, options: StdioOptions): StartTransport {
  const { upstream, guard, wrappers } = options;
  const start = async (events: TransportEvents, signal: AbortSignal): Promise<Transport> => {
    const tag = guard.tagged.next(upstream);
    const own = childEnvironment(process.env, target.env);
    const launch = (await wrappers?.find(upstream, target, own, signal)) ?? { ...target, env: own };
    if (signal.aborted) throw disconnecting(upstream, signal);
    const env = { ...launch.env, [TAG_NAME]: tag };
    try {
      const { command, args, cwd } = launch;
      // A group of its own, so that what it starts can be ended with it.
      const child = spawn(command, args, { cwd, env, detached: true, stdio: 'pipe' });
      // Nothing may be awaited between here and the listeners, where it has started.
      if (child.pid !== undefined) return new StdioTransport(child, child.pid, tag, events, options);
      const [error] = await once(child, 'error');
      throw error;
    } catch (thrown) {
      throw await spawnFailure(upstream, target, env, thrown);
    }
  };
  return (events, signal) => unlessAborted(upstream, signal, () => start(events, signal));
}

class StdioTransport implements Transport {
  /** What of a message is going to be looked into. */
  #open: Preparsed = 'params';
  readonly #upstream: string;
  readonly #messageBytes: number;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #events: TransportEvents;
  readonly #log: Logger;
  readonly #onJunk: (() => void) | undefined;
  readonly #onPause: (() => void) | undefined;
  readonly #group: ProcessGroup;
  readonly #outbox: StdinQueue;
  readonly #nonProtocolOutput = new NonProtocolOutput();
  readonly #stderr = new RecentLines(STDERR_TAIL_CHARS);
  readonly #over = Promise.withResolvers<void>();
  #timer: NodeJS.Timeout | undefined;
  #hasSpoken = false;
  #isOver = false;
  #closing: Promise<void> | undefined;

  constructor(
    child: ChildProcessWithoutNullStreams,
    pid: number,
    tag: string,
    events: TransportEvents,
    { upstream, messageBytes, log, guard, onNonProtocolOutput, onPause }: StdioOptions,
  ) {
    this.#upstream = upstream;
    this.#messageBytes = messageBytes;
    this.#child = child;
    this.#events = events;
    this.#onJunk = onNonProtocolOutput;
    this.#onPause = onPause;
    this.#log = log.child({ upstream, childPid: pid });
    this.#group = new ProcessGroup(child, pid, tag, guard, this.#log);
    this.#outbox = new StdinQueue(upstream, child.stdin, (id, error) => events.onSendFailed(id, error), this.#log);
    this.#listen(child);
    this.#log.debug('upstream process started');
  }

  send(message: Outgoing): void {
    this.#outbox.add(message);
  }

  forget(id: number): void {
    this.#outbox.forget(id);
  }

  setRevision(revision: string): void {
    this.#open = isModernRevision(revision) ? 'result' : 'params';
  }

  pause(forMs: number): void {
    const { stdout } = this.#child;
    if (this.#isOver || this.#group.hasExited || stdout.isPaused()) return;
    this.#onPause?.();
    stdout.pause();
    // What an ended process has left is read at once.
    const resume = (): void => {
      clearTimeout(timer);
      this.#child.off('exit', resume);
      stdout.resume();
    };
    const timer = setTimeout(resume, forMs);
    timer.unref();
    this.#child.once('exit', resume);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#outbox.end();
    await this.#group.end(GRACE_MS, GRACE_MS);
    // What has exited is over as soon as its last lines are read.
    if (!this.#group.hasExited) this.#finish(this.#onExit());
    await this.#over.promise;
  }

  #listen(child: ChildProcessWithoutNullStreams): void {
    const lines = new LineSplitter(this.#messageBytes, (line, isCut) => {
      if (this.#isOver) return;
      if (isCut) this.#tooLarge();
      else this.#read(line);
    });
    const onFirstByte = () => this.#events.onFirstByte?.();
    child.stdout.once('data', onFirstByte);
    child.stderr.once('data', onFirstByte);
    child.stdout.on('data', (chunk: Buffer) => lines.push(chunk));
    child.stdout.on('end', () => {
      lines.end();
      this.#await('closed its output');
    });
    child.stdout.on('error', () => this.#await('closed its output'));

    const words = new LineSplitter(STDERR_LINE_BYTES, (line) => {
      this.#stderr.add(line);
      this.#log.debug({ line }, 'upstream stderr');
    });
    child.stderr.on('data', (chunk: Buffer) => words.push(chunk));
    child.stderr.on('end', () => words.end());
    child.stderr.on('error', (error) => this.#log.debug({ err: error }, 'upstream stderr broke'));

    child.stdin.on('error', () => {
      this.#outbox.close();
      this.#await('closed its input');
    });
    child.on('error', (error) => this.#log.warn({ err: error }, 'upstream process'));
    child.once('exit', () => {
      this.#outbox.close();
      this.#await('exited');
    });
    // All of it: the exit, and the end of both its streams.
    child.once('close', () => this.#finish(this.#onExit()));
  }

  /** Part of its end was noticed: the rest gets a moment, for it may tell more. */
  #await(part: string): void {
    if (this.#isOver || this.#timer !== undefined) return;
    this.#timer = setTimeout(() => {
      const isKnown = this.#group.hasExited || this.#closing !== undefined;
      const detail = this.#detail(`${part} while it was running, and was ended`);
      this.#finish(isKnown ? this.#onExit() : new GatewayError('upstream-lost', detail));
    }, DRAIN_MS);
  }

  #read(line: string): void {
    const text = line.charCodeAt(0) === BYTE_ORDER_MARK ? line.slice(1) : line;
    let message;
    try {
      message = this.#parse(text);
    } catch (thrown) {
      if (!(thrown instanceof MessageError)) throw thrown;
      if (isBatch(text)) this.#readBatch(text);
      else this.#onNonProtocolLine(text, thrown);
      return;
    }
    this.#deliver(message, text);
  }

  /** What is wrong inside of a result is for whoever waits for it. @throws {MessageError} */
  #parse(text: string): Message {
    if (this.#open === 'params') return parseMessage(text);
    try {
      return parseMessage(text, this.#open);
    } catch {
      return parseMessage(text);
    }
  }

  #readBatch(text: string): void {
    let items;
    try {
      items = parseBatch(text);
    } catch (thrown) {
      if (!(thrown instanceof MessageError)) throw thrown;
      this.#addNonProtocolOutput(text, thrown);
      return;
    }
    for (const item of items) {
      if (this.#isOver) return;
      if (item instanceof MessageError) this.#addNonProtocolOutput(text, item);
      else this.#deliver(item, text);
    }
  }

  #deliver(message: Message, text: string): void {
    this.#hasSpoken = true;
    try {
      this.#events.onMessage(message, undefined);
    } catch (thrown) {
      // Deeper than the parser looks, a message may still be broken, and no upstream's message may end the gateway.
      this.#log.error({ err: thrown }, 'message of upstream could not be handled');
      this.#addNonProtocolOutput(text, thrown);
    }
  }

  #onNonProtocolLine(text: string, error: MessageError): void {
    // Its own requests have ids too, which may be equal to ours by chance.
    if (OUR_ID.test(error.id) && RawObject.parse(text).raw('method') === undefined) {
      const detail = this.#detail('answered with something that is not JSON-RPC');
      this.#events.onSendFailed(Number(error.id), new GatewayError('upstream-protocol', detail, error));
    }
    this.#addNonProtocolOutput(text, error);
  }

  #addNonProtocolOutput(text: string, reason: unknown): void {
    this.#onJunk?.();
    const isTooMuch = this.#nonProtocolOutput.add(Buffer.byteLength(text), performance.now());
    if (this.#nonProtocolOutput.windowLines <= JUNK_LOGGED) {
      const level = this.#nonProtocolOutput.windowLines === 1 ? 'warn' : 'debug';
      const why = reason instanceof Error ? reason.message : undefined;
      this.#log[level]({ line: printable(text, QUOTE_CHARS), why }, 'line on stdout is no message, skipped');
    }
    if (!isTooMuch) return;
    const detail = this.#detail('printed too much that is no message on its stdout, and was ended');
    this.#finish(new GatewayError('upstream-protocol', detail), 'at once');
  }

  #tooLarge(): void {
    const detail = this.#detail(`sent a message of more than ${this.#messageBytes} bytes, and was ended`);
    this.#finish(new GatewayError('too-large', detail), 'at once');
  }

  #detail(what: string): { readonly upstream: string; readonly message: string } {
    return { upstream: this.#upstream, message: `upstream "${this.#upstream}" ${what}` };
  }

  #onExit(): GatewayError {
    const upstream = this.#upstream;
    if (this.#closing !== undefined) {
      return new GatewayError('upstream-lost', { upstream, message: `upstream "${upstream}" was disconnected` });
    }
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `exited with code ${exitCode}` : `was killed by ${signalCode}`;
    const message = `the process of upstream "${upstream}" ${how}${this.#hasSpoken ? '' : ' before it answered'}`;
    const last = this.#stderr.last;
    const cause = last === undefined ? undefined : new Error(`last line on stderr: ${printable(last, QUOTE_CHARS)}`);
    return new GatewayError('upstream-lost', { upstream, message }, cause);
  }

  /** @param haste whether it has forfeited its time to end by itself */
  #finish(error: GatewayError, haste?: 'at once'): void {
    if (this.#isOver) return;
    this.#isOver = true;
    clearTimeout(this.#timer);
    const { stdin, stdout, stderr, exitCode: code, signalCode: signal } = this.#child;
    for (const stream of [stdin, stdout, stderr]) stream.destroy();

    const counts = { code, signal, junkLines: this.#nonProtocolOutput.lines, droppedMessages: this.#outbox.dropped };
    if (this.#closing !== undefined) this.#log.debug(counts, 'upstream process ended');
    else this.#log.warn({ ...counts, reason: error.message, stderr: this.#stderr.toString() }, 'upstream process lost');

    this.#outbox.close();
    if (haste !== undefined) this.#group.kill();
    void this.#group.end(0, GRACE_MS);
    this.#events.onClose(error);
    this.#over.resolve();
  }
}
