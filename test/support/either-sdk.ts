import * as sdk2 from '@modelcontextprotocol/client';
import { StdioClientTransport as StdioClientTransport2 } from '@modelcontextprotocol/client/stdio';
import type { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import {
  CreateMessageRequestSchema,
  ElicitRequestSchema,
  ListRootsRequestSchema,
  type ClientCapabilities,
} from '@modelcontextprotocol/sdk/types.js';
import * as z from 'zod';
import { Waitlist } from '../fixtures/servers/http-harness.ts';
import { PATIENCE_MS } from './patience.ts';
import { connectSdk1Over, connectSdk2Over } from './sdk-client.ts';

export const SDKS = ['SDK v1', 'SDK v2'] as const;
export type Sdk = (typeof SDKS)[number];

/** The answers of a user to questions. The client declares the capabilities that have an answer here. */
export interface Human {
  readonly sampling?: (prompt: string) => string;
  /** Returns the content of a form. URLs are opened. */
  readonly elicitation?: (message: string) => Record<string, string | number | boolean>;
  readonly roots?: readonly { readonly uri: string; readonly name: string }[];
}

interface ReceivedNotification {
  readonly method: string;
  readonly params?: Readonly<Record<string, unknown>> | undefined;
}

interface CallOptions {
  readonly onprogress?: (progress: { progress: number; total?: number | undefined }) => void;
  readonly signal?: AbortSignal;
}

const RESULT = z.looseObject({
  content: z.array(
    z.looseObject({
      type: z.string(),
      text: z.string().optional(),
      uri: z.string().optional(),
      resource: z.looseObject({ uri: z.string(), text: z.string().optional() }).optional(),
    }),
  ),
  structuredContent: z.unknown().optional(),
  isError: z.boolean().optional(),
});
export type Result = z.infer<typeof RESULT>;

/** A connected client of either SDK. Results are as the SDK has validated and returned them. */
export interface EitherClient extends AsyncDisposable {
  /** The notifications except progress, in order. */
  readonly notifications: Waitlist<ReceivedNotification>;
  /** Resolves with the first notification of this method, past or future. @throws {Error} if it does not arrive. */
  waitForNotification(method: string): Promise<ReceivedNotification>;
  readonly sessionId: string;
  readonly revision: string;
  readonly instructions: string;
  readonly capabilities: Readonly<Record<string, unknown>>;
  tools(): Promise<readonly { name: string; description?: string | undefined }[]>;
  call(name: string, args?: Readonly<Record<string, unknown>>, options?: CallOptions): Promise<Result>;
  resources(): Promise<readonly { uri: string; name: string }[]>;
  templates(): Promise<readonly { uriTemplate: string }[]>;
  read(uri: string): Promise<readonly { uri: string; text?: string; blob?: string }[]>;
  prompts(): Promise<readonly { name: string }[]>;
  prompt(name: string, args?: Record<string, string>): Promise<readonly { content: unknown }[]>;
  complete(params: Completion): Promise<readonly string[]>;
  setLevel(level: 'debug' | 'info' | 'warning' | 'error'): Promise<void>;
  subscribe(uri: string): Promise<void>;
  unsubscribe(uri: string): Promise<void>;
  rootsChanged(): Promise<void>;
  ping(): Promise<void>;
}

interface Completion {
  readonly ref: { type: 'ref/prompt'; name: string } | { type: 'ref/resource'; uri: string };
  readonly argument: { name: string; value: string };
  readonly context?: { arguments: Record<string, string> };
}

interface EitherOptions {
  readonly human?: Human;
  readonly headers?: Readonly<Record<string, string>>;
}

async function waitForNotification(
  notifications: Waitlist<ReceivedNotification>,
  method: string,
): Promise<ReceivedNotification> {
  const { promise, reject } = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    reject(new Error(`${method} did not arrive; received: ${JSON.stringify(notifications.items)}`));
  }, PATIENCE_MS);
  try {
    return await Promise.race([promise, notifications.find((item) => item.method === method)]);
  } finally {
    clearTimeout(timer);
  }
}

/** Retries for longer than the SDKs' defaults, because the gateway may take longer to start again. */
const PATIENT = {
  initialReconnectionDelay: 500,
  maxReconnectionDelay: 500,
  reconnectionDelayGrowFactor: 1,
  maxRetries: 120,
};

const model = (text: string) => ({
  role: 'assistant' as const,
  content: { type: 'text' as const, text },
  model: 'test',
});

/** Returns the text of a sampling request. */
function promptOf(messages: readonly { readonly content: unknown }[]): string {
  return messages.map(({ content }) => JSON.stringify(content)).join(' ');
}

function capabilitiesOf({ sampling, elicitation, roots }: Human): ClientCapabilities & sdk2.ClientCapabilities {
  return {
    ...(sampling === undefined ? {} : { sampling: {} }),
    ...(elicitation === undefined ? {} : { elicitation: { form: {}, url: {} } }),
    ...(roots === undefined ? {} : { roots: { listChanged: true } }),
  };
}

/** The methods that both SDKs have under the same name. */
function common(
  client: Client | sdk2.Client,
): Omit<
  EitherClient,
  'notifications' | 'waitForNotification' | 'sessionId' | 'revision' | 'call' | keyof AsyncDisposable
