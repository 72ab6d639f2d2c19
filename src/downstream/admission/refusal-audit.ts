import type { AuditEvent } from '../../audit/audit-event.ts';
import type { AuditTrail } from '../../audit/audit-trail.ts';
import type { GatewayError } from '../../errors.ts';
import type { Principal } from '../../policy/principal.ts';
import { LIMITS, type LimitName } from '../../limits.ts';
import { endpointPath } from '../../endpoint-path.ts';

const WINDOW_MS = 1_000;

/** An HTTP request that the edge refuses. */
export interface RefusedRequest {
  readonly error: GatewayError;
  /** True if the access policy hides the endpoint. Default: false. */
  readonly isDenied?: boolean;
  /** A few words of ours, never text of a client. */
  readonly reason?: string | undefined;
  /** Undefined if the endpoint is not known. */
  readonly view?: string | undefined;
  readonly principal?: Principal | undefined;
  /** Network address of the sender. */
  readonly address?: string | undefined;
}

/**
 * Records refused HTTP requests in the audit log. Anyone can send such requests, so the records of each second are bounded. The last one of
 * a second says how many have none.
 */
export class RefusalAudit {
  readonly #trail: Pick<AuditTrail, 'record'>;
  readonly #onLimit: (limit: LimitName) => void;
  #windowMs = Number.NEGATIVE_INFINITY;
  #count = 0;
  #suppressed = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(trail: Pick<AuditTrail, 'record'>, onLimit: (limit: LimitName) => void) {
    this.#trail = trail;
    this.#onLimit = onLimit;
  }

  /** Records a refusal. @param nowMs monotonic. */
  record(
    { error, isDenied = false, reason, view, principal, address }: RefusedRequest,
    nowMs = performance.now(),
  ): void {
    if (nowMs - this.#windowMs >= WINDOW_MS) {
      this.#windowMs = nowMs;
      this.#count = 0;
    }
    if (this.#count >= LIMITS.auditedRefusalsPerSecond) {
      this.#suppress();
      return;
    }
    this.#count++;
    const endpoint = view === undefined ? undefined : endpointPath(view);
    const { key, label } = principal ?? {};
    const event: AuditEvent = {
      kind: 'refused',
      principal: key,
      label,
      endpoint,
      decision: isDenied ? 'denied' : 'refused',
      outcome: 'error',
      error: error.code,
      code: error.row.rpc,
      status: error.row.http,
      reason,
      executed: 'no',
      address,
    };
    this.#trail.record(event);
  }

  #suppress(): void {
    if (this.#suppressed++ > 0) return;
    this.#onLimit('auditedRefusalsPerSecond');
    this.#timer = setTimeout(() => this.flush(), WINDOW_MS).unref();
  }

  /** Records now how many refusals have no record. Call it before the end of the trail. */
  flush(): void {
    clearTimeout(this.#timer);
    if (this.#suppressed === 0) return;
    this.#trail.record({ kind: 'refused', decision: 'refused', executed: 'no', suppressed: this.#suppressed });
    this.#suppressed = 0;
  }
}
