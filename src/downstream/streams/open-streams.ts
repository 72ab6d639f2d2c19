import type { ClientSession } from '../../gateway/front/front.ts';
import type { Principal } from '../../policy/principal.ts';
import { StreamCounts } from '../memory/stream-counts.ts';
import { SessionStreams, type StreamsParts } from './session-streams.ts';
import { getOrMake } from '../../map-entries.ts';

/** The response to `subscriptions/listen`. */
interface Listen {
  close(): void;
}

/** The streams of all clients: those of sessions, and those of subscriptions. They end with the credentials of their readers. */
export class OpenStreams {
  readonly #parts: StreamsParts;
  readonly #sessions = new Map<ClientSession, SessionStreams>();
  readonly #listens = new Map<Listen, Principal>();
  /** Bounds subscription streams. */
  readonly listenCounts: StreamCounts;

  constructor(parts: StreamsParts, listensPerPrincipal: () => number) {
    this.#parts = parts;
    const onRefused = () => parts.metrics.countShed('streams');
    this.listenCounts = new StreamCounts('subscriptions/listen streams', listensPerPrincipal, onRefused);
  }

  /** Returns the streams of a session; undefined if it has ended. */
  of(session: ClientSession): SessionStreams | undefined {
    if (session.closed.aborted) return undefined;
    return getOrMake(this.#sessions, session, () => {
      session.closed.addEventListener('abort', () => this.#sessions.delete(session), { once: true });
      return new SessionStreams(session, this.#parts);
    });
  }

  get listenCount(): number {
    return this.#listens.size;
  }

  /** Adds a subscription stream, which `listenCounts` has counted. */
  addListen(listen: Listen, reader: Principal): void {
    this.#listens.set(listen, reader);
  }

  /** Removes a stream that has ended. Has no effect on the answer to another request. */
  removeListen(listen: Listen, principal: string): void {
    if (this.#listens.delete(listen)) this.listenCounts.remove(principal);
  }

  /** Ends the streams of these principals on which no answer is due. A client may open another, with valid credentials. */
  endOf(isConcerned: (principal: Principal) => boolean): void {
    for (const streams of this.#sessions.values()) if (isConcerned(streams.reader)) streams.drain();
    this.endListens(isConcerned);
  }

  /** Ends the subscription streams of these principals. A client may open another. */
  endListens(isConcerned: (principal: Principal) => boolean): void {
    for (const [listen, principal] of this.#listens) if (isConcerned(principal)) listen.close();
  }

  /** Ends all streams on which no answer is due. */
  drain(isForRestart: boolean): void {
    for (const streams of this.#sessions.values()) streams.drain(isForRestart);
    this.endListens(() => true);
  }
}
