import { malformedAnswer, oversizedAnswer } from '../rpc/malformed-answer.ts';
import { sentBackId } from '../rpc/request-ids.ts';
import { type ChildProcessWithoutNullStreams, spawn } from 'node:child_process';
import { once } from 'node:events';
import type { Logger } from 'pino';
import type { StdioTarget } from '../../config/values/upstream-config.ts';
import { type ErrorCode, GatewayError, upstreamError } from '../../errors.ts';
import { type Preparsed, RawObject } from '../../json/json.ts';
import type { LimitName } from '../../limits.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../../protocol/jsonrpc.ts';
import { LineSplitter } from '../../protocol/framing/lines.ts';
import { OversizedMessage } from '../../protocol/framing/oversized-message.ts';
import { confine } from './launch/confinement.ts';
import { childEnvironment } from './launch/environment.ts';
import type { OwnFiles } from './launch/sandbox.ts';
import type { MemoryWatch } from './memory-watch.ts';
import { NonProtocolOutput } from './non-protocol-output.ts';
import { isModernRevision, type Revision } from '../../protocol/revisions.ts';
import { StdinQueue } from './stdin-queue.ts';
import { IgnoredRate } from '../rpc/ignored-rate.ts';
import { ProcessGroup } from './process-group.ts';
import type { ProcessGuard } from './process-guard.ts';
import type { ReceivedMessage, ReceivingBudget } from '../rpc/receiving-budget.ts';
import { spawnFailure } from './spawn-failure.ts';
import { tagVariables } from './tagged-processes.ts';
import { configSecrets } from './launch/config-secrets.ts';
import { printedLine } from './recent-lines.ts';
import { StderrLog } from './stderr-log.ts';
import {
  type Outgoing,
  type StartTransport,
  type Transport,
  type TransportEvents,
  disconnectedError,
} from '../rpc/transport.ts';
import type { WrapperCommands } from './launch/wrapper-commands.ts';
import { withoutByteOrderMark } from '../../protocol/framing/byte-order-mark.ts';
import { resultOrError } from '../../thrown.ts';

export interface StdioOptions {
  readonly upstream: string;
  /** The longest accepted line. A reload may change it. */
  readonly messageBytes: number;
  /** Bounds the messages that are being received from all upstreams. */
  readonly receiving: ReceivingBudget;
  readonly log: Logger;
  readonly guard: ProcessGuard;
  /** Finds the command that an `npx` or `uvx` runs. Without it, the wrapper keeps running beside the server. */
  readonly wrappers?: WrapperCommands;
  readonly memory?: MemoryWatch;
  /** Files and folders of the gateway that no sandbox shows. */
  readonly ownFiles?: OwnFiles;
  readonly onNonProtocolOutput?: () => void;
  /** Called when a message exceeds a bound, or reading is paused because the process sends too many notifications. */
  readonly onLimit?: (limit: LimitName) => void;
}

type StopReason = 'too many notifications' | 'no room for the message';

/** The time between the end of stdin and SIGTERM, and between SIGTERM and SIGKILL. */
const GRACE_MS = 2_000;

/**
 * The ends of a process and of its pipes are separate events in any order. After the first, the others are awaited for this long.
 * Not longer, because a process that the server has started may keep a pipe open.
 */
const DRAIN_MS = 100;

const QUOTED_CHARS = 300;

/** Number of lines that are no messages and are logged, for each window. */
const LOGGED_LINES = 5;

/**
 * Returns the transport to a child process, with one JSON-RPC message per line. Starting runs the program and sends nothing.
 *
 * Details for operators only, such as the searched PATH and the last error on stderr, are in the message of an error's cause.
 *
 * @see https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#stdio
 */
export function stdioTransport(target: StdioTarget, options: StdioOptions): StartTransport {
  const { upstream, guard, wrappers, ownFiles } = options;
  return async (events, signal) => {
    const tag = guard.tagged.next(upstream);
    const own = childEnvironment(process.env, target.env);
    const found = (await wrappers?.find(upstream, target, own, signal)) ?? { ...target, env: own };
    const launch = await confine(upstream, found, target, ownFiles);
    if (signal.aborted) throw disconnectedError(upstream, signal);
    const env = { ...launch.env, ...tagVariables(tag) };
    try {
      const { command, args, cwd } = launch;
      // The child leads a process group, so that the processes that it starts can be ended with it.
      const child = spawn(command, args, { cwd, env, detached: true, stdio: 'pipe' });
      // If the child has started, its listeners must be attached without an await in between.
      if (child.pid !== undefined) {
        return new StdioTransport(child, child.pid, tag, target, options, events);
      }
      const [error] = await once(child, 'error');
      throw error;
    } catch (thrown) {
      throw await spawnFailure(upstream, target, env, thrown);
    }
  };
}

