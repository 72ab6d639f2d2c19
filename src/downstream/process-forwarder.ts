import { setTimeout as sleep } from 'node:timers/promises';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { GatewayError } from '../errors.ts';
import { MAX_HOPS, OWNER_RETRY_MS, OWNER_WAIT_MS } from '../gateway/exchange/owners.ts';
import type { ClientResponse } from '../gateway/front/client-http.ts';
import type { Front, Owner } from '../gateway/front/front.ts';
import type { Admitted } from './admission/admission.ts';
import { refuse } from './admission/refusal.ts';
import type { ClassifiedPost } from './classify.ts';

type ForwarderFront = Pick<Front, 'hasSession' | 'ownerOfSession' | 'successor'>;

/** Passes requests on to other processes of the gateway: to the owner of a session, or to a successor if this process leaves. */
export class ProcessForwarder {
  readonly #front: ForwarderFront;
  /** The passed-on requests whose responses last until a side ends them. */
  readonly #streams = new Set<ClientResponse>();

  constructor(front: ForwarderFront) {
    this.#front = front;
  }

  /**
   * Passes a request on to the process that has its session. Returns undefined if that is this one.
   *
   * @param text the body, if it was read.
   */
  async forwardToOwner(
    outgoing: ClientResponse,
    view: string,
    admitted: Admitted,
    sessionId: string,
    text?: string,
  ): Promise<Response | undefined> {
    const find = async (): Promise<Owner | undefined> => {
      const ownership = await this.#front.ownerOfSession(sessionId, admitted.principal, view);
      return ownership.kind === 'elsewhere' ? ownership.owner : undefined;
    };
    return await this.#forward(outgoing, view, admitted, find, text);
  }

  /** Passes on a POST whose body was read, if this process leaves. Returns undefined if it is answered here. */
  async forwardPost(
    outgoing: ClientResponse,
    view: string,
    admitted: Admitted,
    posted: ClassifiedPost,
    text: string,
  ): Promise<Response | undefined> {
    const front = this.#front;
    if (front.successor() === undefined || posted.kind === 'refused' || posted.kind === 'ignored') {
      return undefined;
    }
    if (posted.kind === 'session') {
      if (front.hasSession(posted.sessionId)) return undefined;
      return await this.forwardToOwner(outgoing, view, admitted, posted.sessionId, text);
    }
    if (posted.request.method === 'subscriptions/listen') this.#streams.add(outgoing);
    return await this.#forward(outgoing, view, admitted, () => front.successor(), text);
  }

  /** @param find returns the process, which may be another one at each attempt. */
  async #forward(
    outgoing: ClientResponse,
    view: string,
    { principal, passedOn }: Admitted,
    find: () => Owner | undefined | Promise<Owner | undefined>,
    text: string | undefined,
  ): Promise<Response | undefined> {
    if ((passedOn?.hops ?? 0) > MAX_HOPS) return refuse(unreachable());
    const lateMs = performance.now() + OWNER_WAIT_MS;
    const about = { ...passedOn, ...(text === undefined ? {} : { text }) };
    if (outgoing.req.method === 'GET') this.#streams.add(outgoing);
    try {
      for (;;) {
        const owner = await find();
        if (owner === undefined) return undefined;
        const outcome = await owner.forward(outgoing.req, outgoing, principal, view, about);
        if (outcome === 'answered' || outgoing.destroyed) return RESPONSE_ALREADY_SENT;
        if (performance.now() > lateMs) return refuse(unreachable());
        await sleep(OWNER_RETRY_MS);
      }
    } catch (thrown) {
      if (thrown instanceof GatewayError) return refuse(thrown);
      throw thrown;
    } finally {
      this.#streams.delete(outgoing);
    }
  }

  /** Ends the event streams of clients that come from other processes. The clients open them again. */
  endStreams(): void {
    for (const outgoing of this.#streams) {
      if (!outgoing.headersSent || outgoing.writableEnded) continue;
      // An event of the other process may come just now.
      outgoing.on('error', () => undefined);
      outgoing.end();
    }
  }
}

function unreachable(): GatewayError {
  const message = 'the process that has this session cannot be reached; send the request again';
  return new GatewayError('store-unavailable', { message });
}
