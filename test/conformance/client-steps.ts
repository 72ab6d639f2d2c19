import * as z from 'zod';
import type { Front, Interruption } from './front.ts';

/** Tool names that have to be listed, and then what to do. */
export interface Step {
  readonly tools: readonly string[];
  /** @param isDirect where no gateway is between. */
  readonly play: (front: Front, isDirect: boolean) => Promise<unknown>;
  /** With the first question still open. */
  readonly interrupt?: Interruption;
  /**
   * Whether the suite holds every request to 2026-07-28, also the `initialize` that a client of a session makes the gateway try
   * first. The gateway is told the era of the server then.
   */
  readonly isModernOnly?: boolean;
}

const CONTEXT = z.object({
  toolCalls: z.array(z.object({ name: z.string(), arguments: z.record(z.string(), z.unknown()) })),
});

/** What the suite wants called; told to the client in its environment. */
function toldCalls(): z.infer<typeof CONTEXT>['toolCalls'] {
  return CONTEXT.parse(JSON.parse(process.env['MCP_CONFORMANCE_CONTEXT'] ?? '{}')).toolCalls;
}

async function callAll(front: Front, args: Readonly<Record<string, unknown>>): Promise<void> {
  for (const { name } of await front.tools()) await front.call(name, args);
}

const calls = (name: string, args?: Readonly<Record<string, unknown>>): Step => ({
  tools: [name],
  play: (front) => front.call(name, args),
});

/** What the client in front has to do in each scenario, so that the one behind it is judged. */
export const STEPS: Readonly<Record<string, Step>> = {
  initialize: { tools: [], play: (front) => front.tools() },
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
      for (const { name, arguments: args } of toldCalls()) await front.call(name, args);
    },
  },
  // Version 2 of the SDK drops what has to be dropped by itself, so only the older client in front proves something.
  'http-invalid-tool-headers': { tools: ['valid_tool'], play: (front) => callAll(front, { region: 'us' }) },
  'json-schema-ref-no-deref': {
    tools: ['lookup_user'],
    // The scripted server only lists. Whether anybody fetches what the schema refers to is all it looks at.
    play: (front) => front.call('lookup_user', { id: 'a' }).catch(() => {}),
  },
  'sep-2322-client-request-state': {
    tools: ['test_mrtr_echo_state', 'test_mrtr_no_state', 'test_mrtr_unrelated', 'test_mrtr_no_result_type'],
    interrupt: (front) => front.call('test_mrtr_unrelated'),
    async play(front, isDirect) {
      await front.call('test_mrtr_echo_state');
      await front.call('test_mrtr_no_state');
      // The SDK refuses such a result. A gateway takes it for complete, and says so in front.
      const untyped = front.call('test_mrtr_no_result_type');
      await (isDirect ? untyped.catch(() => {}) : untyped);
    },
  },
};
