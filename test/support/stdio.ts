import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { type Logger, pino } from 'pino';
import type { GatewayError } from '../../src/errors.ts';
import type { LimitName } from '../../src/limits.ts';
import { type Message, requestText } from '../../src/protocol/jsonrpc.ts';
import { RawObject } from '../../src/json/json.ts';
import { ProcessGuard } from '../../src/upstream/stdio/process-guard.ts';
import { stdioTransport } from '../../src/upstream/stdio/stdio.ts';
import { TAG_NAME } from '../../src/upstream/stdio/tagged-processes.ts';
import type { ReceivingBudget } from '../../src/upstream/rpc/receiving-budget.ts';
import type { Transport, TransportEvents } from '../../src/upstream/rpc/transport.ts';
import { marker } from './leftovers.ts';
import { UNBOUNDED } from './receiving.ts';
import { waitUntil } from './wait-until.ts';

/** Waits until a condition holds. @throws {Error} if it does not hold in time. */
export async function until(isSo: () => boolean, what: string): Promise<void> {
  await waitUntil(isSo).catch((thrown: unknown) => {
    throw new Error(`waited in vain until ${what}`, { cause: thrown });
  });
}

/** Returns the state letter and the parent of a process, from `/proc/<pid>/stat`. */
function stat(pid: number): { readonly state: string; readonly parent: number } | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, 'latin1');
    const [state = '', parent = ''] = text.slice(text.lastIndexOf(')') + 2).split(' ');
    return { state, parent: Number(parent) };
  } catch {
    return undefined;
  }
}

/** Returns whether a process has ended. A zombie counts as ended. */
export function isGone(pid: number): boolean {
  return (stat(pid)?.state ?? 'Z') === 'Z';
}

export function childrenOf(pid: number): number[] {
  const pids = readdirSync('/proc').map(Number).filter(Number.isInteger);
  return pids.filter((child) => stat(child)?.parent === pid && !isGone(child));
}

/** Returns the processes of upstreams that a gateway has started. One that has not run its program yet has no tag, and is left out. */
export function upstreamProcesses(gateway: number): number[] {
  return childrenOf(gateway).filter((pid) => environmentOf(pid).some((one) => one.startsWith(`${TAG_NAME}=`)));
}

function environmentOf(pid: number): readonly string[] {
  try {
    return readFileSync(`/proc/${pid}/environ`, 'latin1').split('\0');
  } catch {
    return [];
  }
}

interface StartOptions {
  readonly messageBytes?: number;
  readonly receiving?: ReceivingBudget;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly log?: Logger;
  readonly onMessage?: (message: Message) => void;
  readonly onLimit?: (limit: LimitName) => void;
}

/** A transport to a process, with the events that it has reported. */
export class Stdio implements AsyncDisposable {
  readonly messages: Message[] = [];
  /** The kinds of all events in order: `message`, `failed`, `closed`. */
  readonly order: string[] = [];
  readonly failed = new Map<number, GatewayError>();
  readonly closed: Promise<GatewayError>;
  closings = 0;
  junk = 0;
  readonly #close = Promise.withResolvers<GatewayError>();
  readonly #guard: ProcessGuard;
  #transport: Transport | undefined;
  #lastId = 0;

  private constructor(log: Logger) {
    this.closed = this.#close.promise;
    this.#guard = new ProcessGuard(log);
  }

  static async start(command: string, args: readonly string[], options: StartOptions = {}): Promise<Stdio> {
    const log = options.log ?? pino({ level: 'silent' });
    const stdio = new Stdio(log);
    const events: TransportEvents = {
      onMessage: (message) => {
        stdio.order.push('message');
        stdio.messages.push(message);
        options.onMessage?.(message);
      },
      onDropped: () => undefined,
      onSendFailed: (id, error) => {
        stdio.order.push('failed');
        stdio.failed.set(id, error);
      },
      onClose: (error) => {
        stdio.order.push('closed');
        stdio.closings++;
        stdio.#close.resolve(error);
      },
    };
    const start = stdioTransport(
      { kind: 'stdio', command, args, env: { ...marker(), ...options.env }, cwd: options.cwd },
      {
        upstream: 'files',
        messageBytes: options.messageBytes ?? 4_194_304,
        receiving: options.receiving ?? UNBOUNDED,
        log,
        guard: stdio.#guard,
        onNonProtocolOutput: () => stdio.junk++,
        ...(options.onLimit === undefined ? {} : { onLimit: options.onLimit }),
      },
    );
    stdio.#transport = await start(events, new AbortController().signal, { audience: '' });
    return stdio;
  }

  /** Runs a file of `test/fixtures/servers`. */
  static server(file: string, options: StartOptions = {}): Promise<Stdio> {
    return Stdio.start(process.execPath, [join(import.meta.dirname, '../fixtures/servers', file)], options);
  }

  get transport(): Transport {
    if (this.#transport === undefined) throw new Error('not started');
    return this.#transport;
  }

  /** Sends a request. Returns its id. */
  send(method: string, params: object = {}): number {
    const id = ++this.#lastId;
    this.transport.send({ text: requestText(id, method, RawObject.of(params)), id, method });
    return id;
  }

  answer(id: number): RawObject | undefined {
    const answer = this.messages.find((message) => message.kind === 'result' && message.id === String(id));
    return answer?.kind === 'result' ? RawObject.parse(answer.result) : undefined;
  }

  /** Returns the result of one request. */
  async call(method: string, params: object = {}): Promise<RawObject> {
    const id = this.send(method, params);
    await until(
      () => this.answer(id) !== undefined || this.failed.has(id) || this.closings > 0,
      `${method} is answered`,
    );
    const answer = this.answer(id);
    if (answer === undefined) throw new Error(`${method} was not answered`, { cause: this.failed.get(id) });
    return answer;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#transport?.close();
    await this.#guard[Symbol.asyncDispose]();
  }
}
