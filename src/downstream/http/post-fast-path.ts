import type { ServerResponse } from 'node:http';
import type { Front } from '../../gateway/front.ts';
import type { BodyBudget } from '../memory/body-budget.ts';
import type { Admission, Admitted } from '../admission/admission.ts';
import type { HeaderReusingRequest } from './header-reusing-request.ts';
import type { McpEndpoint } from '../mcp.ts';
import { KnownHeaders } from './known-headers.ts';
import { receiveText } from '../admission/posted-text.ts';
import { writeResponse } from '../admission/refusal.ts';

export interface PostFastPathParts {
  readonly front: Front;
  readonly admission: Admission;
  readonly mcp: McpEndpoint;
  readonly bodyBytes: number;
  readonly bodies: BodyBudget;
  /** Returns the response to a request whose handling threw. */
  readonly onFailure: (thrown: unknown, outgoing: ServerResponse) => Response;
}

/** A request and its response. */
export interface IncomingPost {
  readonly incoming: HeaderReusingRequest;
  readonly outgoing: ServerResponse;
}

const MERGED = '/mcp';
const BELOW = '/mcp/';

/** Returns the view of a plain target, or undefined if the router must handle it. */
function viewOf(target: string | undefined): string | undefined {
  if (target === MERGED) return '';
  return target !== undefined && target.length > BELOW.length && target.startsWith(BELOW)
    ? target.slice(BELOW.length)
    : undefined;
}

/**
 * Handles nearly every request: a POST to an endpoint by a known principal. Recognises it before the router, and leaves
 * every other request to the router, untouched.
 */
export class PostFastPath {
  readonly #parts: PostFastPathParts;

  constructor(parts: PostFastPathParts) {
    this.#parts = parts;
  }

  /** Handles a request. Returns false if the router must handle it. */
  take(env: IncomingPost): boolean {
    const { incoming } = env;
    const { front, admission, bodyBytes, bodies } = this.#parts;
    const { rawHeaders } = incoming;
    const view = incoming.method === 'POST' ? viewOf(incoming.url) : undefined;
    if (view === undefined || !front.hasView(view)) return false;
    const head = this.#headOf(incoming);
    const principal = head && admission.principalOf(head.headers, view);
    if (head === undefined || principal === undefined) return false;
    const admitted = { headers: head.headers, principal };
    const limits = { limitBytes: bodyBytes, budget: bodies, principal: principal.key };
    receiveText(env, head.lengthIn(rawHeaders), limits, (text) => {
      if (typeof text === 'string') this.#answer(env, view, admitted, head, text);
      else writeResponse(env.outgoing, text);
    });
    return true;
  }

  #headOf(incoming: HeaderReusingRequest): KnownHeaders | undefined {
    const { admission } = this.#parts;
    if (incoming.head === undefined) {
      const headers = admission.admitPlain(incoming.rawHeaders);
      incoming.head = headers && KnownHeaders.of(incoming, headers);
    }
    return incoming.head;
  }

  #answer(env: IncomingPost, view: string, admitted: Admitted, head: KnownHeaders, text: string): void {
    const { mcp, onFailure } = this.#parts;
    const { incoming, outgoing } = env;
    try {
      const lookup = head.lookupIn(incoming.rawHeaders);
      const response = mcp.post(outgoing, view, admitted, head.shape, lookup, text);
      if (!(response instanceof Promise)) writeResponse(outgoing, response);
      else {
        response.then(
          (given) => writeResponse(outgoing, given),
          (thrown: unknown) => writeResponse(outgoing, onFailure(thrown, outgoing)),
        );
      }
    } catch (thrown) {
      writeResponse(outgoing, onFailure(thrown, outgoing));
    }
  }
}
