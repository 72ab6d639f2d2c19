import type { HttpBindings } from '@hono/node-server';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { Front } from '../../gateway/front/front.ts';
import type { BodyBudget } from '../memory/body-budget.ts';
import type { Admission, Admitted } from '../admission/admission.ts';
import type { McpEndpoint } from '../mcp.ts';
import { postForm, type AnswerForm } from '../admission/accept.ts';
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
  readonly onFailure: (thrown: unknown, outgoing: ClientResponse) => Response;
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

/** Handles nearly every request: a POST by a known principal. Leaves every other one to the router, untouched. */
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
    if (headers === undefined) return false;
    const principal = admission.principalOf(headers, view, incoming.socket);
    if (principal === undefined || !front.hasView(view, principal)) return false;
    if (headers.sessionId !== undefined && !front.hasSession(headers.sessionId)) {
      // The session may be in another process.
      void this.#answerAnywhere(env, view, { headers, principal });
      return true;
    }
    const form = postForm(headers.accept);
    if (form === undefined || refuseMedia(headers) !== undefined) return false;
    const limits = { limitBytes: bodyBytes, budget: bodies, principal: principal.key };
    receiveText(env, headers.contentLength, limits, (text) => {
      if (typeof text === 'string') void this.#answer(env, view, { headers, principal }, form, text);
      else writeResponse(env.outgoing, text);
    });
    return true;
  }

  /** Answers a request whose body is not read, because another process may have its session. */
  async #answerAnywhere(env: HttpBindings, view: string, admitted: Admitted): Promise<void> {
    const { admission, mcp, onFailure } = this.#parts;
    const { outgoing } = env;
    try {
      writeResponse(outgoing, await mcp.answer(env, view, admitted, admission.endpoint(view)));
    } catch (thrown) {
      writeResponse(outgoing, onFailure(thrown, outgoing));
    }
  }

  async #answer(env: HttpBindings, view: string, admitted: Admitted, form: AnswerForm, text: string): Promise<void> {
    const { mcp, onFailure } = this.#parts;
    const { incoming, outgoing } = env;
    try {
      const lookup = headerLookup(incoming.headers);
      writeResponse(outgoing, await mcp.post(outgoing, view, admitted, form, lookup, text));
    } catch (thrown) {
      writeResponse(outgoing, onFailure(thrown, outgoing));
    }
  }
}
