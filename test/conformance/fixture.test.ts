import assert from 'node:assert/strict';
import { test } from 'node:test';
import { StreamableHTTPClientTransport, type Client, type VersionNegotiationMode } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { connectSdk2Over } from '../support/sdk-client.ts';
import { TRANSPORTS, conformanceProgram, overHttp, overStdio, type Era, type TransportKind } from './fixture.ts';

const MODERN: VersionNegotiationMode = { pin: '2026-07-28' };

const CAN = { elicitation: { form: {} }, sampling: {}, roots: {} };
const FORM = { name: 'Ada', ok: true, color: 'blue', context: 'some' };

function answering(client: Client): void {
  client.setRequestHandler('elicitation/create', () => ({ action: 'accept', content: FORM }));
  client.setRequestHandler('sampling/createMessage', () => ({
    role: 'assistant',
    model: 'a-model',
    content: { type: 'text', text: 'pong' },
  }));
  client.setRequestHandler('roots/list', () => ({ roots: [{ uri: 'file:///somewhere' }] }));
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
  const sdk = await connectSdk2Over(transport, CAN, mode, answering);
  stack.use(sdk);
  return await act(sdk.client);
}

async function askForName(client: Client): Promise<unknown> {
  const { content } = await client.callTool({ name: 'test_input_required_result_elicitation', arguments: {} });
  return content;
}

const GREETING = [{ type: 'text', text: 'Hello, Ada!' }];

const POSTAL = { name: 'Ada', contactMethod: 'email', email: 'ada@example.com' };

/** Returns the outcome of every operation, by name. */
async function everything(client: Client): Promise<Readonly<Record<string, unknown>>> {
  const { tools } = await client.listTools();
  const { prompts } = await client.listPrompts();
  const { resources } = await client.listResources();
  const found: Record<string, unknown> = { tools, prompts, resources };
  for (const { name } of tools) {
    const args = name === 'json_schema_2020_12_tool' ? POSTAL : { prompt: 'ping', message: 'Who?', region: 'north' };
    const { content, isError } = await client.callTool({ name, arguments: args });
    found[name] = isError === true ? 'failed' : content;
  }
  for (const { uri } of resources) found[uri] = (await client.readResource({ uri })).contents;
  for (const { name } of prompts) {
    const args = { arg1: 'one', arg2: 'two', resourceUri: 'test://static-text' };
    found[name] = (await client.getPrompt({ name, arguments: args })).messages;
  }
  return found;
}

test('the fixtures answer equally in each era and over each transport', async () => {
  const model = await visit('http', 'modern', MODERN, everything);
  assert.deepEqual(
    Object.keys(model).filter((name) => model[name] === 'failed'),
    ['test_error_handling'],
  );
  for (const [kind, era, mode] of [
    ['stdio', 'modern', MODERN],
    ['http', 'legacy', 'legacy'],
    ['stdio', 'both', 'legacy'],
  ] as const) {
    assert.deepEqual(await visit(kind, era, mode, everything), model, `${era} over ${kind}`);
  }
});

for (const kind of TRANSPORTS) {
  for (const era of ['legacy', 'both'] as const) {
    test(`the ${era} fixture over ${kind} serves a session and asks during a call`, async () => {
      assert.deepEqual(await visit(kind, era, 'legacy', askForName), GREETING);
    });
  }
  for (const era of ['modern', 'both'] as const) {
    test(`the ${era} fixture over ${kind} serves 2026-07-28 and asks by input_required`, async () => {
      assert.deepEqual(await visit(kind, era, MODERN, askForName), GREETING);
    });
  }

  test(`the legacy fixture over ${kind} refuses 2026-07-28`, async () => {
    await assert.rejects(visit(kind, 'legacy', MODERN, askForName));
  });
  test(`the modern fixture over ${kind} refuses a session`, async () => {
    await assert.rejects(visit(kind, 'modern', 'legacy', askForName));
  });

  for (const [era, mode] of [
    ['legacy', 'legacy'],
    ['modern', MODERN],
  ] as const) {
    test(`the ${era} fixture over ${kind} announces changes of its tools`, async () => {
      await visit(kind, era, mode, async (client) => {
        const changed = Promise.withResolvers<void>();
        client.setNotificationHandler('notifications/tools/list_changed', () => changed.resolve());
        if (era === 'modern') await client.listen({ toolsListChanged: true });
        const before = (await client.listTools()).tools.length;
        await client.callTool({ name: 'test_trigger_tool_change', arguments: {} });
        await changed.promise;
        assert.equal((await client.listTools()).tools.length, before + 1);
      });
    });
  }
}
