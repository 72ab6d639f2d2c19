/**
 * The SDK's server connected to the SDK's client, as in most gateways: version 1, stateful, JSON answers, a server
 * and a
 * client object per session.
 */
import { randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { Server } from '@modelcontextprotocol/sdk/server/index.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { CallToolRequestSchema, ListToolsRequestSchema } from '@modelcontextprotocol/sdk/types.js';
import { serve } from './loopback.ts';
import { parseUpstreamAddress } from './upstream-address.ts';

const PREFIX = 'bench__';

const upstream = parseUpstreamAddress(process.argv[2]);

async function connectClient(): Promise<Client> {
  const client = new Client({ name: 'sdk-glue', version: '1.0.0' });
  const { kind } = upstream;
  if (kind === 'stdio') await client.connect(new StdioClientTransport(upstream));
  else await client.connect(new StreamableHTTPClientTransport(new URL(upstream.url)));
  return client;
}

const shared = upstream.kind === 'stdio' && upstream.isolation === 'shared' ? await connectClient() : undefined;

function createMcpServer(client: Client): Server {
  const server = new Server({ name: 'sdk-glue', version: '1.0.0' }, { capabilities: { tools: {} } });
  server.setRequestHandler(ListToolsRequestSchema, async ({ params }) => {
    const list = await client.listTools(params);
    return { ...list, tools: list.tools.map((tool) => ({ ...tool, name: `${PREFIX}${tool.name}` })) };
  });
  server.setRequestHandler(CallToolRequestSchema, ({ params }) =>
    client.callTool({ ...params, name: params.name.slice(PREFIX.length) }),
  );
  return server;
}

const sessions = new Map<string, StreamableHTTPServerTransport>();

async function openSession(): Promise<StreamableHTTPServerTransport> {
  const client = shared ?? (await connectClient());
  const transport = new StreamableHTTPServerTransport({
    sessionIdGenerator: randomUUID,
    enableJsonResponse: true,
    onsessioninitialized: (id) => void sessions.set(id, transport),
    onsessionclosed: async (id) => {
      sessions.delete(id);
      if (client !== shared) await client.close();
    },
  });
  await createMcpServer(client).connect(transport);
  return transport;
}

async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const id = request.headers['mcp-session-id'];
  const transport = id === undefined ? await openSession() : sessions.get(String(id));
  if (transport === undefined) response.writeHead(404).end();
  else await transport.handleRequest(request, response);
}

const server = createServer((request, response) => {
  handle(request, response).catch((thrown: unknown) => {
    console.error(thrown);
    if (!response.headersSent) response.writeHead(500).end();
  });
});
await serve(server);
