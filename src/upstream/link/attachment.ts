import { GatewayError, upstreamError } from '../../errors.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import type { Connection } from '../rpc/connection.ts';
import { HttpStatusError } from '../rpc/http-status-error.ts';
import type { UpstreamSession } from '../rpc/transport.ts';
import type { HandshakeOutcome } from './handshake.ts';
import type { ServerHello } from './initialize.ts';

/** A session of a remote legacy upstream that another connection has initialized. */
export interface Attachment {
  readonly session: UpstreamSession;
  readonly hello: ServerHello;
  /** Differs for another server, and for other credentials. */
  readonly target: string;
}

/** Statuses with which a proxy answers for an upstream that may still have the session. */
const TRANSIENT: ReadonlySet<number> = new Set([408, 425, 429, 502, 503, 504]);

/**
 * Continues a session of an upstream over a new connection. A `ping` shows whether the upstream still has it.
 *
 * @throws {GatewayError} if the upstream cannot be reached at present, so that a later attempt may succeed.
 */
export async function reattach(
  connection: Connection,
  { session, hello }: Attachment,
  timeoutMs: number,
): Promise<HandshakeOutcome> {
  // Nobody but the client ends a session that this connection may not get.
  connection.setLeft(true);
  connection.attach(session, hello.revision);
  const options = { timeoutMs, maxMs: timeoutMs, progress: false, context: undefined } as const;
  try {
    const answer = await connection.call('ping', undefined, options).answer;
    if (answer.kind === 'error' && answer.error.code !== RPC.methodNotFound) return refused(answer.error.message);
  } catch (thrown) {
    if (!(thrown instanceof GatewayError) || isUnreachable(thrown)) throw thrown;
    return refused(thrown.message, thrown);
  }
  connection.setLeft(false);
  const evidence = 'a session of an earlier connection continues';
  return { kind: 'open', hello, findings: [{ era: 'legacy', speaks: 'yes', evidence }] };

  function refused(why: string, cause?: unknown): HandshakeOutcome {
    const event = `does not continue its session: ${why}`;
    const reason = upstreamError('upstream-unavailable', connection.upstream, event, {}, cause);
    return { kind: 'unsuitable', reason, findings: [], next: undefined };
  }
}

/** Returns whether the request has not reached the upstream, so that nothing is known about the session. */
function isUnreachable({ code, executed, cause }: GatewayError): boolean {
  if (cause instanceof HttpStatusError) return TRANSIENT.has(cause.status);
  return executed === 'no' && code !== 'upstream-session-lost';
}
