import { GatewayError } from '../../errors.ts';
import { type Answer, errorAnswer, isUnambiguous } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { progressTokenOf } from '../../protocol/meta.ts';
import { isLegacyRevision } from '../../protocol/revisions.ts';
import { downgradeClientResult } from '../../protocol/translation/input-response.ts';
import { isPrivate } from '../../upstream/link/link.ts';
import type { ServerRequest } from '../../upstream/rpc/connection.ts';
import { canBeAsked, refusalCode } from '../exchange/client-capabilities.ts';
import type { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import type { Recipient, Exchange } from '../exchange/exchange.ts';
import type { Link } from '../exchange/connection-holder.ts';
import { soleRecipient, taskIn } from './sole-recipient.ts';
import type { QuestionPolicy } from './question-policy.ts';
import type { ClientTasks } from './client-tasks.ts';
import type { TaskMarks } from '../handles/task-marks.ts';
import { resultOrError } from '../../thrown.ts';

/** A character of a text takes up to two bytes. */
const CHAR_BYTES = 2;

const SERVES_MANY = 'This connection serves many clients, and nothing tells which one is asked';
const MAY_BE_LATE = 'Nothing tells whether this is about a call that its client has given up';

const ASKABLE = new Set(['sampling/createMessage', 'elicitation/create', 'roots/list']);

/** Finds the client that a server request is for: by its call or task, or the only one. Undefined if ambiguous. */
function recipientOf(link: Link, request: ServerRequest<Exchange>): Recipient | undefined {
  if (!isPrivate(link)) return undefined;
  const task = taskIn(request.params);
  const owner = task === undefined ? undefined : link.tasks.get(task)?.owner;
  // The call of a legacy client has got its answer, and the client is asked on another stream.
  const exchange = request.about ?? (owner?.client.dialect.asksInAnswers === true ? owner : undefined);
  if (exchange !== undefined) return { client: exchange.client, exchange, isUnambiguous: true };
  return soleRecipient(link, 'question', request.params);
}

export interface ServerRequestParts {
  readonly marks: TaskMarks;
  readonly clientTasks: ClientTasks;
  readonly policy: QuestionPolicy;
  /** Bound the questions that wait for answers of clients, by upstream and by principal. */
  readonly open: ByteBounds;
  readonly openByPrincipal: ByteBounds;
}

/**
 * Sends a server request to the client that it is for, and the answer back, or refuses it. Always answers the upstream, in bounded
 * time.
 */
export function relayServerRequest(
  { marks, clientTasks, policy, open, openByPrincipal }: ServerRequestParts,
  link: Link,
  request: ServerRequest<Exchange>,
): void {
  const { method } = request;
  const refuse = (why: string, code: number = RPC.invalidParams) => request.answer(errorAnswer(code, why));
  if (clientTasks.isTaskRequest(request)) return clientTasks.relay(link, request);
  if (!ASKABLE.has(method)) return refuse(`Method not found: ${method}`, RPC.methodNotFound);
  // Some parts are read only when the client answers or retries, which is too late to refuse them.
  if (!isUnambiguous(request.params.toString())) return refuse('Invalid params: they have a member twice');
  const recipient = recipientOf(link, request);
  if (recipient === undefined) return refuse(link.connection.hasAbandoned('question') ? MAY_BE_LATE : SERVES_MANY);
  const refusal = policy.refusal(link.upstream, method, request.params);
  if (refusal !== undefined) return refuse(`The client is not asked: ${refusal}`);
  const { client, exchange } = recipient;
  const marked = marks.withTaskId(link, client, request.params);
  const asked = resultOrError(GatewayError, () =>
    policy.toClient(client, link.upstream, { method, params: marked }, exchange?.view),
  );
  if (asked instanceof GatewayError) return refuse(`The client is not asked: ${asked.message}`);
  const params = client.dialect.downgradeServerRequest(method, asked);
  if (params === undefined || !canBeAsked(client.clientCapabilities, method, request.params)) {
    client.onUnsupportedRequest(method, request.params, exchange);
    refuse(`The client cannot be asked for this: ${method}`, refusalCode(client.clientCapabilities, method));
    return;
  }
  const bytes = CHAR_BYTES * request.params.toString().length;
  const releaseOwn = openByPrincipal.take(client.caller.principal.key, bytes);
  const releaseUpstreams = releaseOwn && open.take(link.upstream, bytes);
  const release = () => {
    releaseOwn?.();
    releaseUpstreams?.();
  };
  if (releaseUpstreams === undefined) {
    release();
    return refuse('Too many large questions wait for answers of clients', RPC.internalError);
  }
  const beyond = policy.takeTokens(client, link.upstream, [{ method, params }]);
  if (beyond !== undefined) {
    release();
    return refuse(`The client is not asked: ${beyond}`);
  }
  // Other calls may use the slot while the client's user decides.
  if (recipient.isUnambiguous) exchange?.releaseSlot();
  const token = progressTokenOf(request.params);
  const mayBeTask = clientTasks.mayCreateTask(client, method, params);
  client.ask(
    {
      upstream: link.upstream,
      method,
      params: mayBeTask ? params : params.with('task', undefined),
      answer: (answer) => {
        release();
        request.answer(mayBeTask ? clientTasks.onCreated(link, client, answer) : toUpstream(link, method, answer));
      },
      onProgress:
        token === undefined
          ? undefined
          : (progress) => link.connection.notify('notifications/progress', progress.with('progressToken', token)),
      onWithdrawn: (run) =>
        request.onWithdrawn((cancelled) => {
          release();
          run(cancelled);
        }),
    },
    exchange,
  );
}

/** Returns a client's answer in the revision of the upstream. */
function toUpstream({ hello: { revision } }: Link, method: string, answer: Answer): Answer {
  if (answer.kind === 'error' || !isLegacyRevision(revision)) return answer;
  const result = downgradeClientResult(method, revision, answer.result);
  if (result === answer.result) return answer;
  if (result !== undefined) return { kind: 'result', result };
  return errorAnswer(RPC.invalidParams, `The client's answer has content that ${revision} does not allow`);
}
