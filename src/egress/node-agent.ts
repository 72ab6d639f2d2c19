import { Agent } from 'node:http';
import { Agent as TlsAgent } from 'node:https';
import { Socket } from 'node:net';
import type { EgressConfig } from '../config/values/credentials.ts';
import { systemCode } from '../thrown.ts';
import { guardedConnector } from './guarded-connector.ts';

/** Codes of `http1/` and undici for connections that cannot be made, by the code of the system that a library knows for them. */
const SYSTEM_CODES: ReadonlyMap<string | undefined, string> = new Map([
  ['proxy', 'ECONNREFUSED'],
  ['connect-timeout', 'ETIMEDOUT'],
  ['UND_ERR_CONNECT_TIMEOUT', 'ETIMEDOUT'],
]);

/** Returns an error that a library treats like one of the network, so that it tries again. */
function asSystemError(error: Error): Error {
  const code = SYSTEM_CODES.get(systemCode(error));
  return code === undefined ? error : Object.assign(new Error(error.message, { cause: error }), { code });
}

/**
 * Returns an agent for `node:http` whose connections are made as those of `Egress`, for a library with a client of its own.
 *
 * @param protocol `http:` or `https:`; the URLs are in the config.
 */
export function nodeAgent(protocol: string, config: EgressConfig): Agent {
  const connect = guardedConnector('configured', config);
  const createConnection: Agent['createConnection'] = ({ host: given, port }, onCreated) => {
    const host = given ?? '';
    connect({ protocol, host, hostname: host, port: String(port ?? '') }, (error, socket) => {
      // The agent uses the socket only without an error.
      onCreated?.(error === null ? null : asSystemError(error), socket ?? new Socket());
    });
    return undefined;
  };
  const agent = protocol === 'https:' ? new TlsAgent({ keepAlive: true }) : new Agent({ keepAlive: true });
  return Object.assign(agent, { createConnection });
}
