import * as sdk2 from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioClientTransport2 } from '@modelcontextprotocol/client/stdio';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
} from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import { connectSdk1Over, connectSdk2Over } from '../../support/sdk-client.ts';
import {
  type Called,
  type CallOptions,
  type ConnectOptions,
  NOTIFICATION,
  type PeerClient,
  type Place,
  type Question,
} from './client.ts';
import { Notifications } from './notifications.ts';

/** A late server on a busy machine takes its 5 s, and then several to load its modules. */
const TIMEOUT_MS = 30_000;

const RESULT = z.looseObject({
  content: z.array(z.looseObject({ text: z.string().optional() })),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().optional(),
});
const CONTENTS = z.array(z.looseObject({ text: z.string().optional() }));
const MESSAGES = z.array(z.looseObject({ content: z.looseObject({ text: z.string().optional() }) }));

const NAME = { action: 'accept' as const, content: { name: 'Ada' } };
const PARIS = { role: 'assistant' as const, content: { type: 'text' as const, text: 'Paris' }, model: 'test' };
const ROOTS = { roots: [{ uri: 'file:///peer', name: 'peer' }] };

const capabilities = (declares: readonly Question[]) => ({
  ...(declares.includes('elicitation') ? { elicitation: { form: {} } } : {}),
  ...(declares.includes('sampling') ? { sampling: {} } : {}),
  ...(declares.includes('roots') ? { roots: {} } : {}),
});

function place1(place: Place) {
  if (place.kind === 'stdio') return new StdioClientTransport({ ...stdio(place), stderr: 'ignore' });
  const url = new URL(place.url);
  return place.kind === 'sse' ? new SSEClientTransport(url) : new StreamableHTTPClientTransport(url);
}

function place2(place: Place) {
  if (place.kind === 'stdio') return new StdioClientTransport2({ ...stdio(place), stderr: 'ignore' });
  const url = new URL(place.url);
  return place.kind === 'sse' ? new sdk2.SSEClientTransport(url) : new sdk2.StreamableHTTPClientTransport(url);
}

/** By default the SDKs pass a short list of variables to a server, without the mark of the test run. */
function stdio({ command, args }: Extract<Place, { kind: 'stdio' }>) {
  const env = Object.entries(process.env).flatMap(([name, value]) => (value === undefined ? [] : [[name, value]]));
  return { command, args: [...args], env: Object.fromEntries(env) };
}

type CallTool = (
  params: { name: string; arguments: Record<string, unknown>; _meta?: Record<string, unknown> },
  options: { timeout: number; onprogress: (step: { progress: number }) => void; signal?: AbortSignal },
) => Promise<unknown>;

async function call(
  callTool: CallTool,
  name: string,
  args: Readonly<Record<string, unknown>>,
  { logLevel, signal }: CallOptions,
): Promise<Called> {
  const progress: number[] = [];
  const level = logLevel === undefined ? {} : { _meta: { [sdk2.LOG_LEVEL_META_KEY]: logLevel } };
  const result = RESULT.parse(
    await callTool(
      { name, arguments: { ...args }, ...level },
      { timeout: TIMEOUT_MS, onprogress: (step) => progress.push(step.progress), ...(signal && { signal }) },
    ),
  );
  const text = result.content.map((block) => block.text ?? '').join('\n');
  return { text, structured: result.structuredContent, isError: result.isError ?? false, progress };
}

type Common = sdk2.Client | Awaited<ReturnType<typeof connectSdk1Over>>['client'];

/** The methods that both SDKs have under the same name. */
function common(
  client: Common,
): Omit<PeerClient, 'revision' | 'waitForNotification' | 'call' | 'watch' | keyof AsyncDisposable> {
  return {
    tools: async () => (await client.listTools()).tools.map(({ name }) => name),
    resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    templates: async () => (await client.listResourceTemplates()).resourceTemplates.map((one) => one.uriTemplate),
    read: async (uri) =>
      CONTENTS.parse((await client.readResource({ uri })).contents)
        .map((one) => one.text)
        .join('\n'),
    prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
    prompt: async (name, args) => {
      const { messages } = await client.getPrompt({ name, arguments: { ...args } });
      return MESSAGES.parse(messages)
        .map(({ content }) => content.text)
        .join('\n');
    },
    complete: async ({ ref, name, value }) =>
      (await client.complete({ ref, argument: { name, value } })).completion.values,
    setLevel: async (level) => void (await client.setLoggingLevel(level)),
    ping: async () => void (await client.ping()),
  };
}

const revisionOf = (transport: object): string =>
  'protocolVersion' in transport && typeof transport.protocolVersion === 'string' ? transport.protocolVersion : '';

/** Connects the client of the TypeScript SDK 1.x, which has only sessions. */
export async function connectTypescript1(place: Place, { declares }: ConnectOptions): Promise<PeerClient> {
  const notifications = new Notifications();
  const connected = await connectSdk1Over(place1(place), capabilities(declares), (made) => {
    made.fallbackNotificationHandler = async (notification) => notifications.push(NOTIFICATION.parse(notification));
    if (declares.includes('elicitation')) made.setRequestHandler(ElicitRequestSchema, () => NAME);
    if (declares.includes('sampling')) made.setRequestHandler(CreateMessageRequestSchema, () => PARIS);
    if (declares.includes('roots')) made.setRequestHandler(ListRootsRequestSchema, () => ROOTS);
  });
  const { client } = connected;
  return {
    ...common(client),
    revision: revisionOf(connected.transport),
    waitForNotification: (method, limitMs, is) => notifications.waitForNotification(method, limitMs, is),
    call: (name, args = {}, options = {}) =>
      call((params, how) => client.callTool(params, undefined, how), name, args, options),
    watch: async (uri) => {
      if (uri !== undefined) await client.subscribeResource({ uri });
    },
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

/** Connects the client of the TypeScript SDK 2.x, in either era. */
export async function connectTypescript2(place: Place, { mode, declares }: ConnectOptions): Promise<PeerClient> {
  const notifications = new Notifications();
  const negotiation = mode === 'modern' ? ('auto' as const) : ('legacy' as const);
  const connected = await connectSdk2Over(place2(place), capabilities(declares), negotiation, (made) => {
    made.fallbackNotificationHandler = async (notification) => notifications.push(NOTIFICATION.parse(notification));
    if (declares.includes('elicitation')) made.setRequestHandler('elicitation/create', () => NAME);
    if (declares.includes('sampling')) made.setRequestHandler('sampling/createMessage', () => PARIS);
    if (declares.includes('roots')) made.setRequestHandler('roots/list', () => ROOTS);
  });
  const { client } = connected;
  const isModern = client.getProtocolEra() === 'modern';
  return {
    ...common(client),
    revision: client.getNegotiatedProtocolVersion() ?? '',
    waitForNotification: (method, limitMs, is) => notifications.waitForNotification(method, limitMs, is),
    call: (name, args = {}, options = {}) => call((params, how) => client.callTool(params, how), name, args, options),
    watch: async (uri) => {
      if (isModern)
        await client.listen(uri === undefined ? { toolsListChanged: true } : { resourceSubscriptions: [uri] });
      else if (uri !== undefined) await client.subscribeResource({ uri });
    },
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}
