import { addAbortListener } from 'node:events';
import { GatewayError } from '../../errors.ts';
import { JsonTextError, type RawObject } from '../../json/json.ts';
import { errorAnswer, type RpcError } from '../../protocol/jsonrpc.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { Connection, type ServerRequest } from '../rpc/connection.ts';
import type { StartTransport } from '../rpc/transport.ts';
import { discover } from './discover.ts';
import { initialize, type ServerHello } from './initialize.ts';
import type { Link } from './link.ts';
import type { Proposals } from './proposals.ts';

/**
 * The outcome of a handshake with a server that already has a link. `changed`: the server works differently. `described`: only its texts
 * differ. `era`: it does not support the era of the link any more. `refused`: perhaps so, unless a proxy answers in its place.
 * `unknown`: it cannot be reached at present.
 */
export type RecheckOutcome = 'same' | 'changed' | 'described' | 'era' | 'refused' | 'unknown';

interface RecheckParts {
  readonly start: StartTransport;
  readonly clientInfo: RawObject;
  /** Longest wait for each answer, in milliseconds. */
  readonly timeoutMs: number;
  readonly proposals: Proposals;
}

/**
 * Repeats the handshake of a link over a connection of its own, since the link is in use. For remote servers, and not for sessions of
 * clients. Never rejects.
 */
export async function recheck(link: Link, parts: RecheckParts, signal: AbortSignal): Promise<RecheckOutcome> {
  if (signal.aborted) return 'unknown';
  const { upstream, audience, era } = link;
  const { start, clientInfo, timeoutMs } = parts;
  let connection: Connection<undefined> | undefined;
  using _aborting = addAbortListener(signal, () => void connection?.close());
  try {
    const events = {
      onNotification: () => undefined,
      onServerRequest: (request: ServerRequest<undefined>) =>
        request.answer(errorAnswer(RPC.methodNotFound, 'Method not found')),
      onClose: () => undefined,
    };
    connection = await Connection.open<undefined>(upstream, start, events, signal, { audience });
    if (era === 'legacy') return await initializeAgain(link, connection, parts);
    const discovered = await discover(connection, clientInfo, timeoutMs);
    if (discovered.kind === 'modern') return compare(discovered.hello, link.hello);
    if (discovered.kind === 'legacy') return isDefinite(discovered.refusal) ? 'era' : 'refused';
    return discovered.isModern ? 'changed' : 'unknown';
  } catch (thrown) {
    if (thrown instanceof GatewayError || thrown instanceof JsonTextError) return 'unknown';
    throw thrown;
  } finally {
    await connection?.close();
  }
}

async function initializeAgain(
  { hello, clientCapabilities, connection: { mayKeepState } }: Link,
  connection: Connection<undefined>,
  { clientInfo, timeoutMs, proposals }: RecheckParts,
): Promise<RecheckOutcome> {
  const outcome = await initialize(connection, clientCapabilities, clientInfo, timeoutMs, proposals);
  if (outcome.kind === 'refused' && outcome.isUnfinished === true) return 'unknown';
  if (outcome.kind === 'refused') return outcome.isModern || isDefinite(outcome.refusal) ? 'era' : 'refused';
  // A server that has begun to give out sessions refuses requests without one.
  return connection.mayKeepState && !mayKeepState ? 'changed' : compare(outcome.hello, hello);
}

function compare(a: ServerHello, b: ServerHello): 'same' | 'changed' | 'described' {
  if (a.revision !== b.revision || a.capabilities.toString() !== b.capabilities.toString()) return 'changed';
  const isSame = a.instructions === b.instructions && a.serverInfo.toString() === b.serverInfo.toString();
  return isSame ? 'same' : 'described';
}

/** Returns whether two servers, or two versions of one, describe themselves in the same way. */
export function isSameHello(a: ServerHello, b: ServerHello): boolean {
  return compare(a, b) === 'same';
}

/** Returns whether an answer shows that a server does not support the era of a handshake. A proxy in its place has other errors, or none. */
function isDefinite(error: RpcError | undefined): boolean {
  if (error === undefined) return false;
  return error.code === RPC.methodNotFound || (error.code !== RPC.internalError && isHandshakeRefusal(error));
}

/**
 * Returns whether a server refused a request for its revision, or because it wants `initialize` first. The texts are those of the SDKs,
 * whose code −32000 says nothing.
 */
export function isHandshakeRefusal({ code, message }: RpcError): boolean {
  return code === RPC.unsupportedVersion || /protocol version|session|not initialized/i.test(message);
}
