import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import * as z from 'zod';

/** The interval between two bytes of a connection. */
const TICK_MS = 500;
const AT_ONCE = 100;

/** The task of a process with connections that send heads of requests byte by byte. */
const DRIP_JOB = z.object({ url: z.url(), connections: z.int().positive() });

export type DripJob = z.infer<typeof DRIP_JOB>;

/** @throws {z.ZodError} */
export function parseDripJob(text: string | undefined): DripJob {
  return DRIP_JOB.parse(JSON.parse(text ?? 'null'));
}

const DRIP_REPORT = z.object({
  opened: z.number(),
  closed: z.number(),
  /** The longest time that a connection was open, also of those that still are. */
  longestMs: z.number(),
});

export type DripReport = z.infer<typeof DRIP_REPORT>;

/** @throws {z.ZodError} */
export function readDripReport(reported: unknown): DripReport {
  return DRIP_REPORT.parse(reported);
}

/** Connections that send the head of a request byte by byte. One that is closed is replaced. */
export class Drips {
  readonly #job: DripJob;
  /** The times at which the open connections were opened. */
  readonly #open = new Map<Socket, number>();
  #opened = 0;
  #closed = 0;
  #longestMs = 0;

  constructor(job: DripJob) {
    this.#job = job;
  }

  /** Opens all connections. @throws {Error} if one is refused. */
  async open(): Promise<void> {
    setInterval(() => {
      for (const socket of this.#open.keys()) socket.write('a');
    }, TICK_MS);
    for (let left = this.#job.connections; left > 0; left -= AT_ONCE) {
      await Promise.all(Array.from({ length: Math.min(AT_ONCE, left) }, () => this.#connect()));
    }
  }

  async #connect(): Promise<void> {
    const { hostname, port, pathname } = new URL(this.#job.url);
    const socket = connect(Number(port), hostname);
    socket.on('error', () => undefined);
    await once(socket, 'connect');
    this.#opened++;
    this.#open.set(socket, performance.now());
    socket.resume().write(`POST ${pathname} HTTP/1.1\r\nhost: ${hostname}\r\nx-slow: `);
    socket.once('close', () => void this.#replace(socket));
  }

  async #replace(socket: Socket): Promise<void> {
    this.#closed++;
    this.#longestMs = Math.max(this.#longestMs, this.#ageOf(socket));
    this.#open.delete(socket);
    await delay(TICK_MS);
    await this.#connect();
  }

  #ageOf(socket: Socket): number {
    return performance.now() - (this.#open.get(socket) ?? performance.now());
  }

  report(): DripReport {
    const ages = [...this.#open.keys()].map((socket) => this.#ageOf(socket));
    return { opened: this.#opened, closed: this.#closed, longestMs: Math.max(this.#longestMs, ...ages) };
  }
}
