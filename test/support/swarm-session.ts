import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'undici';
import * as z from 'zod';
import type { Step } from '../fixtures/servers/nonce-acts.ts';
import { type Rpc, SwarmClient } from './swarm-client.ts';
import type { PlannedCall, PlannedSession } from './swarm-plan.ts';
import { type Ledger, ledgerSchema } from './swarm-upstream.ts';
import { Witness } from './swarm-witness.ts';
import { isRecord } from '../../src/json/record.ts';

/** Calls of one session that are in flight at once. */
const LANES = 4;

const listResult = z.object({ tools: z.array(z.object({ name: z.string() })) });
const ledgerResult = z.object({ content: z.tuple([z.object({ text: z.string() })]) });

/** One session of a swarm: makes its planned calls, answers questions, and passes every message to its witness. */
export class SwarmSession {
  readonly planned: PlannedSession;
  readonly witness: Witness;
  readonly #client: SwarmClient;
  /** Actions for the first message about a call, by its nonce. */
  readonly #onFirstMessage: Map<string, () => void>;
  readonly #answering: Set<Promise<void>>;

  private constructor(
    planned: PlannedSession,
    witness: Witness,
    client: SwarmClient,
    onFirstMessage: Map<string, () => void>,
    answers: Set<Promise<void>>,
  ) {
    this.planned = planned;
    this.witness = witness;
    this.#client = client;
    this.#onFirstMessage = onFirstMessage;
    this.#answering = answers;
  }

  static async open(
    pool: Pool,
    planned: PlannedSession,
    logsReach: (call: PlannedCall, step: Step) => boolean,
    headers: Readonly<Record<string, string>> = {},
  ): Promise<SwarmSession> {
    const witness = new Witness(planned, (call, step) => logsReach(call, step));
    const onFirstMessage = new Map<string, () => void>();
    const thinkMs = new Map(planned.calls.map((call) => [call.act.nonce, call.thinkMs]));
    const answers = new Set<Promise<void>>();
    const client: SwarmClient = await SwarmClient.open(pool, {
      revision: planned.revision,
      headers,
      capabilities: planned.revision >= '2025-06-18' ? { sampling: {}, elicitation: {} } : { sampling: {} },
      onMessage: (message, text) => {
        const nonce = witness.onMessage(message, text);
        if (nonce === undefined) return;
        onFirstMessage.get(nonce)?.();
        onFirstMessage.delete(nonce);
        if (message.method === undefined || message.id === undefined) return;
        const answering: Promise<void> = answer(client, message, nonce, thinkMs.get(nonce) ?? 0)
          .catch((thrown: unknown) => void witness.faults.push(`answering ${nonce}: ${String(thrown)}`))
          .finally(() => answers.delete(answering));
        answers.add(answering);
      },
    });
    if (planned.listens && planned.revision !== '2024-11-05') await client.listen();
    return new SwarmSession(planned, witness, client, onFirstMessage, answers);
  }

  /** Makes every call. Resolves when all calls and all questions are answered. */
  async play(): Promise<void> {
    const calls = this.planned.calls.values();
    await Promise.all(
      Array.from({ length: LANES }, async () => {
        for (const call of calls) await this.#make(call);
      }),
    );
    await Promise.all(this.#answering);
  }

  /** Returns the names of the tools that this session sees. One at a time. */
  async tools(): Promise<readonly string[]> {
    const { result, error } = await this.#client.request('list', 'tools/list');
    if (error !== undefined) throw new Error(`tools/list was refused: ${error.message}`);
    return listResult.parse(result).tools.map(({ name }) => name);
  }

  /** Returns the ledger of a server that reports it only to its clients. */
  async ledger(upstream: string): Promise<Ledger> {
    const { result } = await this.#client.request('ledger', 'tools/call', { name: `${upstream}__ledger` });
    const { content } = ledgerResult.parse(result);
    return ledgerSchema.parse(JSON.parse(content[0].text));
  }

  async end(): Promise<void> {
    await this.#client.end();
  }

  async #make(call: PlannedCall): Promise<void> {
    const { id, token, upstream, act, cancel } = call;
    const params = {
      name: `${upstream}__act`,
      arguments: act,
      ...(token === undefined ? {} : { _meta: { progressToken: token } }),
    };
    const cancelled = Promise.withResolvers<void>();
    let isCancelled = false;
    const cancelCall = () => {
      isCancelled = true;
      this.witness.onCancel(call);
      this.#client
        .notify('notifications/cancelled', { requestId: id, reason: act.nonce })
        .then(cancelled.resolve, cancelled.reject);
    };
    if (cancel === 'at its first message') this.#onFirstMessage.set(act.nonce, cancelCall);
    else if (cancel === undefined) cancelled.resolve();
    const answered = this.#client.request(id, 'tools/call', params);
    if (cancel === 'at once') cancelCall();
    else if (typeof cancel === 'number') void delay(cancel).then(cancelCall);
    const ended = answered.catch((thrown: unknown) => {
      // A cancelled call may end without an answer.
      if (!isCancelled) throw thrown;
    });
    // The stream of a cancelled call ends, and may bring a question before. In 2024-11-05 a call has no stream.
    const mayStayOpen = cancel !== undefined && this.planned.revision === '2024-11-05';
    await (mayStayOpen ? Promise.race([ended, cancelled.promise]) : ended);
    // For most calls, the answer is the first message.
    if (cancel !== 'at its first message' || !this.#onFirstMessage.delete(act.nonce)) await cancelled.promise;
  }
}

/** Answers a question, with progress first if the server asked for it. */
async function answer(
  client: SwarmClient,
  { id, method, params = {} }: Rpc,
  nonce: string,
  thinkMs: number,
): Promise<void> {
  if (id === undefined) return;
  await delay(thinkMs);
  if (method === 'elicitation/create') {
    await client.answer(id, { action: 'accept', content: { nonce } });
    return;
  }
  const meta = params['_meta'];
  const progressToken = isRecord(meta) ? meta['progressToken'] : undefined;
  if (progressToken !== undefined) {
    await client.notify('notifications/progress', { progressToken, progress: 1, message: nonce });
  }
  await client.answer(id, { role: 'assistant', model: 'none', content: { type: 'text', text: nonce } });
}
