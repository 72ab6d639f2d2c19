import type { LogLevel } from '../../config/values/config.ts';
import type { ConfigControl } from '../config-control.ts';
import type {
  RestartAnswer,
  CallsAnswer,
  CatalogAnswer,
  ClientsAnswer,
  DoneAnswer,
  ExplainAnswer,
  RefusalCode,
  SessionsAnswer,
  StatusAnswer,
  StreamsAnswer,
  ToolCallAnswer,
  UpstreamsAnswer,
} from './answers.ts';

/** A request of an operator that cannot be carried out. The message says why and what to do. */
export class AdminError extends Error {
  override readonly name = 'AdminError';
  readonly code: RefusalCode;

  constructor(code: RefusalCode, message: string) {
    super(message);
    this.code = code;
  }
}

/** The tool call that an operator asks for. */
export interface OperatorCall {
  readonly tool: string;
  readonly arguments: Readonly<Record<string, unknown>>;
  /** The endpoint: empty for the merged one. */
  readonly view: string;
}

/** A question of an operator: may this principal use an item? */
export interface ExplainRequest {
  /** The description of the principal; see `readPrincipal` in `compose/admin/read-principal.ts`. */
  readonly as: unknown;
  readonly view: string;
  readonly kind: 'tool' | 'prompt' | 'resource';
  /** The published name or URI. */
  readonly name: string;
  /** Undefined asks about all calls: then the answer may depend on the arguments. */
  readonly args: Readonly<Record<string, unknown>> | undefined;
}

/** Selects a part of a catalog. */
export interface CatalogQuery {
  readonly view: string;
  readonly era: 'legacy' | 'modern';
  /** Id of the only upstream to show; undefined for all. */
  readonly upstream: string | undefined;
}

type Later<Value> = Value | Promise<Value>;

/**
 * The running gateway, as the admin API sees it. Every answer is read afresh. Operations that change something get the name of the operator
 * who asks, for the logs of other replicas.
 */
export interface AdminPort {
  status(): Later<StatusAnswer>;
  upstreams(): Promise<UpstreamsAnswer>;
  /** @throws {AdminError} `not-found` */
  catalog(query: CatalogQuery): Later<CatalogAnswer>;
  /** Explains what the access policy decides. @throws {AdminError} `not-found`, `invalid-request` */
  explain(request: ExplainRequest): Later<ExplainAnswer>;
  clients(): Later<ClientsAnswer>;
  sessions(): Later<SessionsAnswer>;
  streams(): Later<StreamsAnswer>;
  calls(): Later<CallsAnswer>;
  /**
   * Opens new connections to an upstream and closes the old ones, after their calls or after `drainMs`. Puts an upstream
   * into service again if an operator has disabled it. Resolves with a sentence, and whether it runs.
   *
   * @throws {AdminError} `not-found`
   */
  restartUpstream(id: string, drainMs: number, operator?: string): Promise<RestartAnswer>;
  /**
   * Takes an upstream out of service: refuses new calls with a reason, and closes its connections after their calls or after
   * `drainMs`. Resolves with a sentence.
   *
   * @throws {AdminError} `not-found`
   */
  disableUpstream(id: string, drainMs: number, operator?: string): Promise<DoneAnswer>;
  /** Ends the session with this digest for good. Resolves with a sentence. @throws {AdminError} `not-found` */
  endSession(digest: string, operator?: string): Promise<string>;
  /**
   * Adds a key, which seals all later handles. Older handles stay valid for `graceMs`, by default for the longest validity of a session;
   * with 0 all sessions end now. Resolves with a sentence.
   */
  rotateKeys(graceMs: number | undefined): Promise<string>;
  /** Sets whether `/readyz` asks load balancers to send no new clients. Returns a sentence. */
  setDraining(isDraining: boolean): string;
  readonly logLevel: LogLevel;
  /** Sets the level. Returns the replicas that have not confirmed it. */
  setLogLevel(level: LogLevel, operator?: string): Later<readonly string[]>;
  callTool(operator: string, call: OperatorCall, signal: AbortSignal): Promise<ToolCallAnswer>;
  /** The latest lines of the log, as JSON lines. */
  recentLog(): readonly string[];
  /**
   * Passes each new text of the log to `receive`. Returns a function that ends it.
   *
   * @throws {AdminError} `overloaded` if too many operators follow the log.
   */
  followLog(receive: (text: string) => void): () => void;
  readonly config: ConfigControl;
}
