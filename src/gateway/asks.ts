import { toAnswer, GatewayError } from '../errors.ts';
import { lowerAsk } from '../protocol/lower.ts';
import type { RawObject } from '../protocol/json.ts';
import type { Answer } from '../protocol/jsonrpc.ts';
import type { Ask } from '../upstream/connection.ts';
import type { Link } from '../upstream/link.ts';
import { canBeAsked } from './features.ts';
import type { Exchange, Session } from './session.ts';

/** People need time; after this long the upstream is told that nobody answers. */
const ASK_LIMIT_MS = 600_000;

const ASKABLE = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

function refusal(code: number, message: string): Answer {
  return { kind: 'error', error: { code, message } };
}

/**
 * Whom an upstream's question is for: the client whose call it belongs to, or the only one behind a connection. On doubt nobody.
 */
function addressee(link: Link<Exchange, Session>, ask: Ask<Exchange>): Session | undefined {
  if (link.shared) return undefined;
  if (ask.about !== undefined) return ask.about.session;
  const [only] = link.users;
  return link.users.size === 1 ? only : undefined;
}

/** The id a client knows an elicitation by: two upstreams may choose the same. */
export function elicitationIdToClient(session: Session, upstream: string, id: string): string {
  return session.catalog.view.upstreams.length > 1 ? `${upstream}:${id}` : id;
}

/** What the client reads instead: one server stands before it, so the text says which one asks. */
function toClient(session: Session, upstream: string, method: string, params: RawObject): RawObject {
  const seat = session.catalog.view.upstreams.find(({ id }) => id === upstream);
  if (seat === undefined || session.catalog.view.upstreams.length === 1) return params;
  if (method === 'elicitation/create') {
    const message = params.string('message') ?? '';
    const id = params.string('elicitationId');
    const labelled = params.with('message', JSON.stringify(`[${seat.title}] ${message}`));
    return id === undefined
      ? labelled
      : labelled.with('elicitationId', JSON.stringify(elicitationIdToClient(session, upstream, id)));
  }
  if (method === 'sampling/createMessage' && params.raw('includeContext') !== undefined) {
    // "This server" would be all of ours.
    return params.with('includeContext', '"none"');
  }
  return params;
}

/** Carries a question of an upstream to its client and the answer back. Always answers the upstream, in bounded time. */
export function relayAsk(link: Link<Exchange, Session>, ask: Ask<Exchange>): void {
  if (!ASKABLE.has(ask.method)) {
    ask.answer(refusal(-32601, `Method not found: ${ask.method}`));
    return;
  }
  const session = addressee(link, ask);
  if (session === undefined) {
    ask.answer(refusal(-32602, 'This connection serves many clients, and nothing tells which one is asked'));
    return;
  }
  const params = lowerAsk(
    ask.method,
    session.caller.revision,
    toClient(session, link.upstream, ask.method, ask.params),
  );
  if (params === undefined || !canBeAsked(session.offered, ask.method, ask.params)) {
    ask.answer(refusal(-32602, `The client cannot be asked for this: ${ask.method}`));
    return;
  }

  if (session.isAskedTooMuch) {
    ask.answer(refusal(-32603, 'The client has too many unanswered questions'));
    return;
  }
  const exchange = ask.about ?? session.latestExchangeAt(link.upstream);
  // Somebody thinking must not keep others from the upstream.
  if (ask.about !== undefined || session.inFlight.size === 1) exchange?.leave();
  const upstreamToken = ask.params.object('_meta')?.raw('progressToken');
  const timer = setTimeout(() => {
    question.withdraw('timed out');
    const say = `no answer to ${ask.method} within ${ASK_LIMIT_MS / 1000} s`;
    ask.answer(toAnswer(new GatewayError('client-timeout', { say })));
  }, ASK_LIMIT_MS);
  timer.unref();
  const question = session.ask(
    ask.method,
    (id) => (upstreamToken === undefined ? params : withToken(params, id)),
    exchange,
    {
      answered: (answer) => {
        clearTimeout(timer);
        ask.answer(answer);
      },
      progressed: (progress) => {
        if (upstreamToken === undefined) return;
        link.connection.notify('notifications/progress', progress.with('progressToken', upstreamToken));
      },
    },
  );
  ask.onWithdrawn(() => {
    clearTimeout(timer);
    question.withdraw('the server no longer asks');
  });
}

function withToken(params: RawObject, token: number): RawObject {
  const meta = params.object('_meta');
  return meta === undefined ? params : params.with('_meta', meta.with('progressToken', String(token)).toString());
}
