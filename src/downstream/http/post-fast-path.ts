import type { ServerResponse } from 'node:http';
import type { HttpBindings } from '@hono/node-server';
import type { Front } from '../../gateway/front.ts';
import type { BodyBudget } from '../memory/body-budget.ts';
import type { Admission, Admitted } from '../admission/admission.ts';
import type { McpEndpoint } from '../mcp.ts';
import { postShape, type Shape } from '../admission/accept.ts';
import { headerLookup } from '../modern-envelope.ts';
import { receiveText, refuseMedia } from '../admission/posted-text.ts';
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
  take(env: HttpBindings): boolean {
    const { incoming } = env;
    const { front, admission, bodyBytes, bodies } = this.#parts;
    const view = incoming.method === 'POST' ? viewOf(incoming.url) : undefined;
    if (view === undefined || !front.hasView(view)) return false;
    const headers = admission.admitPlain(incoming);
    if (headers === undefined || refuseMedia(headers) !== undefined) return false;
    // The session may be in another process.
    if (headers.sessionId !== undefined && !front.hasSession(headers.sessionId)) return false;
    const shape = postShape(headers.accept);
    const principal = admission.principalOf(headers, view);
    if (shape === undefined || principal === undefined) return false;
    const limits = { limitBytes: bodyBytes, budget: bodies, principal: principal.key };
    receiveText(env, headers.contentLength, limits, (text) => {
      if (typeof text === 'string') void this.#answer(env, view, { headers, principal }, shape, text);
      else writeResponse(env.outgoing, text);
    });
    return true;
  }

  async #answer(env: HttpBindings, view: string, admitted: Admitted, shape: Shape, text: string): Promise<void> {
    const { mcp, onFailure } = this.#parts;
    const { incoming, outgoing } = env;
    try {
      const lookup = headerLookup(incoming.headers);
      writeResponse(outgoing, await mcp.post(outgoing, view, admitted, shape, lookup, text));
    } catch (thrown) {
      writeResponse(outgoing, onFailure(thrown, outgoing));
    }
  }
}
