/** The decision about a request, and the rule that made it. */
export interface AuditVerdict {
  /** `denied`: by an access rule or a decision point. `refused`: by credentials, a limit, or because it could not be recorded or decided about. */
  readonly decision: 'allowed' | 'denied' | 'refused';
  /** Undefined if no rule of the config was asked. */
  readonly rule?: { readonly name: string; readonly file?: string; readonly line?: number } | undefined;
  /** The reason of a refusal, or the scopes that would change a denial. */
  readonly reason?: string | undefined;
}

/**
 * `started`, `rotated`: begin a file or continue it. `stopped`: the last record of a process. `dropped`: records are missing here.
 * `begun`: a call that is about to be sent. `request`: an answered request. `notification`, `response`: other messages of clients.
 * `refused`: an HTTP request that reached no endpoint. `session`: opened or ended. `reload`, `operator`: acts of operators.
 * `worker`: a worker has died.
 */
export type AuditKind =
  | 'started'
  | 'rotated'
  | 'stopped'
  | 'dropped'
  | 'begun'
  | 'request'
  | 'notification'
  | 'response'
  | 'refused'
  | 'session'
  | 'reload'
  | 'operator'
  | 'worker';

/** `input-required`: the call waits for its client. `task`: it goes on as a task. */
export type AuditOutcome = 'ok' | 'tool-error' | 'error' | 'cancelled' | 'input-required' | 'task';

/** One record, in the order of its members. No member holds a credential, a result, or the message of an error. */
export interface AuditEvent extends Partial<AuditVerdict> {
  readonly kind: AuditKind;
  /** The change of a session, of the config or of a worker. */
  readonly event?: string | undefined;
  /** Stable key of the principal. */
  readonly principal?: string | undefined;
  /** The principal for people. */
  readonly label?: string | undefined;
  readonly client?: string | undefined;
  readonly clientVersion?: string | undefined;
  /** Path of the endpoint. */
  readonly endpoint?: string | undefined;
  readonly session?: string | undefined;
  readonly upstream?: string | undefined;
  readonly method?: string | undefined;
  /** Published name of the tool or prompt, the URI of a resource, or the id of a task. */
  readonly name?: string | undefined;
  /** The upstream's own name for the tool. */
  readonly upstreamName?: string | undefined;
  /** The request id as the client has sent it, as JSON text. */
  readonly requestId?: string | undefined;
  readonly outcome?: AuditOutcome | undefined;
  readonly error?: string | undefined;
  /** The code of a JSON-RPC error. */
  readonly code?: number | undefined;
  /** The HTTP status of a refusal. */
  readonly status?: number | undefined;
  readonly executed?: 'no' | 'unknown' | 'yes' | undefined;
  /** Number of the `begun` record of the same request. */
  readonly begun?: number | undefined;
  /** True if the request continues a call. */
  readonly isRetry?: boolean | undefined;
  /** True if the answer is that of an earlier call with the same idempotency key. */
  readonly isReplay?: boolean | undefined;
  /** The number of replicas that have passed the request on. */
  readonly hops?: number | undefined;
  /** Refusals that have no record of their own. */
  readonly suppressed?: number | undefined;
  /** Network address of the sender. */
  readonly address?: string | undefined;
  readonly ms?: number | undefined;
  readonly bytesIn?: number | undefined;
  readonly bytesOut?: number | undefined;
  readonly traceId?: string | undefined;
  readonly argumentsDigest?: string | undefined;
  /** JSON text without secrets. It is the last member, and cut if the record would be too long. */
  readonly argumentsText?: string | undefined;
}
