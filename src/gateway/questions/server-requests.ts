import { downgradeServerRequest } from '../../protocol/downgrade.ts';
import type { RawObject } from '../../json/json.ts';
import { MODERN } from '../../protocol/revisions.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import { progressTokenOf } from '../../protocol/meta.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';
import type { Link } from '../../upstream/link.ts';
import { canBeAsked } from '../exchange/client-capabilities.ts';
import type { Recipient, Client, Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { boundedSampling, unsafeReason } from './safe-question.ts';
import type { ClientTasks } from './client-tasks.ts';
import type { TaskMarks } from '../handles/task-marks.ts';

const ASKABLE = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

function errorAnswer(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/**
 * Whom an upstream's question is for: the client whose call it belongs to, or the only one behind a connection. On doubt nobody.
 */
function recipientOf(link: Link<Exchange, ConnectionHolder>, ask: ServerRequest<Exchange>): Recipient | undefined {
  if (link.shared) return undefined;
  if (ask.about !== undefined) return { client: ask.about.client, exchange: ask.about, isUnambiguous: true };
  const [only] = link.users;
  return link.users.size === 1 ? only?.recipientAt(link.upstream) : undefined;
}

/** The id a client knows an elicitation by: two upstreams may choose the same. */
export function elicitationIdToClient(client: Client, upstream: string, id: string): string {
  return client.catalog.view.upstreams.length > 1 ? `${upstream}:${id}` : id;
}

/**
 * Returns the parameters of a server request as the client gets them: with the upstream's name where the client sees several
 * upstreams as one server, and within the bounds on sampling.
 */
export function labelled(client: Client, upstream: string, method: string, params: RawObject): RawObject {
  const { upstreams } = client.catalog.view;
  const isOnlyServer = upstreams.length === 1;
  if (method === 'sampling/createMessage') return boundedSampling(params, isOnlyServer);
  const viewed = upstreams.find(({ id }) => id === upstream);
  if (method !== 'elicitation/create' || viewed === undefined || isOnlyServer) return params;
  const message = params.string('message') ?? '';
  const id = params.string('elicitationId');
  const named = params.with('message', JSON.stringify(`[${viewed.title}] ${message}`));
  return id === undefined
    ? named
    : named.with('elicitationId', JSON.stringify(elicitationIdToClient(client, upstream, id)));
}

/** Carries questions of upstreams to their clients and the answers back. */
export class ServerRequests {
  readonly #marks: TaskMarks;
  readonly #clientTasks: ClientTasks;

  constructor(marks: TaskMarks, clientTasks: ClientTasks) {
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
    const unsafe = unsafeReason(ask.method, ask.params);
    if (unsafe !== undefined) {
      ask.answer(errorAnswer(-32602, `The client is not asked: ${unsafe}`));
      return;
    }
    const { client, exchange } = to;
    const { revision } = client.caller;
    const told = labelled(client, link.upstream, ask.method, this.#marks.withTaskId(link, client, ask.params));
    const params = revision === MODERN ? told : downgradeServerRequest(ask.method, revision, told);
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
