import type { IncomingHttpHeaders, ServerResponse } from 'node:http';
import type { UpstreamConfig } from '../../src/config/values/upstream-config.ts';
import {
  event,
  json,
  type Received,
  serve,
  stream,
  type Upstream,
  Waitlist,
} from '../fixtures/servers/http-harness.ts';
import { type Members, membersOf } from './members.ts';

/** The scripted parts of a server; all else is as in an ordinary server of its era. */
export interface ServerScript {
  readonly capabilities?: Members;
  readonly tools?: readonly Members[];
  readonly prompts?: readonly Members[];
  readonly resources?: readonly Members[];
  readonly resourceTemplates?: readonly Members[];
  /** 2026-07-28: `ttlMs` and `cacheScope` of the lists and of `server/discover`. */
  readonly caching?: Members;
  /** 2026-07-28: the part of a `subscriptions/listen` that the server acknowledges; by default all of it. */
  readonly honoured?: (filter: Members) => Members;
  /** Responses by method. If one returns undefined, the script writes the response. */
  readonly answers?: Readonly<Record<string, (served: Served) => Members | undefined>>;
  /** 2026-07-28: writes the response to every other request; by default "Method not found". */
  readonly request?: (served: Served) => void;
}

export interface HttpUpstream extends Omit<Upstream, 'received'> {
  readonly received: Waitlist<Served>;
  /** The entry for a config file. */
  readonly config: Pick<UpstreamConfig, 'target' | 'era'>;
  /** Returns the requests of this method so far. */
  requests(method: string): readonly Served[];
  /** The number of `subscriptions/listen` streams that are open. */
  listens(): readonly Served[];
  /** Sends a message on each open `subscriptions/listen` stream. */
  notify(method: string, params?: Members): void;
}

const LISTS = {
  'tools/list': 'tools',
  'prompts/list': 'prompts',
  'resources/list': 'resources',
  'resources/templates/list': 'resourceTemplates',
} as const;

const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';

function isList(method: string | undefined): method is keyof typeof LISTS {
  return method !== undefined && Object.hasOwn(LISTS, method);
}

export function resultText(id: unknown, result: Members): string {
  return JSON.stringify({ jsonrpc: '2.0', id, result });
}

export function errorText(id: unknown, error: Members): string {
  return JSON.stringify({ jsonrpc: '2.0', id, error });
}

/** One request to a scripted server, with the ways in which a server of 2026-07-28 can respond. */
export class Served {
  readonly method: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
  readonly rpc: string | undefined;
  readonly id: unknown;
  readonly closed: Promise<void>;
  readonly params: Members;
  readonly response: ServerResponse;

  constructor({ method, headers, body, rpc, id, closed }: Received, response: ServerResponse) {
    this.method = method;
    this.headers = headers;
    this.body = body;
    this.rpc = rpc;
    this.id = id;
    this.closed = closed;
    this.params = membersOf(body === '' ? undefined : membersOf(JSON.parse(body))['params']);
    this.response = response;
  }

  get meta(): Members {
    return membersOf(this.params['_meta']);
  }

  notify(method: string, params: object): void {
    this.#open();
    this.response.write(event(JSON.stringify({ jsonrpc: '2.0', method, params })));
  }

  /** Sends a notification on the subscription stream that this request opened. */
  notifySubscriber(method: string, params: object): void {
    this.notify(method, { ...params, _meta: { [SUBSCRIPTION]: this.id } });
  }

  result(value: Members): void {
    this.#end(resultText(this.id, { resultType: 'complete', ...value }), 200);
  }

  error(code: number, message: string, data?: unknown): void {
    this.#end(errorText(this.id, { code, message, data }), code === -32601 ? 404 : 400);
  }

  /** Breaks the stream before its end. */
  breakOff(): void {
    this.#open();
    setImmediate(() => this.response.destroy());
  }

  #open(): void {
    if (!this.response.headersSent) stream(this.response);
  }

  #end(text: string, status: number): void {
    if (this.response.headersSent) this.response.end(event(text));
    else this.response.writeHead(status, { 'content-type': 'application/json' }).end(text);
  }
}

/** Returns an answer of a server script: this error, with HTTP 200. */
export function refuseWith(error: object): ({ id, response }: Served) => undefined {
  return ({ id, response }) => {
    response.writeHead(200, { 'content-type': 'application/json' }).end(errorText(id, { ...error }));
  };
}

function capabilitiesOf({ capabilities, tools, prompts, resources, resourceTemplates }: ServerScript): Members {
  if (capabilities !== undefined) return capabilities;
  return {
    ...(tools === undefined ? {} : { tools: { listChanged: true } }),
    ...(prompts === undefined ? {} : { prompts: { listChanged: true } }),
    ...(resources === undefined && resourceTemplates === undefined ? {} : { resources: { subscribe: true } }),
  };
}

async function started(
  era: 'legacy' | 'modern',
  script: ServerScript,
  ordinary: (served: Served) => Members | undefined,
): Promise<HttpUpstream> {
  const received = new Waitlist<Served>();
  const upstream = await serve((request, response) => {
    const served = new Served(request, response);
    received.push(served);
    const answer = script.answers?.[served.rpc ?? ''] ?? ordinary;
    const result = answer(served);
    if (result !== undefined) json(response, resultText(served.id, result));
  });
  const requests = (method: string) => received.items.filter(({ rpc }) => rpc === method);
  const listens = () => requests('subscriptions/listen').filter(({ response }) => !response.closed);
  return {
    ...upstream,
    received,
    config: { target: { kind: 'http', url: upstream.url, headers: {} }, era },
    requests,
    listens,
    notify: (method, params = {}) => {
      for (const listen of listens()) listen.notifySubscriber(method, params);
    },
  };
}

/** Starts a server of 2026-07-28 over HTTP. */
export async function modernUpstream(script: ServerScript): Promise<HttpUpstream> {
  const { honoured = (filter) => filter, request = (served) => served.error(-32601, 'Method not found') } = script;
  const caching = { ttlMs: 0, cacheScope: 'private', ...script.caching };
  return await started('modern', script, (served) => {
    const { rpc, params } = served;
    if (rpc === 'server/discover') {
      const _meta = { 'io.modelcontextprotocol/serverInfo': { name: 'scripted', version: '1' } };
      const supportedVersions = ['2026-07-28'];
      return { resultType: 'complete', supportedVersions, capabilities: capabilitiesOf(script), ...caching, _meta };
    }
    if (isList(rpc)) return { resultType: 'complete', [LISTS[rpc]]: script[LISTS[rpc]] ?? [], ...caching };
    if (rpc === 'subscriptions/listen') {
      const notifications = honoured(membersOf(params['notifications']));
      served.notifySubscriber('notifications/subscriptions/acknowledged', { notifications });
    } else request(served);
    return undefined;
  });
}

/** Starts a server of 2025-11-25 over HTTP, without sessions and without a GET stream. */
export async function legacyUpstream(script: ServerScript): Promise<HttpUpstream> {
  return await started('legacy', script, ({ method, rpc, id, response }) => {
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
  });
}
