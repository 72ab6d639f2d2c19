import * as sdk2 from '@modelcontextprotocol/client';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import type { Transport } from '@modelcontextprotocol/sdk/shared/transport.js';
import type { ClientCapabilities } from '@modelcontextprotocol/sdk/types.js';

const WHO = { name: 'linkspan-test', version: '1.0.0' };

interface ConnectOptions<C> {
  readonly capabilities?: C;
  readonly headers?: Readonly<Record<string, string>>;
}

interface Connected<C, T> extends AsyncDisposable {
  readonly client: C;
  readonly transport: T;
}

export type Sdk1 = Connected<Client, StreamableHTTPClientTransport>;
type Sdk2 = Connected<sdk2.Client, sdk2.StreamableHTTPClientTransport>;

/** Closes the client. Ends its session too, if there is one and the gateway still runs. */
async function leave(client: { close(): Promise<void> }, transport: Transport | sdk2.Transport) {
  if ('terminateSession' in transport && typeof transport.terminateSession === 'function') {
    await Promise.resolve(transport.terminateSession()).catch(() => {});
  }
  await client.close();
}

/**
 * Connects the official SDK, version 1, over Streamable HTTP.
 *
 * @param prepare sets handlers before the connection opens.
 */
export async function connectSdk1(
  url: string,
  { capabilities = {}, headers = {} }: ConnectOptions<ClientCapabilities> = {},
  prepare?: (client: Client) => void,
): Promise<Sdk1> {
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  return await connectSdk1Over(transport, capabilities, prepare);
}

/** Connects the same client over any transport that has not been started. */
export async function connectSdk1Over<T extends Transport>(
  transport: T,
  capabilities: ClientCapabilities,
  prepare?: (client: Client) => void,
): Promise<Connected<Client, T>> {
  const client = new Client(WHO, { capabilities });
  prepare?.(client);
  await client.connect(transport);
  return { client, transport, [Symbol.asyncDispose]: () => leave(client, transport) };
}

/**
 * Connects the official SDK, version 2, over Streamable HTTP.
 *
 * @param mode `legacy` initializes a session, `auto` discovers the era, `{ pin }` requires a revision.
 * @param prepare sets handlers before the connection opens.
 */
export async function connectSdk2(
  url: string,
  {
    mode,
    capabilities = {},
    headers = {},
  }: ConnectOptions<sdk2.ClientCapabilities> & { readonly mode: sdk2.VersionNegotiationMode },
  prepare?: (client: sdk2.Client) => void,
): Promise<Sdk2> {
  const transport = new sdk2.StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  return await connectSdk2Over(transport, capabilities, mode, prepare);
}

/** Connects the same client over any transport that has not been started. */
export async function connectSdk2Over<T extends sdk2.Transport>(
  transport: T,
  capabilities: sdk2.ClientCapabilities,
  mode: sdk2.VersionNegotiationMode,
  prepare?: (client: sdk2.Client) => void,
): Promise<Connected<sdk2.Client, T>> {
  const client = new sdk2.Client(WHO, { capabilities, versionNegotiation: { mode } });
  prepare?.(client);
  await client.connect(transport);
  return { client, transport, [Symbol.asyncDispose]: () => leave(client, transport) };
}
