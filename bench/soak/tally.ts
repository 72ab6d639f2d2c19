import * as z from 'zod';

/** The work of the clients of a soak: counts by kind of work, and of what went wrong. */
const TALLY = z.object({
  done: z.record(z.string(), z.number()),
  failed: z.record(z.string(), z.number()),
  /** One of each kind of failure, for the report. */
  examples: z.record(z.string(), z.string()),
});

export type Tallied = z.infer<typeof TALLY>;

const MAX_KINDS = 200;

/** Counts the work of clients. */
export class Tally {
  readonly #done = new Map<string, number>();
  readonly #failed = new Map<string, number>();
  readonly #examples = new Map<string, string>();

  add(kind: string): void {
    this.#done.set(kind, (this.#done.get(kind) ?? 0) + 1);
  }

  fail(kind: string, example: string): void {
    if (!this.#failed.has(kind) && this.#failed.size >= MAX_KINDS) return;
    this.#failed.set(kind, (this.#failed.get(kind) ?? 0) + 1);
    if (!this.#examples.has(kind)) this.#examples.set(kind, `${new Date().toISOString()} ${example.slice(0, 500)}`);
  }

  toJson(): Tallied {
    return {
      done: Object.fromEntries(this.#done),
      failed: Object.fromEntries(this.#failed),
      examples: Object.fromEntries(this.#examples),
    };
  }
}

/** @param log of the clients: its last line is the tally. @throws {z.ZodError} */
export function parseTally(log: string): Tallied {
  return TALLY.parse(JSON.parse(log.trim().split('\n').at(-1) ?? 'null'));
}
