import type * as sdk2 from '@modelcontextprotocol/client';
import { StreamableHTTPClientTransport as Transport2 } from '@modelcontextprotocol/client';
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport as Transport1 } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ElicitRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { setTimeout as delay } from 'node:timers/promises';
import { z } from 'zod';
import { connectSdk1Over, connectSdk2Over } from '../support/sdk-client.ts';
import { DEADLINE_MS } from './check.ts';
import type { Caller, OpenAttempt } from './client.ts';
import { endOfAnswer, endOfError, endOfResponse, type TimelessEnd } from './ends.ts';
import { NONCE } from './plan.ts';

const PAUSE_MS = 200;
const CONNECT_MS = 12_000; // subject
/** Resumes for as long as a call may take. */
const reconnectionOptions = {
  initialReconnectionDelay: 200,
  maxReconnectionDelay: 200,
  reconnectionDelayGrowFactor: 1,
  maxRetries: 60,
};
const ACCEPTED = { action: 'accept' as const, content: {} };
/** Codes that the SDK makes itself: the connection was closed, no answer came. */
const LOCAL_CODES: readonly number[] = [-32_000, -32_001];
const NONCE_CHARS = 200;

const PARAMS = z.object({ progress: z.number(), message: z.string().optional() });
/** Beginning of the messages of upstreams. Version 2 reports progress of its own when it answers a question. */
const OF_UPSTREAM = 'nonce:';
const RPC_ERROR = z.object({ code: z.int().max(-1_000), message: z.string(), data: z.unknown() });
const HTTP_ERROR = z.object({ code: z.int().min(100).max(599), message: z.string() });
const HTTP_ERROR_2 = z.object({ data: z.object({ status: z.int(), text: z.string().optional() }) });

interface Connected extends AsyncDisposable {
  /** Undefined for a client without sessions. */
  readonly session: string | undefined;
  call(open: OpenAttempt, signal: AbortSignal): Promise<object>;
}

/** A client of an SDK, as a program uses it: it connects again when its session has ended. */
export class SdkCaller implements Caller {
  readonly #connect: () => Promise<Connected>;
  #connected: Promise<Connected | undefined> | undefined;

  constructor(kind: 'sdk-legacy' | 'sdk-modern', url: string, key: string, seen: Set<string>) {
    const options = {
      requestInit: { headers: { authorization: `Bearer ${key}` } },
      fetch: seeing(seen),
      reconnectionOptions,
    };
    this.#connect = () => (kind === 'sdk-legacy' ? connect1(url, options) : connect2(url, options));
  }

  async prepare(signal: AbortSignal): Promise<boolean> {
    while (!signal.aborted) {
      this.#connected ??= Promise.race([this.#connect(), delay(CONNECT_MS, undefined, { ref: false })]).catch(
        () => undefined,
      );
      const opening = this.#connected;
      if ((await opening) !== undefined) return true;
      if (this.#connected === opening) this.#connected = undefined;
      await delay(PAUSE_MS);
    }
    return false;
  }

  async send(open: OpenAttempt, signal: AbortSignal): Promise<void> {
    const opening = this.#connected;
    const connected = await opening;
    if (connected === undefined) {
      open.end({ kind: 'error', claim: 'no', code: 'no session', text: 'the client has lost its session before' });
      return;
    }
    open.attempt.session = connected.session;
    try {
      open.end(endOfAnswer({ result: { ...(await connected.call(open, signal)) } }));
    } catch (thrown) {
      const end = endOfThrown(thrown);
      const hasLostSession = end.kind === 'error' && end.code === 'session-unknown';
      if (hasLostSession && this.#connected === opening) {
        this.#connected = undefined;
        await close(connected);
      }
      open.end(end);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const connected = await this.#connected;
    if (connected !== undefined) await close(connected);
  }
}

/** Closes a client whose gateway may be gone. */
async function close(connected: Connected): Promise<void> {
  try {
    await connected[Symbol.asyncDispose]();
  } catch {
    // There is nothing left to close.
  }
}

interface TransportOptions {
  readonly requestInit: { readonly headers: Record<string, string> };
  readonly fetch: (input: string | URL, init?: RequestInit) => Promise<Response>;
  readonly reconnectionOptions: typeof reconnectionOptions;
}

async function connect1(url: string, options: TransportOptions): Promise<Connected> {
  const transport = new Transport1(new URL(url), options);
  const connected = await connectSdk1Over(transport, { elicitation: {} }, (client: Client) => {
    client.setRequestHandler(ElicitRequestSchema, () => ACCEPTED);
  });
  return {
    session: transport.sessionId,
    call: (open, signal) => connected.client.callTool(callOf(open), undefined, optionsOf(open, signal)),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

async function connect2(url: string, options: TransportOptions): Promise<Connected> {
  const transport = new Transport2(new URL(url), options);
  const mode = { pin: '2026-07-28' };
  const connected = await connectSdk2Over(transport, { elicitation: { form: {} } }, mode, (client: sdk2.Client) => {
    client.setRequestHandler('elicitation/create', () => ACCEPTED);
  });
  return {
    session: undefined,
    call: (open, signal) => connected.client.callTool(callOf(open), optionsOf(open, signal)),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

function callOf(open: OpenAttempt): { name: string; arguments: Record<string, unknown> } {
  return { name: `${open.call.upstream}__act`, arguments: { ...open.arguments } };
}

function optionsOf(
  open: OpenAttempt,
  signal: AbortSignal,
): { signal: AbortSignal; timeout: number; onprogress: (progress: unknown) => void } {
  return {
    signal,
    timeout: DEADLINE_MS,
    onprogress: (given) => {
      const { progress, message } = PARAMS.parse(given);
      if (message?.startsWith(OF_UPSTREAM) === true) open.onProgress(progress, message);
    },
  };
}

/** Returns what an error of an SDK says about the call. */
function endOfThrown(thrown: unknown): TimelessEnd {
  const rpc = RPC_ERROR.safeParse(thrown).data;
  if (rpc !== undefined && !LOCAL_CODES.includes(rpc.code)) return endOfError(rpc.code, rpc.message, rpc.data);
  const old = HTTP_ERROR.safeParse(thrown).data;
  const status = old?.code ?? HTTP_ERROR_2.safeParse(thrown).data?.data.status;
  const received = old?.message ?? HTTP_ERROR_2.safeParse(thrown).data?.data.text ?? '';
  if (status !== undefined) {
    const text = received.slice(Math.max(0, received.indexOf('{')));
    return endOfResponse({ status, text, sessionId: undefined, isEvents: false, isWhole: true, failure: '' });
  }
  return {
    kind: 'closed',
    why: thrown instanceof Error ? `${thrown.message} ${String(thrown.cause)}` : String(thrown),
  };
}

/** Returns a `fetch` that records the nonces in all that it receives. */
function seeing(seen: Set<string>): TransportOptions['fetch'] {
  return async (input, init) => {
    const response = await fetch(input, init);
    if (response.body === null) return response;
    const decoder = new TextDecoder();
    let text = '';
    const scan = new TransformStream<Uint8Array, Uint8Array>({
      transform: (chunk, controller) => {
        text = text.slice(-NONCE_CHARS) + decoder.decode(chunk, { stream: true });
        for (const nonce of text.match(NONCE) ?? []) seen.add(nonce);
        controller.enqueue(chunk);
      },
    });
    return new Response(response.body.pipeThrough(scan), response);
  };
}
