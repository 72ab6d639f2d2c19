import { GatewayError } from '../../errors.ts';
import type { RawObject } from '../../json/json.ts';
import { withoutEnvelope } from '../../protocol/envelope.ts';
import { withoutRetry } from '../../protocol/input-required.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import {
  type Era,
  featuresOf,
  isModernRevision,
  type LegacyRevision,
  type Revision,
} from '../../protocol/revisions.ts';
import { declaresTasks, TASKS_EXTENSION } from '../../protocol/tasks.ts';
import { downgradeResult, downgradeServerRequest } from '../../protocol/translation/downgrade.ts';
import { downgradeInputRequest } from '../../protocol/translation/downgrade-modern.ts';
import { type Stamp, upgradeError, upgradeResult } from '../../protocol/translation/upgrade.ts';

/**
 * The part of a client in a task that an upstream creates without being asked for one. `polls`: the client gets the task
 * and polls it. `waits`: the gateway polls, and the client gets the outcome. `none`: the upstream must not create one.
 */
export type TaskRole = 'polls' | 'waits' | 'none';

/** The rules by which the gateway answers and asks clients of one revision. */
export interface ClientDialect {
  readonly era: Era;
  /** True if each request describes its client, and so can declare what the last one did not. */
  readonly describesClient: boolean;
  /** True if the gateway puts questions into an answer, and the client retries with its input. Else it asks during the call. */
  readonly asksInAnswers: boolean;
  /** True if the error differs for a resource or prompt that no list has. */
  readonly marksUnlistedItems: boolean;
  /** True if the client accepts notifications other than those of its requests, its subscriptions and its tasks. */
  readonly acceptsOtherNotifications: boolean;
  /** Returns the params of a request without the members that only its era has: the envelope, and those of a retry. */
  withoutEnvelope(params: RawObject): RawObject;
  taskRole(declared: RawObject): TaskRole;
  /**
   * Checks that a client may call this task method.
   *
   * @param declared capabilities of the client.
   * @param offered capabilities of the endpoint.
   * @throws {GatewayError} `method-not-found`, `missing-capability`
   */
  assertTaskMethod(method: string, declared: RawObject, offered: RawObject): void;
  /** Returns the result of an upstream without members and content that the client's revision does not have. */
  downgradeResult(method: string, result: string): string;
  /** Returns a failure of the gateway as the client reads it. */
  failure(answer: Answer): Answer;
  /** Translates the params of a server request. Returns undefined if the client's revision cannot express it. */
  downgradeServerRequest(method: string, params: RawObject): RawObject | undefined;
  /** Translates the params of an input request. Returns undefined if the client's revision cannot express it. */
  downgradeInputRequest(method: string, params: RawObject, elicitationId: string): RawObject | undefined;
  /** Returns a result of the gateway itself with the members that the client's revision requires. */
  stampResult(method: string, result: string, stamp: Stamp): string;
}

/** @throws {GatewayError} `missing-capability`: the client does not declare the tasks extension. */
export function assertDeclaresTasks(declared: RawObject, method: string): void {
  if (declaresTasks(declared)) return;
  throw new GatewayError('missing-capability', {
    message: `${method} is for clients that declare ${TASKS_EXTENSION}`,
    data: { requiredCapabilities: { extensions: { [TASKS_EXTENSION]: {} } } },
  });
}

function assertOneOf(methods: ReadonlySet<string>, method: string): void {
  if (!methods.has(method)) throw new GatewayError('method-not-found', { message: method });
}

const NO_METHODS: ReadonlySet<string> = new Set();
const CORE_METHODS: ReadonlySet<string> = new Set(['tasks/get', 'tasks/result', 'tasks/list', 'tasks/cancel']);
const EXTENSION_METHODS: ReadonlySet<string> = new Set(['tasks/get', 'tasks/update', 'tasks/cancel']);

function legacy(revision: LegacyRevision): ClientDialect {
  const taskMethods = featuresOf(revision).coreTasks ? CORE_METHODS : NO_METHODS;
  return {
    era: 'legacy',
    describesClient: false,
    asksInAnswers: false,
    marksUnlistedItems: false,
    acceptsOtherNotifications: true,
    withoutEnvelope: (params) => params,
    taskRole: () => 'waits',
    assertTaskMethod: (method, _declared, offered) =>
      assertOneOf(offered.raw('tasks') === undefined ? NO_METHODS : taskMethods, method),
    downgradeResult: (method, result) => downgradeResult(method, revision, result),
    failure: (answer) => answer,
    downgradeServerRequest: (method, params) => downgradeServerRequest(method, revision, params),
    downgradeInputRequest: (method, params, elicitationId) =>
      downgradeInputRequest(method, revision, params, elicitationId),
    stampResult: (_method, result) => result,
  };
}

const MODERN_CLIENT: ClientDialect = {
  era: 'modern',
  describesClient: true,
  asksInAnswers: true,
  marksUnlistedItems: true,
  // A modern client learns of a completed URL elicitation from the answer to its call.
  acceptsOtherNotifications: false,
  withoutEnvelope: (params) => withoutRetry(withoutEnvelope(params)),
  taskRole: (declared) => (declaresTasks(declared) ? 'polls' : 'none'),
  assertTaskMethod: (method, declared) => {
    assertOneOf(EXTENSION_METHODS, method);
    assertDeclaresTasks(declared, method);
  },
  downgradeResult: (_method, result) => result,
  failure: (answer) => (answer.kind === 'error' ? { ...answer, error: upgradeError(answer.error) } : answer),
  downgradeServerRequest: (_method, params) => params,
  downgradeInputRequest: (_method, params) => params,
  stampResult: upgradeResult,
};

const LEGACY_CLIENTS: Readonly<Record<LegacyRevision, ClientDialect>> = {
  '2024-11-05': legacy('2024-11-05'),
  '2025-03-26': legacy('2025-03-26'),
  '2025-06-18': legacy('2025-06-18'),
  '2025-11-25': legacy('2025-11-25'),
};

/** Returns the dialect of clients of a revision: there are two implementations, one for each era. */
export function clientDialect(revision: Revision): ClientDialect {
  return isModernRevision(revision) ? MODERN_CLIENT : LEGACY_CLIENTS[revision];
}
