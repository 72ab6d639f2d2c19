import { messageOf } from '../thrown.ts';
import { once } from 'node:events';
import type { Socket } from 'node:net';
import { createServer, type TLSSocket } from 'node:tls';
import { StartError } from '../errors.ts';
import type { LimitName } from '../limits.ts';
import type { Metrics } from '../telemetry/metrics.ts';
import type { ForwardedHead } from './forwarded-head.ts';
import { serveChannel, type ServedExchange } from './incoming-channel.ts';
import type { InternalKeys } from './internal-keys.ts';
import { CHANNEL_PROTOCOL, INTERNAL_TLS } from './internal-tls.ts';
import { type InternalAddress, internalAddressText } from './internal-address.ts';
import { RecentCalls } from './recent-calls.ts';

const HANDSHAKE_MS = 5_000;
/** Connections of all other replicas together, with those that are not authenticated yet. */
const MAX_CONNECTIONS = 10_000;
const TCP_PROBE_MS = 30_000;

/** Answers a request that another replica has passed on. */
export type ForwardedHandler = (exchange: ServedExchange, head: ForwardedHead) => void;

export interface InternalServerParts {
  readonly keys: InternalKeys;
  readonly metrics: Pick<Metrics, 'countInternalRefusal'>;
  /** Returns whether a member id is that of this process now. */
  readonly isSelf: (member: string) => boolean;
  readonly onLimit: (limit: LimitName) => void;
}

/** The port where other replicas connect. */
export interface InternalServer {
  /** 0 for a Unix socket. */
  readonly port: number;
  /** Closes the connections of a ring that is not valid any more. */
  closeConnections(): void;
  close(): Promise<void>;
}

/** Listens for other replicas. Only holders of the ring get beyond the handshake. @throws {StartError} if the address cannot be used. */
export async function openInternalServer(
  address: InternalAddress,
  { keys, metrics, isSelf, onLimit }: InternalServerParts,
  handle: ForwardedHandler,
): Promise<InternalServer> {
  /** The id of the key that the other side of a connection has proved. */
  const keyIds = new WeakMap<TLSSocket, string>();
  const options = {
    ...INTERNAL_TLS,
    ALPNProtocols: [CHANNEL_PROTOCOL],
    pskCallback: (socket: TLSSocket, id: string) => {
      keyIds.set(socket, id);
      const key = keys.find(id, Date.now());
      if (key === undefined) keys.onUnknown();
      return key ?? null;
    },
    handshakeTimeout: HANDSHAKE_MS,
  };
  const recent = new RecentCalls(() => onLimit('recentCalls'));
  const server = createServer(options, (socket) => {
    const keyId = keyIds.get(socket);
    if (keyId === undefined || socket.alpnProtocol !== CHANNEL_PROTOCOL) {
      metrics.countInternalRefusal('protocol');
      socket.on('error', () => undefined);
      socket.destroy();
      return;
    }
    socket.setNoDelay(true);
    socket.setKeepAlive(true, TCP_PROBE_MS);
    serveChannel(socket, {
      isTrusted: () => keys.find(keyId, Date.now()) !== undefined,
      admit: ({ to, call }) => {
        if (!isSelf(to)) return [GONE, 'misdirected'];
        return recent.add(call, performance.now()) ? undefined : [409, 'repeated'];
      },
      onRefused: (reason) => metrics.countInternalRefusal(reason),
      handle,
    });
  });
  /** Connections, with those that are not authenticated yet. */
  const sockets = new Set<Socket>();
  server.on('connection', (socket: Socket) => {
    sockets.add(socket);
    socket.once('close', () => sockets.delete(socket));
  });
  server.maxConnections = MAX_CONNECTIONS;
  server.on('tlsClientError', (_error, socket) => {
    metrics.countInternalRefusal('handshake');
    // After a handshake that takes too long, Node leaves the connection open.
    socket.destroy();
  });
  // A server emits further errors later, such as for each connection that it cannot accept.
  server.on('error', () => undefined);
  try {
    // Each worker of one machine has a socket of its own.
    server.listen({ ...address, exclusive: true });
    await once(server, 'listening');
  } catch (thrown) {
    const why = messageOf(thrown);
    const place = internalAddressText(address);
    const key = 'path' in address ? '' : ' (gateway.redis.internal)';
    throw new StartError(`cannot listen on ${place} for other replicas${key}: ${why}`, { cause: thrown });
  }
  const bound = server.address();
  const closeConnections = () => {
    for (const socket of sockets) socket.destroy();
  };
  return {
    port: typeof bound === 'object' && bound !== null ? bound.port : 0,
    closeConnections,
    close: async () => {
      const closed = new Promise((resolve) => server.close(resolve));
      closeConnections();
      await closed;
    },
  };
}

/** Status of a request for a session that another member has by now. */
export const MISDIRECTED = 421;
/** Status of a request for a member whose address has another process by now. Older versions answer {@link MISDIRECTED}. */
export const GONE = 410;
/** Returns whether a status says that the request has to be sent to another process. */
export function isMisdirected(status: number): boolean {
  return status === MISDIRECTED || status === GONE;
}
/** Status of a request to a member that is not ready for it yet. */
export const NOT_SERVING = 503;
/** Status of a question for an operator to a replica that answers none yet. */
export const STARTING = 425;
/** Status of a request of another version. */
export const UNREADABLE = 400;
