import { connect } from 'node:net';
import { PATIENCE_MS } from '../support/patience.ts';
import { Dice } from './dice.ts';
import type { Category, Input, Target } from './input.ts';
import { judge, judgeRecords, NONCE, type Observation, type OracleName, type Violation } from './oracles.ts';
import type { AuditRecord } from './readings.ts';
import { messagesIn, repliesIn } from './reply.ts';
import type { Spied } from './spy.ts';
import type { Subject } from './subject.ts';

/** A violation with the input that caused it, if it was one input. */
export interface Finding extends Violation {
  readonly category: string;
  readonly input: string;
}

/** Inputs after which the gauge and the audit log are read. */
const CHUNK = 100;
const MAX_DELAY_MS = 100; // subject
/** A gateway that another program keeps from running is late as well: only an input that is late each time is at fault. */
const TRIES = 3;
const MAX_GROWTH_BYTES = 5 * 1_024 * 1_024;
/** Without bytes for this long, an input that may stall is over. */
const QUIET_MS = 60; // subject

/** Sends bytes on a connection of their own. Resolves with what came back, one character for each byte. */
async function exchange(
  port: number,
  wire: Buffer,
  mayStall: boolean,
  patienceMs: number,
): Promise<{ readonly text: string; readonly isSilent: boolean }> {
  const socket = connect(port, '127.0.0.1');
  const { promise: closed, resolve } = Promise.withResolvers<void>();
  let received = '';
  let isSilent = false;
  const giveUp = () => {
    isSilent = !mayStall;
    socket.destroy();
  };
  let timer = setTimeout(giveUp, mayStall ? QUIET_MS : patienceMs);
  socket.setEncoding('latin1');
  socket.on('data', (text: string) => {
    received += text;
    if (!mayStall) return;
    clearTimeout(timer);
    timer = setTimeout(giveUp, QUIET_MS);
  });
  socket.on('error', () => undefined);
  socket.on('close', () => resolve());
  socket.write(wire);
  await closed;
  clearTimeout(timer);
  return { text: received, isSilent };
}

/** Inputs of one category for one gateway. */
export class Engine {
  readonly #subject: Subject;
  readonly #category: Category;
  readonly #seed: number;
  readonly #documented: ReadonlySet<number>;
  readonly #patienceMs: number;
  readonly #findings: Finding[] = [];
  #sent = 0;
  #results = 0;

  constructor(
    subject: Subject,
    category: Category,
    seed: number,
    documented: ReadonlySet<number>,
    patienceMs = PATIENCE_MS,
  ) {
    this.#patienceMs = patienceMs;
    this.#subject = subject;
    this.#category = category;
    this.#seed = seed;
    this.#documented = documented;
  }

  /** Sends inputs until there are enough, or the gateway has died. Resolves with the broken rules. */
  async run(inputs: number): Promise<readonly Finding[]> {
    // The gateway fills its caches with the first inputs.
    const warm = Math.ceil(inputs / 3);
    await this.#chunks(0, warm);
    const before = await this.#heap();
    await this.#chunks(warm, inputs);
    const after = await this.#heap();
    if (before !== undefined && after !== undefined && after - before > MAX_GROWTH_BYTES) {
      // Once more the same inputs: a cache that was not full yet is full now.
      await this.#chunks(warm, inputs);
      const again = (await this.#heap()) ?? after;
      const mib = ((again - after) / 1_048_576).toFixed(1);
      if (again - after > MAX_GROWTH_BYTES) this.#add('memory', `${mib} MiB more after the same inputs`, '');
    }
    return this.#findings;
  }

  /** The number of inputs so far whose answer was a result. */
  get results(): number {
    return this.#results;
  }

  #add(oracle: OracleName, text: string, input: string): void {
    this.#findings.push({ oracle, text, category: this.#category.name, input });
  }

