import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { textOf } from './answers.ts';
import type { Ask } from './dialect.ts';
import { TOOLS } from './tools.ts';

const RESPONSE = z.object({ jsonrpc: z.literal('2.0'), id: z.number(), result: z.unknown() });
const CALL = z.object({
  content: z.tuple([z.object({ type: z.literal('text'), text: z.string() })]),
  isError: z.literal(false).optional(),
});
const LIST = z.object({ tools: z.array(z.looseObject({ name: z.string() })), nextCursor: z.undefined().optional() });

function isComplete(result: unknown, ask: Ask, prefix: string): boolean {
  if (ask.method === 'tools/call') {
    const call = CALL.safeParse(result);
    return call.success && call.data.content[0].text === textOf(ask.tool);
  }
  const list = LIST.safeParse(result);
  if (!list.success || list.data.tools.length !== TOOLS.length) return false;
  return TOOLS.every((tool, i) => {
    const listed = list.data.tools[i];
    // A gateway may add members to a tool, but must keep those of the upstream.
    return Object.entries({ ...tool, name: `${prefix}${tool.name}` }).every(([key, value]) =>
      isDeepStrictEqual(listed?.[key], value),
    );
  });
}

/**
 * Checks the answers to one kind of request: each needs the id of its request and the whole result.
 *
 * The first answer is parsed and compared with the fixture's. Later answers with the same bytes around the id need
 * no
 * parsing; others are parsed as well.
 */
export class Check {
  readonly #ask: Ask;
  readonly #prefix: string;
  #before: Buffer | undefined;
  #after = Buffer.alloc(0);

  constructor(ask: Ask, prefix: string) {
    this.#ask = ask;
    this.#prefix = prefix;
  }

  /** @throws {Error} with the answer, if it is wrong. */
  answer(body: Buffer, id: number): void {
    const digits = String(id);
    if (this.#isKnown(body, digits)) return;
    const response = RESPONSE.safeParse(parse(body));
    if (!response.success) throw new Error(`no answer to request ${digits}: ${excerpt(body)}`);
    if (response.data.id !== id) throw new Error(`expected an answer to request ${digits}: ${excerpt(body)}`);
    if (!isComplete(response.data.result, this.#ask, this.#prefix)) {
      throw new Error(`a wrong or incomplete result: ${excerpt(body)}`);
    }
    this.#learn(body, digits);
  }

  #isKnown(body: Buffer, digits: string): boolean {
    const before = this.#before;
    if (before === undefined) return false;
    const idEnd = before.length + digits.length;
    return (
      body.length === idEnd + this.#after.length &&
      body.compare(before, 0, before.length, 0, before.length) === 0 &&
      body.toString('latin1', before.length, idEnd) === digits &&
      body.compare(this.#after, 0, this.#after.length, idEnd) === 0
    );
  }

  #learn(body: Buffer, digits: string): void {
    const at = body.indexOf(`"id":${digits}`);
    if (at < 0) return;
    const start = at + '"id":'.length;
    // Copied, because the body may be part of a larger buffer.
    this.#before = Buffer.from(body.subarray(0, start));
    this.#after = Buffer.from(body.subarray(start + digits.length));
  }
}

function parse(body: Buffer): unknown {
  try {
    return JSON.parse(body.toString());
  } catch {
    return undefined;
  }
}

function excerpt(body: Buffer): string {
  return `${body.length} bytes, ${JSON.stringify(body.toString('utf8', 0, 300))}`;
}
