import { lowerAsk } from '../protocol/lower.ts';
import type { RawObject } from '../json/json.ts';
import { MODERN } from '../protocol/revisions.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import { progressTokenOf } from '../protocol/meta.ts';
import type { Ask } from '../upstream/connection.ts';
import type { Link } from '../upstream/link.ts';
import { canBeAsked } from './features.ts';
import type { Addressee, Client, Exchange } from './exchange.ts';
import type { Party } from './party.ts';
import type { ClientTasks } from './client-tasks.ts';
import type { TaskMarks } from './task-marks.ts';

const ASKABLE = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

function refusal(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/**
 * Whom an upstream's question is for: the client whose call it belongs to, or the only one behind a connection. On doubt nobody.
 */
function addressee(link: Link<Exchange, Party>, ask: Ask<Exchange>): Addressee | undefined {
  if (link.shared) return undefined;
  if (ask.about !== undefined) return { client: ask.about.client, exchange: ask.about, isOnly: true };
  const [only] = link.users;
  return link.users.size === 1 ? only?.addresseeAt(link.upstream) : undefined;
}

/** The id a client knows an elicitation by: two upstreams may choose the same. */
export function elicitationIdToClient(client: Client, upstream: string, id: string): string {
  return client.catalog.view.upstreams.length > 1 ? `${upstream}:${id}` : id;
}

/** What the client reads instead: one server stands before it, so the text says which one asks. */
export function labelled(client: Client, upstream: string, method: string, params: RawObject): RawObject {
  const seat = client.catalog.view.upstreams.find(({ id }) => id === upstream);
  if (seat === undefined || client.catalog.view.upstreams.length === 1) return params;
  if (method === 'elicitation/create') {
    const message = params.string('message') ?? '';
    const id = params.string('elicitationId');
    const named = params.with('message', JSON.stringify(`[${seat.title}] ${message}`));
    return id === undefined
      ? named
      : named.with('elicitationId', JSON.stringify(elicitationIdToClient(client, upstream, id)));
  }
  if (method === 'sampling/createMessage' && params.raw('includeContext') !== undefined) {
    // "This server" would be all of ours.
    return params.with('includeContext', '"none"');
  }
  return params;
}

/** Carries questions of upstreams to their clients and the answers back. */
export class Asks {
  readonly #marks: TaskMarks;
  readonly #clientTasks: ClientTasks;

  constructor(marks: TaskMarks, clientTasks: ClientTasks) {
    this.#marks = marks;
    this.#clientTasks = clientTasks;
  }

  /** Always answers the upstream, in bounded time. */
  relay(link: Link<Exchange, Party>, ask: Ask<Exchange>): void {
    if (this.#clientTasks.isAbout(ask)) {
      this.#clientTasks.relay(link, ask);
      return;
    }
    if (!ASKABLE.has(ask.method)) {
      ask.answer(refusal(-32601, `Method not found: ${ask.method}`));
      return;
    }
    const to = addressee(link, ask);
    if (to === undefined) {
      ask.answer(refusal(-32602, 'This connection serves many clients, and nothing tells which one is asked'));
      return;
    }
    const { client, exchange } = to;
    const { revision } = client.caller;
    const told = labelled(client, link.upstream, ask.method, this.#marks.told(link, client, ask.params));
    const params = revision === MODERN ? told : lowerAsk(ask.method, revision, told);
    if (params === undefined || !canBeAsked(client.offered, ask.method, ask.params)) {
      ask.answer(refusal(-32602, `The client cannot be asked for this: ${ask.method}`));
      client.cannotBeAsked(ask.method, ask.params, exchange);
      return;
    }
    // Somebody thinking must not keep others from the upstream.
    if (to.isOnly) exchange?.leave();
    const token = progressTokenOf(ask.params);
    const mayBeTask = this.#clientTasks.mayHost(client, ask.method, params);
    client.ask(
      {
        upstream: link.upstream,
        method: ask.method,
        params: mayBeTask ? params : params.with('task', undefined),
        answer: (answer) => ask.answer(mayBeTask ? this.#clientTasks.created(link, client, answer) : answer),
        progressed:
          token === undefined
            ? undefined
            : (progress) => link.connection.notify('notifications/progress', progress.with('progressToken', token)),
        onWithdrawn: (run) => ask.onWithdrawn(run),
      },
      exchange,
    );
  }
}
