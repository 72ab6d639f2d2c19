import * as z from 'zod';
import type { Front, Interruption } from './front.ts';

/** Tool names that must be listed, and the actions after that. */
export interface Step {
  readonly tools: readonly string[];
  /** @param isDirect whether there is no gateway in between. */
  readonly play: (front: Front, isDirect: boolean) => Promise<unknown>;
  /** Runs while the first question is open. */
  readonly interrupt?: Interruption;
  /**
   * True if the suite checks every request against 2026-07-28, also the `initialize` that the gateway sends first for
   * a legacy client. The config then names the era of the server.
   */
  readonly isModernOnly?: boolean;
  /** Returns the credentials that the config has for the server. @param url of the server. */
  readonly auth?: (url: string) => Promise<Readonly<Record<string, unknown>>>;
}

const CONTEXT = z.object({
  toolCalls: z.array(z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) })),
});

/** Returns the calls that the suite requests in the environment of the client. */
function requestedCalls(): z.infer<typeof CONTEXT>['toolCalls'] {
  return CONTEXT.parse(JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}')).toolCalls;
}

async function callAll(front: Front, args: Readonly<Record<string, unknown>>): Promise<void> {
  for (const { name } of await front.tools()) await front.call(name, args);
}

const calls = (name: string, args?: Readonly<Record<string, unknown>>): Step => ({
  tools: [name],
  play: (front) => front.call(name, args),
});

const CLIENT = z.object({
  client_id: z.string(),
  client_secret: z.string().optional(),
  private_key_pem: z.string().optional(),
});
const RESOURCE = z.object({ authorization_servers: z.tuple([z.string()]) });

/** Returns what an operator would configure: the issuer that the server names, and the client that the suite has registered. */
async function configured(url: string): Promise<Readonly<Record<string, unknown>>> {
  const {
    client_id: clientId,
    client_secret: clientSecret,
    private_key_pem: privateKey,
  } = CLIENT.parse(JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}'));
  const { origin, pathname } = new URL(url);
  const response = await fetch(`${origin}/.well-known/oauth-protected-resource${pathname}`);
  const [named] = RESOURCE.parse(await response.json()).authorization_servers;
  const metadata = await fetch(`${new URL(named).origin}/.well-known/oauth-authorization-server`);
  const { issuer } = z.object({ issuer: z.string() }).parse(await metadata.json());
  return { kind: 'clientCredentials', issuer, clientId, clientSecret, privateKey };
}

const listing: Step = { tools: [], play: (front) => front.tools(), auth: configured };

/** The actions of the client in each scenario, which make the gateway show the behaviour under test. */
export const STEPS: Readonly<Record<string, Step>> = {
  initialize: { tools: [], play: (front) => front.tools() },
  'auth/client-credentials-basic': listing,
  'auth/client-credentials-jwt': listing,
  tools_call: calls('add_numbers', { a: 2, b: 3 }),
  'elicitation-sep1034-client-defaults': calls('test_client_elicitation_defaults'),
  'sse-retry': calls('test_reconnection'),
  'json-schema-2020-12-preservation': {
    tools: ['json_schema_2020_12_tool', 'json_schema_echo'],
    async play(front) {
      const tools = await front.tools();
      const schema = tools.find(({ name }) => name === 'json_schema_2020_12_tool')?.inputSchema;
      return front.call('json_schema_echo', { schema });
    },
  },
  'request-metadata': { tools: [], play: (front) => front.tools(), isModernOnly: true },
  'http-standard-headers': {
    tools: ['test_headers', 'my-hyphenated-tool'],
    isModernOnly: true,
    async play(front) {
      await callAll(front, {});
      for (const uri of await front.resources()) await front.read(uri);
      for (const name of await front.prompts()) await front.prompt(name);
    },
  },
  'http-custom-headers': {
    tools: ['test_custom_headers', 'test_custom_headers_null'],
    async play(front) {
      await front.tools();
      for (const { name, arguments: args } of requestedCalls()) await front.call(name, args);
    },
  },
  // Version 2 of the SDK drops these headers itself, so only a legacy client in front tests the gateway.
  'http-invalid-tool-headers': { tools: ['valid_tool'], play: (front) => callAll(front, { region: 'us' }) },
  'json-schema-ref-no-deref': {
    tools: ['lookup_user'],
    // The scripted server only lists. The scenario checks whether a client fetches the schema's references.
    play: (front) => front.call('lookup_user', { id: 'a' }).catch(() => {}),
  },
  'sep-2322-client-request-state': {
    tools: ['test_mrtr_echo_state', 'test_mrtr_no_state', 'test_mrtr_unrelated', 'test_mrtr_no_result_type'],
    interrupt: (front) => front.call('test_mrtr_unrelated'),
    async play(front, isDirect) {
      await front.call('test_mrtr_echo_state');
      await front.call('test_mrtr_no_state');
      // The SDK refuses such a result. The gateway treats it as complete, and adds the type for its client.
      const untyped = front.call('test_mrtr_no_result_type');
      await (isDirect ? untyped.catch(() => {}) : untyped);
    },
  },
};