  async #heap(): Promise<number | undefined> {
    return this.#subject.isRunning ? (await this.#subject.gauge()).heapBytes : undefined;
  }

  async #chunks(from: number, to: number): Promise<void> {
    for (let at = from; at < to && this.#subject.isRunning; at += CHUNK) {
      await this.#chunk(at, Math.min(to, at + CHUNK));
    }
  }

  async #chunk(from: number, to: number): Promise<void> {
    const target = await this.#subject.target();
    const seen: (Observation & { readonly shown: string })[] = [];
    for (let index = from; index < to; index++) {
      const observed = await this.#try(index, target);
      seen.push(observed);
      for (const { oracle, text } of judge(observed, this.#documented)) this.#add(oracle, text, observed.shown);
      if (!this.#subject.isRunning) return this.#add('alive', this.#subject.logs(), observed.shown);
    }
    const records = await this.#recorded();
    for (const observed of seen) {
      for (const { oracle, text } of judgeRecords(observed, records)) this.#add(oracle, text, observed.shown);
    }
    const { delayMs, rejections } = await this.#subject.gauge();
    if (rejections > 0) this.#add('rejections', `${rejections} so far: ${this.#subject.logs()}`, `${from} to ${to}`);
    if (delayMs > MAX_DELAY_MS) await this.#findSlow(from, to, target);
  }

  async #try(index: number, target: Target): Promise<Observation & { readonly shown: string }> {
    const input = this.#input(index, target);
    const { nonce, message, shown, isForged = false } = input;
    const { mayStall: mayBeCut = false } = this.#category;
    for (const spy of this.#subject.spies) spy.take();
    const { text, isSilent } = await exchange(input.port ?? target.port, input.wire, mayBeCut, this.#patienceMs);
    const spied = this.#subject.spies.flatMap((spy) => spy.take()).filter((one) => isOf(one, nonce));
    const replies = repliesIn(text);
    if (replies?.some((reply) => messagesIn(reply)?.some((answer) => 'result' in answer)) === true) this.#results++;
    return { nonce, message, replies, spied, isSilent, isForged, mayBeCut, shown };
  }

  #input(index: number, target: Target): Input {
    this.#sent++;
    const nonce = `fuzz-${index}-${this.#sent}-end`;
    return this.#category.make(new Dice(this.#seed * 1_000_003 + index), nonce, target);
  }

  /** Sends a call that must be recorded. Resolves with the records since the last one. */
  async #recorded(): Promise<readonly AuditRecord[]> {
    // An input may have ended the session.
    const target = await this.#subject.target();
    const nonce = `mark-${this.#sent}-end`;
    await exchange(target.port, markBytes(target, nonce), false, PATIENCE_MS);
    return await this.#subject.records(nonce);
  }

  /** Sends each input of a chunk alone, to find those that keep the event loop busy. */
  async #findSlow(from: number, to: number, target: Target): Promise<void> {
    for (let index = from; index < to; index++) {
      let [leastMs, shown] = [Infinity, ''];
      for (let tries = 0; tries < TRIES && leastMs > MAX_DELAY_MS; tries++) {
        await this.#subject.gauge();
        ({ shown } = await this.#try(index, target));
        leastMs = Math.min(leastMs, (await this.#subject.gauge()).delayMs);
      }
      if (leastMs > MAX_DELAY_MS) this.#add('delay', `the event loop was busy for ${leastMs.toFixed(0)} ms`, shown);
    }
  }
}

/** Returns whether a message at an upstream may be of this input: it has its nonce, or none. */
function isOf({ body }: Spied, nonce: string): boolean {
  const found = body.match(NONCE);
  return found === null || found.includes(nonce);
}

function markBytes({ port, key, session }: Target, nonce: string): Buffer {
  const params = { name: 'leg__echo', arguments: { nonce } };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params });
  const lines = [
    'POST /mcp HTTP/1.1',
    `host: 127.0.0.1:${port}`,
    `authorization: Bearer ${key}`,
    'content-type: application/json',
    'accept: application/json, text/event-stream',
    'connection: close',
    `mcp-session-id: ${session}`,
    'mcp-protocol-version: 2025-11-25',
    `content-length: ${Buffer.byteLength(body)}`,
  ];
  return Buffer.from(`${lines.join('\r\n')}\r\n\r\n${body}`);
}
