import type { ElicitRequest as ModernElicitRequest } from '@modelcontextprotocol/client';
import { ElicitRequestSchema, type ElicitResult } from '@modelcontextprotocol/sdk/types.js';
import { connectSdk1, connectSdk2 } from '../support/sdk-client.ts';

export const FRONTS = ['2025-11-25', '2026-07-28'] as const;
/** The revision of the client in front of the gateway. */
export type FrontRevision = (typeof FRONTS)[number];

interface Named {
  readonly name: string;
  readonly inputSchema: unknown;
}

/** A client in front of the target, independent of the SDK. */
export interface Front extends AsyncDisposable {
  /** Returns the tools; none if the server declares none. */
  tools(): Promise<readonly Named[]>;
  call(name: string, args?: Readonly<Record<string, unknown>>): Promise<unknown>;
  resources(): Promise<readonly string[]>;
  read(uri: string): Promise<unknown>;
  prompts(): Promise<readonly string[]>;
  prompt(name: string): Promise<unknown>;
}

/** An action of the user while the form is open. */
export type Interruption = (front: Front) => Promise<unknown>;

const CAPABILITIES = { elicitation: { form: {} } };

/** Accepts a form with its default values, and yes. */
function fillIn(params: ModernElicitRequest['params']): ElicitResult {
  if (params.mode === 'url') return { action: 'decline' };
  const content = Object.entries(params.requestedSchema.properties).flatMap(([name, field]) => {
    if (field.default !== undefined) return [[name, field.default] as const];
    return field.type === 'boolean' ? [[name, true] as const] : [];
  });
  return { action: 'accept', content: Object.fromEntries(content) };
}

/** Connects version 1 of the official SDK for sessions, version 2 for 2026-07-28. */
export async function connectFront(revision: FrontRevision, url: string, interrupt?: Interruption): Promise<Front> {
  let front: Front | undefined;
  let interruption = interrupt;
  async function answer(params: ModernElicitRequest['params']): Promise<ElicitResult> {
    const first = interruption;
    interruption = undefined;
    if (front !== undefined) await first?.(front);
    return fillIn(params);
  }
  const connected =
    revision === '2026-07-28'
      ? await connectSdk2(url, { mode: { pin: revision }, capabilities: CAPABILITIES }, (client) => {
          client.setRequestHandler('elicitation/create', ({ params }) => answer(params));
        })
      : await connectSdk1(url, { capabilities: CAPABILITIES }, (client) => {
          client.setRequestHandler(ElicitRequestSchema, ({ params }) => answer(params));
        });
  const { client } = connected;
  front = {
    async tools() {
      if (client.getServerCapabilities()?.tools === undefined) return [];
      return (await client.listTools()).tools;
    },
    call: (name, args = {}) => client.callTool({ name, arguments: { ...args } }),
    resources: async () => (await client.listResources()).resources.map(({ uri }) => uri),
    read: (uri) => client.readResource({ uri }),
    prompts: async () => (await client.listPrompts()).prompts.map(({ name }) => name),
    prompt: (name) => client.getPrompt({ name }),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
  return front;
}
