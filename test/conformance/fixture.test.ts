import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamableHTTPClientTransport, type Client, type VersionNegotiationMode } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { connectSdk2Over } from '../support/sdk-client.ts';
import { TRANSPORTS, conformanceProgram, overHttp, overStdio, type Era, type TransportKind } from './fixture.ts';

const MODERN: VersionNegotiationMode = { pin: '2026-07-28' };

function answering(client: Client): void {
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: { name: 'Ada' } }));
}

async function visit<T>(
  kind: TransportKind,
  era: Era,
  mode: VersionNegotiationMode,
  act: (client: Client) => Promise<T>,
): Promise<T> {
  await using stack = new AsyncDisposableStack();
  const program = conformanceProgram(era);
  const transport =
    kind === 'stdio'
      ? new StdioClientTransport(overStdio(program))
      : new StreamableHTTPClientTransport(new URL(stack.use(await overHttp(program)).url));
  const sdk = await connectSdk2Over(transport, { elicitation: { form: {} } }, mode, answering);
  stack.use(sdk);
  return await act(sdk.client);
}

async function askedForName(client: Client): Promise<unknown> {
  const { content } = await client.callTool({ name: 'test_input_required_result_elicitation', arguments: {} });
  return content;
}

const GREETING = [{ type: 'text', text: 'Hello, Ada!' }];

for (const kind of TRANSPORTS) {
  for (const era of ['legacy', 'both'] as const) {
    test(`the ${era} fixture over ${kind} serves a session and asks in the middle of a call`, async () => {
      assert.deepEqual(await visit(kind, era, 'legacy', askedForName), GREETING);
    });
  }
  for (const era of ['modern', 'both'] as const) {
    test(`the ${era} fixture over ${kind} serves 2026-07-28 and has a call come again with the answer`, async () => {
      assert.deepEqual(await visit(kind, era, MODERN, askedForName), GREETING);
    });
  }

  test(`the legacy fixture over ${kind} refuses 2026-07-28`, async () => {
    await assert.rejects(visit(kind, 'legacy', MODERN, askedForName));
  });
  test(`the modern fixture over ${kind} refuses a session`, async () => {
    await assert.rejects(visit(kind, 'modern', 'legacy', askedForName));
  });

  test(`the fixtures over ${kind} list the same in each era`, async () => {
    const lists = async (client: Client) => {
      const { tools } = await client.listTools();
      const { prompts } = await client.listPrompts();
      return [tools.map(({ name, inputSchema }) => ({ name, inputSchema })), prompts.map(({ name }) => name)];
    };
    const [legacy, modern] = await Promise.all([
      visit(kind, 'legacy', 'legacy', lists),
      visit(kind, 'modern', MODERN, lists),
    ]);
    assert.deepEqual(modern, legacy);
  });

  for (const [era, mode] of [
    ['legacy', 'legacy'],
    ['modern', MODERN],
  ] as const) {
    test(`the ${era} fixture over ${kind} tells when its tools change`, async () => {
      await visit(kind, era, mode, async (client) => {
        const told = Promise.withResolvers<void>();
        client.setNotificationHandler('notifications/tools/list_changed', () => told.resolve());
        if (era === 'modern') await client.listen({ toolsListChanged: true });
        const before = (await client.listTools()).tools.length;
        await client.callTool({ name: 'test_trigger_tool_change', arguments: {} });
        await told.promise;
        assert.equal((await client.listTools()).tools.length, before + 1);
      });
    });
  }
}