class StdioTransport implements Transport {
  /** The member of messages that is going to be read. */
  #preparsed: Preparsed = 'params';
  /** The line beyond the limit that is being skipped. */
  #oversized: OversizedMessage | undefined;
  readonly #options: StdioOptions;
  readonly #child: ChildProcessWithoutNullStreams;
  readonly #events: TransportEvents;
  readonly #log: Logger;
  readonly #group: ProcessGroup;
  readonly #stdinQueue: StdinQueue;
  readonly #nonProtocolOutput = new NonProtocolOutput();
  readonly #invalidMessages = new NonProtocolOutput();
  readonly #stderr: StderrLog;
  /** Counts the line that is being received. */
  readonly #received: ReceivedMessage;
  readonly #finished = Promise.withResolvers<void>();
  #endWatch: (() => void) | undefined;
  readonly #stops = new Set<StopReason>();
  #drainTimer: NodeJS.Timeout | undefined;
  #hasSentMessage = false;
  #isFinished = false;
  #closing: Promise<void> | undefined;
  /** The first line on stdout that is no message. */
  #firstPrinted: string | undefined;
  /** The quoted output of a program that has sent no message, from before its end began. Programs print more when they are ended. */
  #printedAtClose: string | undefined;

  constructor(
    child: ChildProcessWithoutNullStreams,
    pid: number,
    tag: string,
    target: StdioTarget,
    options: StdioOptions,
    events: TransportEvents,
  ) {
    const { upstream, receiving, log, guard, memory, onLimit } = options;
    this.#options = options;
    this.#child = child;
    this.#events = events;
    this.#log = log.child({ upstream, childPid: pid });
    this.#stderr = new StderrLog({ log: this.#log, secrets: configSecrets(target), onLimit });
    this.#group = new ProcessGroup(child, pid, tag, guard, this.#log);
    const onFailed = (id: number, error: GatewayError) => events.onSendFailed(id, error);
    this.#stdinQueue = new StdinQueue(upstream, child.stdin, onFailed, this.#log, onLimit);
    this.#received = receiving.join(upstream, {
      hold: () => this.#stopReading('no room for the message'),
      resume: () => this.#readOn('no room for the message'),
    });
    this.#attachListeners(child);
    const memoryBytes = target.processLimits?.memoryBytes;
    if (memoryBytes !== undefined) {
      this.#endWatch = memory?.add(tag, memoryBytes, (bytes) => this.#tooMuchMemory(bytes, memoryBytes));
    }
    this.#log.debug('upstream process started');
  }

  send(message: Outgoing): void {
    this.#stdinQueue.add(message);
  }

  forget(id: number): 'unsent' | undefined {
    return this.#stdinQueue.forget(id);
  }

  setRevision(revision: Revision): void {
    this.#preparsed = isModernRevision(revision) ? 'result' : 'params';
  }

  /** Returns false if it is paused already. */
  pause(forMs: number): boolean {
    if (!this.#stopReading('too many notifications')) return false;
    this.#options.onLimit?.('notificationsPerSecond');
    setTimeout(() => this.#readOn('too many notifications'), forMs).unref();
    return true;
  }

  /** Stops reading stdout. Returns false if it is not read any more, or stopped for this reason already. */
  #stopReading(reason: StopReason): boolean {
    if (this.#isFinished || this.#group.hasExited || this.#stops.has(reason)) return false;
    this.#stops.add(reason);
    this.#child.stdout.pause();
    return true;
  }

  #readOn(reason: StopReason): void {
    if (this.#stops.delete(reason) && this.#stops.size === 0) this.#child.stdout.resume();
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async #close(): Promise<void> {
    this.#printedAtClose = this.#printed();
    this.#stdinQueue.end();
    await this.#group.end(GRACE_MS, GRACE_MS);
    // If the process has exited, the `close` event follows when its last lines are read.
    if (!this.#group.hasExited) this.#finish(this.#exitError());
    await this.#finished.promise;
  }

  #attachListeners(child: ChildProcessWithoutNullStreams): void {
    const onLine = (line: string, isCut: boolean) => {
      if (this.#isFinished) return;
      if (!isCut) return this.#readLine(line);
      this.#oversized = new OversizedMessage(this.#options.messageBytes);
      this.#oversized.add(line);
    };
    const empty = new IgnoredRate((forMs) => this.pause(forMs));
    const onRest = (bytes: Buffer, isEnd: boolean) => this.#skip(bytes, isEnd);
    const lines = new LineSplitter(this.#options.messageBytes, onLine, () => empty.count(), onRest);
    const onFirstByte = () => this.#events.onFirstByte?.();
    child.stdout.once('data', onFirstByte);
    child.stderr.once('data', onFirstByte);
    child.stdout.on('data', (chunk: Buffer) => {
      lines.limitBytes = this.#options.messageBytes;
      lines.push(chunk);
      if (!this.#isFinished) this.#received.update(lines.pendingBytes);
    });
    child.stdout.on('end', () => {
      lines.end();
      this.#awaitRest('closed its output');
    });
    child.stdout.on('error', () => this.#awaitRest('closed its output'));

    this.#stderr.read(child);
    child.stderr.on('error', (error) => this.#log.debug({ err: error }, 'cannot read the stderr of the upstream'));

    child.stdin.on('error', () => {
      this.#stdinQueue.stopWriting();
      this.#awaitRest('closed its input');
    });
    child.on('error', (error) => this.#log.warn({ err: error }, 'error of the upstream process'));
    child.once('exit', () => {
      this.#stdinQueue.stopWriting();
      // The rest of its output is read at once.
      for (const reason of this.#stops) this.#readOn(reason);
      this.#awaitRest('exited');
    });
    // `close` follows the exit and the end of all streams.
    child.once('close', () => this.#finish(this.#exitError()));
  }

  /** Handles the first sign of the end. Waits a moment for the other events, which may have a better reason. */
  #awaitRest(part: string): void {
    if (this.#isFinished || this.#drainTimer !== undefined) return;
    const onWaited = () => {
      const isKnown = this.#group.hasExited || this.#closing !== undefined;
      const ended = () => this.#error('upstream-lost', `${part} while it was running, and was ended`);
      this.#finish(isKnown ? this.#exitError() : ended());
    };
    // If the event loop was late, the exit has happened and was not heard of yet.
    this.#drainTimer = setTimeout(() => setImmediate(onWaited), DRAIN_MS);
  }

  #readLine(line: string): void {
    const text = withoutByteOrderMark(line);
    const message = resultOrError(MessageError, () => this.#parse(text));
    if (!(message instanceof MessageError)) this.#deliver(message, text);
    else if (isBatch(text)) this.#readBatch(text);
    else this.#onNonProtocolLine(text, message);
  }

  /** Parses a message. Errors inside of a result are left to its reader. @throws {MessageError} */
  #parse(text: string): Message {
    if (this.#preparsed === 'params') return parseMessage(text);
    try {
      return parseMessage(text, this.#preparsed);
    } catch {
      return parseMessage(text);
    }
  }

  #readBatch(text: string): void {
    const items = resultOrError(MessageError, () => parseBatch(text));
    if (items instanceof MessageError) return this.#addNonProtocolOutput(text, items);
    for (const item of items) {
      if (this.#isFinished) return;
      if (!(item instanceof MessageError)) this.#deliver(item, text);
      else if (item.isResponse) this.#failAnswered(item);
    }
    // The line counts once.
    const malformed = items.find((item) => item instanceof MessageError);
    if (malformed !== undefined) this.#addNonProtocolOutput(text, malformed);
  }

  /** Fails the request of a malformed answer. */
  #failAnswered(error: MessageError): void {
    this.#events.onSendFailed(sentBackId(error.id), malformedAnswer(this.#options.upstream, error), true);
  }

  #deliver(message: Message, text: string): void {
    this.#hasSentMessage = true;
    try {
      this.#events.onMessage(message, undefined);
    } catch (thrown) {
      // Nested members are not parsed yet and may be invalid. A message of an upstream must not end the gateway.
      this.#log.error({ err: thrown }, 'message of upstream could not be handled');
      this.#addNonProtocolOutput(text, thrown);
    }
  }

  #onNonProtocolLine(text: string, error: MessageError): void {
    const hasId = !Number.isNaN(sentBackId(error.id));
    // Requests of the upstream have ids too, which can be equal to ours by chance.
    if (error.isResponse || (hasId && RawObject.parse(text).raw('method') === undefined)) this.#failAnswered(error);
    this.#addNonProtocolOutput(text, error);
  }

  /** Skips a line beyond the limit, and fails the request that it answers. The process ends only if the line shows none, or does not end. */
  #skip(bytes: Buffer, isEnd: boolean): void {
    const oversized = this.#oversized;
    if (this.#isFinished || oversized === undefined) return;
    oversized.add(bytes);
    if (oversized.isEndless) return this.#tooLarge();
    if (!isEnd) return;
    this.#oversized = undefined;
    const id = oversized.answeredId();
    if (id === undefined) return this.#tooLarge();
    const error = oversizedAnswer(this.#options.upstream, this.#options.messageBytes);
    if (!Number.isNaN(id)) this.#events.onSendFailed(id, error, true);
    const request = oversized.requestId();
    if (request !== undefined) this.#events.onUnreadRequest?.(request);
    this.#addNonProtocolOutput(oversized.head, error, true);
  }

  #addNonProtocolOutput(text: string, reason: unknown, isMessage = text.includes('"jsonrpc"')): void {
    this.#options.onNonProtocolOutput?.();
    if (reason instanceof MessageError && reason.limit !== undefined) this.#options.onLimit?.(reason.limit);
    // A client can cause invalid messages, and the process may be shared: they slow it down, and do not end it.
    if (isMessage) this.#events.onDropped(undefined);
    const output = isMessage ? this.#invalidMessages : this.#nonProtocolOutput;
    const limit = output.add(Buffer.byteLength(text), performance.now());
    if (output.windowLines <= LOGGED_LINES) {
      const level = output.windowLines === 1 ? 'warn' : 'debug';
      const why = reason instanceof Error ? reason.message : undefined;
      const line = printedLine(this.#stderr.redacted(text), QUOTED_CHARS);
      if (!isMessage) this.#firstPrinted ??= line;
      this.#log[level]({ line, why }, 'line on stdout is no message, skipped');
    }
    if (limit === undefined || isMessage) return;
    this.#options.onLimit?.(limit);
    const event = 'printed too much that is no message on its stdout, and was ended';
    this.#finish(this.#error('upstream-protocol', event), 'at once');
  }

  #tooLarge(): void {
    const event = `sent a message of more than ${this.#options.messageBytes} bytes, and was ended`;
    this.#finish(this.#error('too-large', event), 'at once');
  }

  #tooMuchMemory(bytes: number, limitBytes: number): void {
    const used = `used ${mebibytes(bytes)} of memory, more than its limit of ${mebibytes(limitBytes)}`;
    this.#finish(this.#error('upstream-lost', `${used} (processLimits.memory), and was ended`), 'at once');
  }

  #error(code: ErrorCode, event: string): GatewayError {
    return upstreamError(code, this.#options.upstream, event);
  }

  #exitError(): GatewayError {
    const upstream = this.#options.upstream;
    if (this.#closing !== undefined) {
      const said = this.#hasSentMessage ? undefined : (this.#printedAtClose ?? this.#printed());
      return upstreamError('upstream-lost', upstream, 'was disconnected', {}, said && new Error(said));
    }
    const { exitCode, signalCode } = this.#child;
    const how = signalCode === null ? `exited with code ${exitCode}` : `was killed by ${signalCode}`;
    const message = `the process of upstream "${upstream}" ${how}${this.#hasSentMessage ? '' : ' before it answered'}`;
    const said = this.#saidOnStderr();
    const cause = said === undefined ? undefined : new Error(said);
    return new GatewayError('upstream-lost', { upstream, message }, cause);
  }

  #saidOnStderr(): string | undefined {
    const { likelyCause, last } = this.#stderr;
    if (likelyCause === undefined) return undefined;
    const which = likelyCause === last?.trim() ? 'last line' : 'last error';
    return `${which} on stderr: ${printedLine(likelyCause, QUOTED_CHARS)}`;
  }

  /** Returns what may tell why a program does not answer: its stderr, or else what it prints instead of messages. */
  #printed(): string | undefined {
    const first = this.#firstPrinted;
    return this.#saidOnStderr() ?? (first === undefined ? undefined : `first line on stdout: ${first}`);
  }

  /** Closes the transport and ends the process. @param haste kills the process at once. */
  #finish(error: GatewayError, haste?: 'at once'): void {
    if (this.#isFinished) return;
    this.#isFinished = true;
    this.#endWatch?.();
    this.#received.update(0);
    clearTimeout(this.#drainTimer);
    const { stdin, stdout, stderr, exitCode: code, signalCode: signal } = this.#child;
    for (const stream of [stdin, stdout, stderr]) stream.destroy();

    const counts = {
      code,
      signal,
      junkLines: this.#nonProtocolOutput.lines,
      droppedMessages: this.#stdinQueue.dropped,
    };
    if (this.#closing !== undefined) this.#log.debug(counts, 'upstream process ended');
    else this.#log.warn({ ...counts, reason: error.message, stderr: this.#stderr.toString() }, 'upstream process lost');

    this.#stdinQueue.close(error);
    if (haste !== undefined) this.#group.kill();
    void this.#group.end(0, GRACE_MS);
    this.#events.onClose(error);
    this.#finished.resolve();
  }
}

function mebibytes(bytes: number): string {
  return `${Math.ceil(bytes / 2 ** 20)} MiB`;
}
