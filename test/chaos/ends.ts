import { z } from 'zod';
import type { Claim, End } from './history.ts';
import { type Message, parseMessage, type Response } from './http-exchange.ts';

const DATA = z.object({ code: z.string().optional(), executed: z.enum(['no', 'yes', 'unknown']).optional() });
const CONTENT = z.object({ content: z.tuple([z.object({ text: z.string() })]) });
const META = z.object({ _meta: z.object({ 'io.linkspan/stateLost': z.object({ upstream: z.string() }) }) });
const ECHO = z.object({ nonce: z.string(), run: z.string() });

/** Errors of JSON-RPC and HTTP that say without words that the request was refused. */
const REFUSALS: readonly number[] = [-32_600, -32_601, -32_602, -32_700, -31_001, -31_003, -31_004, -32_001];
const REFUSED_STATUS: readonly number[] = [400, 401, 403, 404, 405, 406, 413, 415, 429];

type EndOf<E> = E extends unknown ? Omit<E, 'atMs'> : never;
export type TimelessEnd = EndOf<End>;

/** Returns what the answer to a call says. */
export function endOfAnswer({ result, error }: Message): TimelessEnd {
  if (error !== undefined) return endOfError(error.code, error.message, error.data);
  const content = CONTENT.safeParse(result).data?.content[0].text;
  const echo = ECHO.safeParse(content === undefined ? undefined : parseMessage(content)).data;
  const lost = META.safeParse(result).data?._meta['io.linkspan/stateLost'].upstream;
  return { kind: 'ok', nonce: echo?.nonce, run: echo?.run, lost };
}

/** Returns what a JSON-RPC error says about its request. */
export function endOfError(code: number, message: string, given: unknown): TimelessEnd {
  const data = DATA.safeParse(given).data;
  // A state that is not known any more may be that of a call that has run.
  const isRefused = REFUSALS.includes(code) && data?.code !== 'invalid-state';
  const implied: Claim = isRefused ? 'no' : undefined;
  return { kind: 'error', claim: data?.executed ?? implied, code: data?.code ?? String(code), text: message };
}

/** Returns what a response without the answer says. */
export function endOfResponse({ status, text, failure, isWhole }: Response): TimelessEnd {
  if (status === undefined || !isWhole) return { kind: 'closed', why: failure };
  const error = parseMessage(text)?.error;
  if (error !== undefined) return endOfError(error.code, error.message, error.data);
  if (REFUSED_STATUS.includes(status)) return { kind: 'error', claim: 'no', code: `HTTP ${status}`, text };
  return { kind: 'closed', why: `HTTP ${status} ${text.slice(0, 80)}` };
}
