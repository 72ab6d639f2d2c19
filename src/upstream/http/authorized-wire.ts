import {
  NO_CONTROL,
  type ResponseHeaders,
  type Wire,
  type WireController,
  type WireHandler,
  type WireRequest,
} from '../../http1/wire.ts';
import { toGatewayError } from '../../errors.ts';
import { missingScopes } from './http-headers.ts';
import type { Credential, RequestCredentials } from './request-credentials.ts';

/**
 * A wire whose requests carry credentials. Transports send everything over a wire, so no request of any method can miss them.
 *
 * A request that is refused with 401, or with 403 because scopes are missing, has not run. It is sent once more with another credential.
 */
export class AuthorizedWire implements Wire {
  readonly #wire: Wire;
  readonly #credentials: RequestCredentials;
  readonly #audience: string;

  /** @param audience of all requests. */
  constructor(wire: Wire, credentials: RequestCredentials, audience: string) {
    this.#wire = wire;
    this.#credentials = credentials;
    this.#audience = audience;
  }

  dispatch(request: WireRequest, handler: WireHandler): void {
    const credential = this.#credentials.current(this.#audience);
    if (credential !== undefined) {
      this.#attempt(request, credential, handler);
      return;
    }
    this.#credentials.acquire(this.#audience).then(
      (acquired) => this.#attempt(request, acquired, handler),
      (thrown: unknown) => handler.onResponseError(NO_CONTROL, toGatewayError(thrown)),
    );
  }

  destroy(): Promise<void> {
    return this.#wire.destroy();
  }

  #attempt(request: WireRequest, credential: Credential, handler: WireHandler): void {
    const onRefused = (refusal: Refusal): void => this.#resend(request, credential, handler, refusal);
    this.#send(request, credential, new Attempt(handler, onRefused));
  }

  #send(request: WireRequest, credential: Credential, handler: WireHandler): void {
    const { headers } = credential;
    const head = request.head.with(headers, new Set(headers.filter((_, at) => at % 2 === 0)));
    this.#wire.dispatch({ ...request, head }, handler);
  }

  /** Sends a refused request once more, or delivers the refusal. */
  #resend(request: WireRequest, refused: Credential, handler: WireHandler, refusal: Refusal): void {
    const { status, headers, scopes } = refusal;
    const other =
      status === UNAUTHORIZED
        ? this.#credentials.renew(this.#audience, refused)
        : this.#credentials.extend(this.#audience, refused, scopes);
    other.then(
      (credential) => {
        if (credential !== undefined) {
          this.#send(request, credential, handler);
          return;
        }
        // The body of the refusal is about our credentials, and nobody reads it.
        handler.onResponseStart(NO_CONTROL, status, headers);
        handler.onResponseEnd(NO_CONTROL);
      },
      (thrown: unknown) => handler.onResponseError(NO_CONTROL, toGatewayError(thrown)),
    );
  }
}

const UNAUTHORIZED = 401;
const FORBIDDEN = 403;

interface Refusal {
  readonly status: number;
  readonly headers: ResponseHeaders;
  /** The scopes that the credential lacks. */
  readonly scopes: readonly string[];
}

/** Returns the refusal that a response is, after which another credential may help. */
function refusalOf(status: number, headers: ResponseHeaders): Refusal | undefined {
  if (status === UNAUTHORIZED) return { status, headers, scopes: [] };
  if (status !== FORBIDDEN) return undefined;
  const scopes = (missingScopes(headers) ?? '').split(' ').filter((scope) => scope !== '');
  return scopes.length === 0 ? undefined : { status, headers, scopes };
}

/** The first sending of a request. Keeps a refusal from its handler, which sees the response to the second sending only. */
class Attempt implements WireHandler {
  readonly #handler: WireHandler;
  readonly #onRefused: (refusal: Refusal) => void;
  #isRefused = false;

  constructor(handler: WireHandler, onRefused: (refusal: Refusal) => void) {
    this.#handler = handler;
    this.#onRefused = onRefused;
  }

  onRequestStart(controller: WireController): void {
    this.#handler.onRequestStart(controller);
  }

  onResponseStart(controller: WireController, status: number, headers: ResponseHeaders): void {
    const refusal = refusalOf(status, headers);
    if (refusal === undefined) {
      this.#handler.onResponseStart(controller, status, headers);
      return;
    }
    this.#isRefused = true;
    controller.abort(new Error(`refused with ${status}`));
    this.#onRefused(refusal);
  }

  onResponseData(controller: WireController, chunk: Buffer): void {
    if (!this.#isRefused) this.#handler.onResponseData(controller, chunk);
  }

  onResponseEnd(controller: WireController): void {
    if (!this.#isRefused) this.#handler.onResponseEnd(controller);
  }

  onResponseError(controller: WireController, thrown: Error): void {
    if (!this.#isRefused) this.#handler.onResponseError(controller, thrown);
  }
}
