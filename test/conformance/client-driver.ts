/**
 * What the suite starts as the client under test: a gateway with the suite's scripted server as its only upstream, and
 * in front of it the official SDK doing what the scenario needs. So what the suite judges is the gateway as a client.
 *
 *     node client-driver.ts [--direct] URL        --direct leaves the gateway out
 */
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { parseArgs } from 'node:util';
import { startGateway } from '../support/gateway.ts';
import { connectSdk1, type Sdk1 } from '../support/sdk-client.ts';
import { offering } from './offering.ts';

const UPSTREAM_MS = 12_000;

/** Tool names that have to be listed, and then what to do. */
interface Step {
  readonly tools: readonly string[];
  readonly play: (client: Client) => Promise<unknown>;
}

async function inputSchemaOf(client: Client, name: string): Promise<unknown> {
  const { tools } = await client.listTools();
  return tools.find((tool) => tool.name === name)?.inputSchema;
}

const STEPS: Readonly<Record<string, Step>> = {
  initialize: { tools: [], play: (client) => client.listTools() },
  tools_call: {
    tools: ['add_numbers'],
    play: (client) => client.callTool({ name: 'add_numbers', arguments: { a: 2, b: 3 } }),
  },
  'elicitation-sep1034-client-defaults': {
    tools: ['test_client_elicitation_defaults'],
    play: (client) => client.callTool({ name: 'test_client_elicitation_defaults', arguments: {} }),
  },
  'sse-retry': {
    tools: ['test_reconnection'],
    play: (client) => client.callTool({ name: 'test_reconnection', arguments: {} }),
  },
  'json-schema-2020-12-preservation': {
    tools: ['json_schema_2020_12_tool', 'json_schema_echo'],
    async play(client) {
      const schema = await inputSchemaOf(client, 'json_schema_2020_12_tool');
      return client.callTool({ name: 'json_schema_echo', arguments: { schema } });
    },
  },
};

/** The user accepts what the form proposes. */
function prepare(client: Client): void {
  client.setRequestHandler(ElicitRequestSchema, ({ params }): ElicitResult => {
    if (params.mode === 'url') return { action: 'decline' };
    const proposed = Object.entries(params.requestedSchema.properties).flatMap(([name, field]) =>
      field.default === undefined ? [] : [[name, field.default] as const],
    );
    return { action: 'accept', content: Object.fromEntries(proposed) };
  });
}

const connect = (url: string): Promise<Sdk1> => connectSdk1(url, { capabilities: { elicitation: {} } }, prepare);

async function play(url: string, { tools, play: act }: Step): Promise<void> {
  await using sdk = await offering(() => connect(url), tools, UPSTREAM_MS);
  await act(sdk.client);
}

const { values, positionals } = parseArgs({ options: { direct: { type: 'boolean' } }, allowPositionals: true });
const [url] = positionals;
const scenario = process.env['MCP_CONFORMANCE_SCENARIO'] ?? '';
const step = STEPS[scenario];
if (url === undefined || step === undefined) throw new Error(`cannot play ${scenario} against ${url}`);

if (values.direct === true) await play(url, step);
else {
  await using gateway = await startGateway({ mcpServers: { conf: { url } } });
  try {
    await play(gateway.endpoint('conf'), step);
  } catch (error) {
    console.error(gateway.logs());
    throw error;
  }
}
