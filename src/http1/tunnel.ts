import { isIPv6, type Socket } from 'node:net';
import type { buildConnector } from 'undici';
import { WireError } from './error.ts';
import { sharedLookup } from './lookup.ts';

/** An HTTP proxy that opens tunnels. Its URL may have a user name and password. */
export interface TunnelProxy {
  readonly url: string;
  /** Longest time until a tunnel is open, in milliseconds. */
  readonly connectMs: number;
}

/**
 * Opens a connection to a host through a proxy, by CONNECT. The proxy resolves the name of the host.
 *
 * @param host name or address, without brackets.
 * @throws {WireError} `proxy` if the proxy refuses, cannot be reached or does not speak HTTP; `connect-timeout`.
 * @see https://www.rfc-editor.org/rfc/rfc9110#name-connect
 */
export async function openTunnel({ url, connectMs }: TunnelProxy, host: string, port: number): Promise<Socket> {
  // Loaded only here, since most gateways have no proxy.
  const { request } = await import('node:http');
  const proxy = new URL(url);
  const authority = `${isIPv6(host) ? `[${host}]` : host}:${port}`;
  const user = decodeURIComponent(proxy.username);
  const password = decodeURIComponent(proxy.password);
  const basic = Buffer.from(`${user}:${password}`).toString('base64');
  const connecting = request({
    ...addressOf(proxy),
    lookup: sharedLookup,
    method: 'CONNECT',
    path: authority,
    headers: { host: authority, ...(user === '' ? {} : { 'proxy-authorization': `Basic ${basic}` }) },
    agent: false,
  });
  return await new Promise<Socket>((resolve, reject) => {
    const fail = (error: Error): void => {
      clearTimeout(timer);
      connecting.destroy();
      reject(error);
    };
    const timer = setTimeout(() => {
      fail(new WireError('connect-timeout', `the proxy opened no tunnel within ${connectMs} ms`));
    }, connectMs);
    connecting.once('connect', ({ statusCode = 0 }, socket: Socket, head: Buffer) => {
      // A server speaks after its client, so bytes before that are none of its answer.
      if (statusCode < 200 || statusCode >= 300 || head.length > 0) {
        socket.destroy();
        fail(new WireError('proxy', `the proxy refused a tunnel (HTTP ${statusCode})`));
        return;
      }
      clearTimeout(timer);
      resolve(socket);
    });
    connecting.once('response', ({ statusCode = 0 }) => {
      fail(new WireError('proxy', `the proxy refused a tunnel (HTTP ${statusCode})`));
    });
    // Node closes the socket of such an answer.
    connecting.once('upgrade', (_response, socket: Socket) => {
      socket.destroy();
      fail(new WireError('proxy', 'the proxy refused a tunnel (HTTP 101)'));
    });
    connecting.on('error', (error) => {
      fail(new WireError('proxy', `no tunnel through the proxy: ${error.message}`));
    });
    connecting.end();
  });
}

/** Returns the host, without the brackets of IPv6, and the port that a URL leads to. */
export function addressOf({ protocol, hostname, port }: Pick<URL, 'protocol' | 'hostname' | 'port'>): {
  readonly host: string;
  readonly port: number;
} {
  const standard = protocol === 'https:' ? 443 : 80;
  return { host: hostname.replace(/^\[|\]$/g, ''), port: port === '' ? standard : Number(port) };
}

/** Returns a `connect` function for undici that goes through a proxy. @param direct speaks TLS over the tunnel, to the server behind it. */
export function tunnelConnector(proxy: TunnelProxy, direct: buildConnector.connector): buildConnector.connector {
  return (options, answer) => {
    const isTls = options.protocol === 'https:';
    const { host, port } = addressOf(options);
    openTunnel(proxy, host, port).then(
      (socket) => {
        if (isTls) direct({ ...options, httpSocket: socket }, answer);
        else answer(null, socket);
      },
      (thrown: unknown) => answer(thrown instanceof Error ? thrown : new WireError('proxy', String(thrown)), null),
    );
  };
}
