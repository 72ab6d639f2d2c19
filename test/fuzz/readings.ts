import { open } from 'node:fs/promises';
import { connect } from 'node:net';
import * as z from 'zod';
import { PATIENCE_MS } from '../support/patience.ts';

const POLL_MS = 20;

const READING = z.object({ heapBytes: z.number(), delayMs: z.number(), rejections: z.number() });

/** The state of a process that runs `gauge.ts`: its heap after a collection, and the longest delay of its event loop since the last reading. */
export type GaugeReading = z.infer<typeof READING>;

/** Reads the gauge at a socket. */
export async function readGauge(path: string): Promise<GaugeReading> {
  const socket = connect(path);
  socket.setEncoding('utf8');
  let text = '';
  for await (const chunk of socket) text += String(chunk);
  return READING.parse(JSON.parse(text));
}

/** A record of the audit log. */
export type AuditRecord = Readonly<Record<string, unknown>>;

/** Reads an audit log while it is written. */
export class AuditTail {
  readonly #file: string;
  #at = 0;
  /** The bytes of an unfinished line, one character for each. */
  #rest = '';

  constructor(file: string) {
    this.#file = file;
  }

  /** Resolves with the records since the last call, when the one with this text is written. @throws {Error} if it is not in time. */
  async until(wanted: string): Promise<readonly AuditRecord[]> {
    const found: AuditRecord[] = [];
    const lateMs = performance.now() + PATIENCE_MS;
    for (;;) {
      const lines = await this.#newLines();
      for (const line of lines) found.push(z.record(z.string(), z.unknown()).parse(JSON.parse(line)));
      if (lines.some((line) => line.includes(wanted))) return found;
      if (performance.now() > lateMs) throw new Error(`no record of ${wanted} after ${PATIENCE_MS} ms`);
      await new Promise((resolve) => {
        setTimeout(resolve, POLL_MS);
      });
    }
  }

  async #newLines(): Promise<readonly string[]> {
    const file = await open(this.#file);
    try {
      const { size } = await file.stat();
      const { buffer, bytesRead } = await file.read(Buffer.alloc(size - this.#at), 0, undefined, this.#at);
      this.#at += bytesRead;
      const lines = `${this.#rest}${buffer.toString('latin1', 0, bytesRead)}`.split('\n');
      this.#rest = lines.pop() ?? '';
      return lines.map((line) => Buffer.from(line, 'latin1').toString('utf8'));
    } finally {
      await file.close();
    }
  }
}
