import type { Request } from '../../protocol/jsonrpc.ts';
import type { Verdict } from '../exchange/gate.ts';

/** The reasons why the access policy or a decision point has denied requests, for their log lines. Clients never see them. */
export class Denials {
  readonly #reasons = new WeakMap<Request, string>();

  readonly onVerdict = ({ request, effect, why }: Verdict): void => {
    if (request !== undefined && effect === 'deny') this.#reasons.set(request, why);
  };

  /** Returns the reason; undefined if nothing has denied the request. */
  reasonFor(request: Request): string | undefined {
    return this.#reasons.get(request);
  }
}
