import type { HttpBindings } from '@hono/node-server';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { Front } from '../../gateway/front/front.ts';
import type { Admission } from '../admission/admission.ts';
import type { McpEndpoint } from '../mcp.ts';
import { postForm } from '../admission/accept.ts';
import { receiveText, refuseMedia } from '../admission/posted-text.ts';
import { writeResponse } from '../admission/refusal.ts';

export interface PostFastPathParts {
  readonly front: Front;
  readonly admission: Admission;
  readonly mcp: McpEndpoint;
  readonly bodyBytes: number;
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

/**
 * Returns the function that handles nearly every request: a POST by a known principal. It leaves every other one to the router, untouched, and
 * returns false.
 */
export function postFastPath(parts: PostFastPathParts): (env: HttpBindings) => boolean {
  const { front, admission, mcp, bodyBytes, onFailure } = parts;

  /** Writes a response, or that of a failure. Never rejects. */
  async function write(outgoing: ClientResponse, answering: Promise<Response>): Promise<void> {
    try {
      writeResponse(outgoing, await answering);
    } catch (thrown) {
      writeResponse(outgoing, onFailure(thrown, outgoing));
    }
  }

  return (env) => {
    const { incoming, outgoing } = env;
    const view = incoming.method === 'POST' ? viewOf(incoming.url) : undefined;
    if (view === undefined || !front.hasView(view)) return false;
    const headers = admission.admitPlain(incoming);
    if (headers === undefined) return false;
    const principal = admission.principalOf(headers, view, incoming.socket);
    if (principal === undefined || !front.hasView(view, principal)) return false;
    const admitted = { headers, principal };
    if (headers.sessionId !== undefined && !front.hasSession(headers.sessionId)) {
      // The session may be in another process, so that the body is not read.
      void write(outgoing, mcp.answer(env, view, admitted, admission.endpoint(view)));
      return true;
    }
    const form = postForm(headers.accept);
    if (form === undefined || refuseMedia(headers) !== undefined) return false;
    const limits = { limitBytes: bodyBytes, budget: mcp.memory.bodies, principal: principal.key };
    receiveText(env, headers.contentLength, limits, (text) => {
      if (typeof text !== 'string') writeResponse(outgoing, text);
      else void write(outgoing, mcp.post(outgoing, view, admitted, form, text));
    });
    return true;
  };
}
