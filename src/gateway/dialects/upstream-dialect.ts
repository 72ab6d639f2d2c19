import type { RawObject } from '../../json/json.ts';
import type { Answer } from '../../protocol/jsonrpc.ts';
import type { Era } from '../../protocol/revisions.ts';
import type { Severity } from '../../protocol/severity.ts';
import { isTerminal, taskError, withTasks } from '../../protocol/tasks.ts';
import type { ClientDialect } from './client-dialect.ts';
import { getOrMake } from '../../map-entries.ts';

/** The parts of a client that a request to an upstream declares. */
interface DeclaringClient {
  readonly caller: { readonly capabilities: RawObject };
  /** The capabilities that upstreams may use. */
  readonly clientCapabilities: RawObject;
  readonly logLevel: Severity | undefined;
  readonly dialect: ClientDialect;
}

/** The part of an upstream that decides which client capabilities it may use. */
interface CapabilityFilter {
  usableCapabilities(capabilities: RawObject): RawObject;
}

/** The next step of a call that waits for the end of a task. `fetch`: send `tasks/result`, which ends with the result. */
export type TaskStep = { readonly kind: 'poll' | 'ask' | 'fetch' } | { readonly kind: 'end'; readonly answer: Answer };

/** The rules by which the gateway asks upstreams of one era. */
export interface UpstreamDialect {
  /** True if a connection has the capabilities, log level and roots of its client. Else each request carries them. */
  readonly keepsClientState: boolean;
  /** True if the upstream has the tasks of 2025-11-25 instead of the extension. */
  readonly hasCoreTasks: boolean;
  /** True if the upstream sends its server requests in answers, and never during a call. */
  readonly asksInAnswers: boolean;
  /** True if results of reads say how long they may be cached. */
  readonly allowsCaching: boolean;
  /** Returns the client capabilities for the envelope of a request; undefined if there is no envelope. */
  envelopeCapabilities(upstream: CapabilityFilter, client: DeclaringClient): RawObject | undefined;
  /** Returns the log level for the envelope of a request; undefined for none. */
  envelopeLogLevel(client: DeclaringClient): Severity | undefined;
  /** Returns whether an upstream that declares these `resources` capabilities gets subscriptions. */
  acceptsSubscriptions(resources: RawObject): boolean;
  /** Decides the next step by the status of a task that is not cancelled. */
  taskStep(state: RawObject): TaskStep;
}

const LEGACY_UPSTREAM: UpstreamDialect = {
  keepsClientState: true,
  hasCoreTasks: true,
  asksInAnswers: false,
  allowsCaching: false,
  envelopeCapabilities: () => undefined,
  envelopeLogLevel: () => undefined,
  // Servers of the Python SDK 1.x declare `subscribe: false` and still support subscriptions, and other servers refuse by
  // themselves.
  acceptsSubscriptions: () => true,
  taskStep: (state) => {
    const status = state.string('status');
    // The upstream asks its questions while its result is requested.
    return { kind: isTerminal(status) || status === 'input_required' ? 'fetch' : 'poll' };
  },
};

const MODERN_UPSTREAM: UpstreamDialect = {
  keepsClientState: false,
  hasCoreTasks: false,
  asksInAnswers: true,
  allowsCaching: true,
  envelopeCapabilities: (upstream, client) => upstream.usableCapabilities(modernCapabilities(client)),
  envelopeLogLevel: ({ logLevel }) => logLevel,
  acceptsSubscriptions: (resources) => resources.raw('subscribe') === 'true',
  taskStep: (state) => {
    switch (state.string('status')) {
      case 'completed':
        return { kind: 'end', answer: { kind: 'result', result: state.raw('result') ?? '{}' } };
      case 'failed':
        return { kind: 'end', answer: { kind: 'error', error: taskError(state) } };
      case 'input_required':
        return { kind: 'ask' };
      case undefined:
      default:
        return { kind: 'poll' };
    }
  },
};

export const UPSTREAM_DIALECTS: Readonly<Record<Era, UpstreamDialect>> = {
  legacy: LEGACY_UPSTREAM,
  modern: MODERN_UPSTREAM,
};

/** Results of {@link modernCapabilities}, by forwardable capabilities, then by declared ones: mostly the same objects. */
const modernByForwardable = new WeakMap<RawObject, WeakMap<RawObject, RawObject>>();

/**
 * Returns the capabilities that a request to a modern upstream declares for this client. `roots.listChanged` and the
 * tasks of 2025-11-25 do not exist in that revision. The tasks extension is declared for clients that have a role in such a task.
 */
function modernCapabilities({ caller, clientCapabilities, dialect }: DeclaringClient): RawObject {
  const byDeclared = getOrMake(modernByForwardable, clientCapabilities, () => new WeakMap());
  return getOrMake(byDeclared, caller.capabilities, () => {
    const roots = clientCapabilities.object('roots')?.with('listChanged', undefined).toString();
    const declared = clientCapabilities.with('roots', roots).with('tasks', undefined);
    return dialect.taskRole(caller.capabilities) === 'none' ? declared : withTasks(declared);
  });
}
