import type { HttpBindings } from '@hono/node-server';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import type { Front } from '../gateway/front.ts';
import { postShape, type Shape } from './accept.ts';
import type { Admission, Admitted } from './admission.ts';
import type { McpEndpoint } from './mcp.ts';
import { receiveText, refuseMedia } from './posted-text.ts';
import { writeResponse } from './refusal.ts';

export interface PostsParts {
  readonly front: Front;
  readonly admission: Admission;
  readonly mcp: McpEndpoint;
  readonly bodyBytes: number;
  /** What happens to a request that went wrong inside. */
  readonly failed: (error: unknown, env: HttpBindings) => Response;
}

const MERGED = '/mcp';
const BELOW = '/mcp/';

/** The view a target names letter for letter; undefined for everything that takes a router to understand. */
function viewOf(target: string | undefined): string | undefined {
  if (target === MERGED) return '';
  return target !== undefined && target.length > BELOW.length && target.startsWith(BELOW)
    ? target.slice(BELOW.length)
    : undefined;
}

/**
 * The way nearly every request takes: a POST to an endpoint of ours, by somebody who is known. It is recognised before it reaches
 * the router, and all that is unusual about it is left to the router, untouched.
 */
export class Posts {
  readonly #parts: PostsParts;

  constructor(parts: PostsParts) {
    this.#parts = parts;
  }

  /** False where the request is for the router. */
  take(env: HttpBindings): boolean {
    const { incoming } = env;
    const { front, admission, bodyBytes } = this.#parts;
    const view = incoming.method === 'POST' ? viewOf(incoming.url) : undefined;
    if (view === undefined || !front.hasView(view)) return false;
    const admitted = admission.known(incoming, view);
    if (admitted === undefined || refuseMedia(admitted.headers) !== undefined) return false;
    const shape = postShape(admitted.headers.accept);
    if (shape === undefined) return false;
    receiveText(env, admitted.headers, bodyBytes, (text) => void this.#answer(env, view, admitted, shape, text));
    return true;
  }

  async #answer(
    env: HttpBindings,
    view: string,
    admitted: Admitted,
    shape: Shape,
    text: string | Response,
  ): Promise<void> {
    const { mcp, failed } = this.#parts;
    const { outgoing } = env;
    let response: Response;
    try {
      response = typeof text === 'string' ? await mcp.take(outgoing, view, admitted, shape, text) : text;
    } catch (thrown) {
      response = failed(thrown, env);
    }
    if (response !== RESPONSE_ALREADY_SENT) await writeResponse(outgoing, response);
  }
}