> {
  return {
    instructions: client.getInstructions() ?? '',
    capabilities: { ...client.getServerCapabilities() },
    tools: async () => (await client.listTools()).tools,
    resources: async () => (await client.listResources()).resources,
    templates: async () => (await client.listResourceTemplates()).resourceTemplates,
    read: async (uri) => (await client.readResource({ uri })).contents,
    prompts: async () => (await client.listPrompts()).prompts,
    prompt: async (name, args = {}) => (await client.getPrompt({ name, arguments: args })).messages,
    complete: async (params) => (await client.complete(params)).completion.values,
    setLevel: async (level) => {
      await client.setLoggingLevel(level);
    },
    subscribe: async (uri) => {
      await client.subscribeResource({ uri });
    },
    unsubscribe: async (uri) => {
      await client.unsubscribeResource({ uri });
    },
    rootsChanged: () => client.sendRootsListChanged(),
    ping: async () => {
      await client.ping();
    },
  };
}

/** The address of the gateway: the URL of an endpoint, the URL of its 2024-11-05 stream, or a command for stdio. */
type Way =
  | {
      readonly kind: 'http' | 'sse';
      readonly url: string;
      readonly headers?: Readonly<Record<string, string>>;
      /** Makes the client reopen its GET stream again and again while the gateway is down. */
      readonly isPatient?: boolean;
    }
  | { readonly kind: 'stdio'; readonly command: string; readonly args: string[]; readonly env: Record<string, string> };

async function connect1(way: Way, human: Human): Promise<EitherClient> {
  const notifications = new Waitlist<ReceivedNotification>();
  const connected = await connectSdk1Over(transport1(way), capabilitiesOf(human), (client) => {
    client.fallbackNotificationHandler = async (notification) => notifications.push(notification);
    const { sampling, elicitation, roots } = human;
    if (sampling !== undefined) {
      client.setRequestHandler(CreateMessageRequestSchema, ({ params }) => model(sampling(promptOf(params.messages))));
    }
    if (elicitation !== undefined) {
      client.setRequestHandler(ElicitRequestSchema, ({ params }) => ({
        action: 'accept',
        ...(params.mode === 'url' ? {} : { content: elicitation(params.message) }),
      }));
    }
    if (roots !== undefined) client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: [...roots] }));
  });
  const { client, transport } = connected;
  return {
    ...common(client),
    ...sessionOf(transport),
    notifications,
    waitForNotification: (method) => waitForNotification(notifications, method),
    call: async (name, args = {}, options = {}) =>
      RESULT.parse(await client.callTool({ name, arguments: args }, undefined, options)),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

async function connect2(way: Way, human: Human): Promise<EitherClient> {
  const notifications = new Waitlist<ReceivedNotification>();
  const connected = await connectSdk2Over(transport2(way), capabilitiesOf(human), 'legacy', (client) => {
    client.fallbackNotificationHandler = async (notification) => notifications.push(notification);
    const { sampling, elicitation, roots } = human;
    if (sampling !== undefined) {
      client.setRequestHandler('sampling/createMessage', ({ params }) => model(sampling(promptOf(params.messages))));
    }
    if (elicitation !== undefined) {
      client.setRequestHandler('elicitation/create', ({ params }) => ({
        action: 'accept',
        ...(params.mode === 'url' ? {} : { content: elicitation(params.message) }),
      }));
    }
    if (roots !== undefined) client.setRequestHandler('roots/list', () => ({ roots: [...roots] }));
  });
  const { client, transport } = connected;
  return {
    ...common(client),
    ...sessionOf(transport),
    notifications,
    waitForNotification: (method) => waitForNotification(notifications, method),
    call: async (name, args = {}, options = {}) =>
      RESULT.parse(await client.callTool({ name, arguments: args }, options)),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

function transport1(way: Way): StreamableHTTPClientTransport | SSEClientTransport | StdioClientTransport {
  if (way.kind === 'stdio') return new StdioClientTransport({ ...way, stderr: 'ignore' });
  const options = {
    requestInit: { headers: { ...way.headers } },
    ...(way.isPatient === true ? { reconnectionOptions: PATIENT } : {}),
  };
  const url = new URL(way.url);
  return way.kind === 'sse' ? new SSEClientTransport(url, options) : new StreamableHTTPClientTransport(url, options);
}

function transport2(way: Way): sdk2.StreamableHTTPClientTransport | sdk2.SSEClientTransport | StdioClientTransport2 {
  if (way.kind === 'stdio') return new StdioClientTransport2({ ...way, stderr: 'ignore' });
  const options = {
    requestInit: { headers: { ...way.headers } },
    ...(way.isPatient === true ? { reconnectionOptions: PATIENT } : {}),
  };
  const url = new URL(way.url);
  return way.kind === 'sse'
    ? new sdk2.SSEClientTransport(url, options)
    : new sdk2.StreamableHTTPClientTransport(url, options);
}

function sessionOf(transport: object): { readonly sessionId: string; readonly revision: string } {
  const text = (value: unknown) => (typeof value === 'string' ? value : '');
  return {
    sessionId: 'sessionId' in transport ? text(transport.sessionId) : '',
    revision: 'protocolVersion' in transport ? text(transport.protocolVersion) : '',
  };
}

export function connectOver(sdk: Sdk, way: Way, human: Human = {}): Promise<EitherClient> {
  return sdk === 'SDK v1' ? connect1(way, human) : connect2(way, human);
}

/** Initializes a session over Streamable HTTP. */
export function connect(sdk: Sdk, url: string, { human, headers = {} }: EitherOptions = {}): Promise<EitherClient> {
  return connectOver(sdk, { kind: 'http', url, headers }, human);
}

/** Returns all text of a result. */
export function textOf({ content }: Result): string {
  return content.flatMap(({ text }) => (text === undefined ? [] : [text])).join('\n');
}
