import { downgradeServerRequest } from '../../protocol/downgrade.ts';
import { MODERN } from '../../protocol/revisions.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { progressTokenOf } from '../../protocol/meta.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';
import type { Link } from '../../upstream/link.ts';
import { canBeAsked } from '../exchange/client-capabilities.ts';
import type { Recipient, Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { QuestionPolicy } from './question-policy.ts';
import type { ClientTasks } from './client-tasks.ts';
import type { TaskMarks } from '../handles/task-marks.ts';

const ASKABLE = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

function errorAnswer(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/**
 * Finds the client that must answer a server request: the one whose call it is about, or the only one of the connection.
 * Returns undefined when the recipient is ambiguous.
 */
function recipientOf(link: Link<Exchange, ConnectionHolder>, ask: ServerRequest<Exchange>): Recipient | undefined {
  if (link.shared) return undefined;
  if (ask.about !== undefined) return { client: ask.about.client, exchange: ask.about, isUnambiguous: true };
  const [only] = link.users;
  return link.users.size === 1 ? only?.recipientAt(link.upstream) : undefined;
}

/** Carries questions of upstreams to their clients and the answers back. */
export class ServerRequests {
  readonly #marks: TaskMarks;
  readonly #clientTasks: ClientTasks;
  readonly #policy: QuestionPolicy;

  constructor(marks: TaskMarks, clientTasks: ClientTasks, policy: QuestionPolicy) {
    this.#policy = policy;
    this.#marks = marks;
    this.#clientTasks = clientTasks;
  }

  /** Always answers the upstream, in bounded time. */
  relay(link: Link<Exchange, ConnectionHolder>, ask: ServerRequest<Exchange>): void {
    if (this.#clientTasks.isAbout(ask)) {
      this.#clientTasks.relay(link, ask);
      return;
    }
    if (!ASKABLE.has(ask.method)) {
      ask.answer(errorAnswer(-32601, `Method not found: ${ask.method}`));
      return;
    }
    const to = recipientOf(link, ask);
    if (to === undefined) {
      ask.answer(errorAnswer(-32602, 'This connection serves many clients, and nothing tells which one is asked'));
      return;
    }
    const refusal = this.#policy.refusal(link.upstream, ask.method, ask.params);
    if (refusal !== undefined) {
      ask.answer(errorAnswer(-32602, `The client is not asked: ${refusal}`));
      return;
    }
    const { client, exchange } = to;
    const { revision } = client.caller;
    const marked = this.#marks.withTaskId(link, client, ask.params);
    const asked = this.#policy.toClient(client, link.upstream, { method: ask.method, params: marked });
    const params = revision === MODERN ? asked : downgradeServerRequest(ask.method, revision, asked);
    if (params === undefined || !canBeAsked(client.clientCapabilities, ask.method, ask.params)) {
      ask.answer(errorAnswer(-32602, `The client cannot be asked for this: ${ask.method}`));
      client.onUnsupportedRequest(ask.method, ask.params, exchange);
      return;
    }
    // Somebody thinking must not keep others from the upstream.
    if (to.isUnambiguous) exchange?.releaseSlot();
    const token = progressTokenOf(ask.params);
    const mayBeTask = this.#clientTasks.mayHost(client, ask.method, params);
    client.ask(
      {
        upstream: link.upstream,
        method: ask.method,
        params: mayBeTask ? params : params.with('task', undefined),
        answer: (answer) => ask.answer(mayBeTask ? this.#clientTasks.onCreated(link, client, answer) : answer),
        onProgress:
          token === undefined
            ? undefined
            : (progress) => link.connection.notify('notifications/progress', progress.with('progressToken', token)),
        onWithdrawn: (run) => ask.onWithdrawn(run),
      },
      exchange,
    );
  }
}
