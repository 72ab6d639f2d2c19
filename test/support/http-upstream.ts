import type { ServerResponse } from 'node:http';
import { event, json, type Received, serve, stream, type Upstream } from '../fixtures/servers/http-harness.ts';

type Members = Readonly<Record<string, unknown>>;

/** One request to a scripted server. */
export interface Asked extends Received {
  readonly params: Members;
  readonly response: ServerResponse;
}

/** What a server says; everything else is as an ordinary server of its era has it. */
export interface ServerScript {
  readonly capabilities?: Members;
  readonly tools?: readonly Members[];
  readonly prompts?: readonly Members[];
  readonly resources?: readonly Members[];
  readonly resourceTemplates?: readonly Members[];
  /** 2026-07-28: `ttlMs` and `cacheScope` of the lists and of discover. */
  readonly caching?: Members;
  /** By method; undefined leaves it to the script to write the response. */
  readonly answers?: Readonly<Record<string, (asked: Asked) => Members | undefined>>;
}

export interface HttpUpstream extends Upstream {
  /** The requests of this method so far. */
  requests(method: string): readonly Received[];
  /** On every open `subscriptions/listen` stream. */
  tell(method: string, params?: Members): void;
}

const LISTS = {
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
} as const;

function isList(method: string | undefined): method is keyof typeof LISTS {
  return method !== undefined && Object.hasOwn(LISTS, method);
}

function membersOf(value: unknown): Members {
  return typeof value === 'object' && value !== null ? { ...value } : {};
}

export function resultText(id: unknown, result: Members): string {
  return JSON.stringify({ jsonrpc: '2.0', id, result });
}

export function errorText(id: unknown, error: Members): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error });
}

function capabilitiesOf({ capabilities, tools, prompts, resources, resourceTemplates }: ServerScript): Members {
  if (capabilities !== undefined) return capabilities;
  return {
    ...(tools === undefined ? {} : { tools: { listChanged: true } }),
    ...(prompts === undefined ? {} : { prompts: { listChanged: true } }),
    ...(resources === undefined && resourceTemplates === undefined ? {} : { resources: { subscribe: true } }),
  };
}

async function started(ordinary: (asked: Asked) => Members | undefined, script: ServerScript): Promise<Upstream> {
  return serve((request, response) => {
    const { params } = request.body === '' ? {} : membersOf(JSON.parse(request.body));
    const asked = { ...request, params: membersOf(params), response };
    const { rpc = '' } = request;
    const answer = script.answers?.[rpc] ?? ordinary;
    const result = answer(asked);
    if (result !== undefined) json(response, resultText(request.id, result));
  });
}

function requestsIn({ received }: Upstream, method: string): readonly Received[] {
  return received.items.filter(({ rpc }) => rpc === method);
}

/** A server of 2026-07-28 over HTTP. */
export async function modernUpstream(script: ServerScript): Promise<HttpUpstream> {
  const listeners = new Map<ServerResponse, unknown>();
  const tell = (response: ServerResponse, id: unknown, method: string, params: Members) => {
    const _meta = { 'io.modelcontextprotocol/subscriptionId': id };
    response.write(event(JSON.stringify({ jsonrpc: '2.0', method, params: { ...params, _meta } })));
  };
  const caching = { ttlMs: 0, cacheScope: 'private', ...script.caching };
  const upstream = await started(({ rpc, id, params, response }) => {
    if (rpc === 'server/discover') {
      const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'scripted', version: '1' } };
      const supportedVersions = ['2026-07-28'];
      return { resultType: 'complete', supportedVersions, capabilities: capabilitiesOf(script), ...caching, _meta };
    }
    if (isList(rpc)) return { resultType: 'complete', [LISTS[rpc]]: script[LISTS[rpc]] ?? [], ...caching };
    if (rpc === 'subscriptions/listen') {
      stream(response);
      listeners.set(response, id);
      response.once('close', () => listeners.delete(response));
      tell(response, id, 'notifications/subscriptions/acknowledged', { notifications: params['notifications'] });
      return undefined;
    }
    response.writeHead(404, { 'content-type': 'application/json' });
    response.end(errorText(id, { code: -32601, message: 'Method not found' }));
    return undefined;
  }, script);
  return {
    ...upstream,
    requests: (method) => requestsIn(upstream, method),
    tell: (method, params = {}) => {
      for (const [response, id] of listeners) tell(response, id, method, params);
    },
  };
}

/** A server of 2025-11-25 over HTTP, without sessions and without a stream of its own. */
export async function legacyUpstream(script: ServerScript): Promise<HttpUpstream> {
  const upstream = await started(({ method, rpc, id, response }) => {
    if (method !== 'POST') {
      response.writeHead(405).end();
      return undefined;
    }
    if (rpc === 'initialize') {
      const serverInfo = { name: 'scripted', version: '1' };
      return { protocolVersion: '2025-11-25', capabilities: capabilitiesOf(script), serverInfo };
    }
    if (isList(rpc)) return { [LISTS[rpc]]: script[LISTS[rpc]] ?? [] };
    if (id === undefined) response.writeHead(202).end();
    else json(response, errorText(id, { code: -32601, message: 'Method not found' }));
    return undefined;
  }, script);
  return {
    ...upstream,
    requests: (method) => requestsIn(upstream, method),
    tell: () => {
      throw new Error('it has no stream');
    },
  };
}
