import type { HttpBindings } from '@hono/node-server';
import type { Logger } from 'pino';
import { RESPONSE_ALREADY_SENT } from '@hono/node-server/utils/response';
import { type Context, Hono } from 'hono';
import {
  AUTHORIZATION_SERVER_PATH,
  issuerMetadataUrl,
  metadataPath,
  protectedResourceMetadata,
} from '../../auth/metadata.ts';
import type { Config } from '../../config/values/config.ts';
import { GatewayError, toGatewayError } from '../../errors.ts';
import type { ClientResponse } from '../../gateway/front/client-http.ts';
import type { Front } from '../../gateway/front/front.ts';
import type { Principal } from '../../policy/principal.ts';
import { Admission, type AdmissionParts } from '../admission/admission.ts';
import { McpEndpoint, type McpParts } from '../mcp.ts';
import { postFastPath } from './post-fast-path.ts';
import { bodyBudgetLimits } from '../memory/edge-memory.ts';
import { EdgeTimers } from '../streams/edge-timers.ts';
import { refuse } from '../admission/refusal.ts';
import { SseEndpoint } from '../sse.ts';
import { getForm } from '../admission/accept.ts';
import { browserHint } from '../admission/browser-hint.ts';

/** The endpoints that clients speak to. They keep streams and events, and outlive every {@link HttpApp} in front of them. */
export interface Endpoints {
  readonly mcp: McpEndpoint;
  readonly sse: SseEndpoint;
  /** Applies the settings of another config that do not concern open streams. */
  setConfig(config: ReturnType<McpParts['settings']>): void;
  /** Ends open streams of these principals on which no answer is due. */
  endStreams(isConcerned: (principal: Principal) => boolean): void;
  /** Refuses new requests. Requests in flight continue, and so do the streams that clients could open nowhere else. */
  refuseNew(): void;
  /** Refuses new requests, and ends streams on which no answer is due. Requests in flight continue. */
  drain(isForRestart?: boolean): void;
}

export interface EndpointsParts extends Omit<McpParts, 'timers' | 'settings' | 'onFailure'> {
  readonly config: Config;
  readonly log: Logger;
}

export interface AppParts extends AdmissionParts {
  readonly front: Front;
  readonly endpoints: Endpoints;
  /** Returns the JWK Set of tokens that upstreams get from the gateway; undefined if none do. */
  readonly jwks?: () => Promise<object | undefined>;
}

/** The public keys of tokens that upstreams get from the gateway. */
const JWKS_PATH = '/.well-known/jwks.json';

type Env = { Bindings: HttpBindings };

export interface HttpApp {
  readonly app: Hono<Env>;
  /** Handles a request that does not need the router. Returns false for other requests. */
  tryFastPath(env: HttpBindings): boolean;
  /** Counts a connection that was closed because of the limit. */
  onConnectionDropped(): void;
}

function notAllowed(allow: string): Response {
  return refuse(new GatewayError('method-not-allowed', { message: `use ${allow}` }), undefined, { allow });
}

export function createEndpoints(parts: EndpointsParts): Endpoints {
  // The endpoints outlive the config.
  const { config, log, ...lasting } = parts;
  const { memory } = lasting;
  const timers = new EdgeTimers(config.sessions.keepAliveMs);
  let settings: ReturnType<McpParts['settings']> = config;
  const shared = { ...lasting, timers, settings: () => settings };
  const mcp = new McpEndpoint({ ...shared, onFailure: failureHandler(log) });
  const sse = new SseEndpoint({ ...shared, log, streams: mcp.streams });
  return {
    mcp,
    sse,
    setConfig(next) {
      settings = next;
      const bodyLimits = bodyBudgetLimits(next.limits);
      memory.bodies.setLimits(bodyLimits);
      memory.running.setLimits(bodyLimits);
    },
    endStreams(isConcerned) {
      mcp.streams.endOf(isConcerned);
      sse.endStreams(isConcerned);
    },
    refuseNew() {
      mcp.refuseNew();
      sse.drain();
    },
    drain(isForRestart) {
      mcp.drain(isForRestart);
      sse.drain();
    },
  };
}

/** Returns a function that logs a failure, and returns the response to the request whose handling threw. */
function failureHandler(log: Logger): (thrown: unknown, outgoing: ClientResponse) => Response {
  return (thrown, outgoing) => {
    log.error({ err: thrown }, 'request failed');
    if (!outgoing.headersSent) return refuse(toGatewayError(thrown));
    outgoing.destroy();
    return RESPONSE_ALREADY_SENT;
  };
}

/** Creates the client's edge over HTTP: admission and routes. It keeps nothing, so that a new one can take its place. */
export function createApp(parts: AppParts): HttpApp {
  const { front, config, log, metrics } = parts;
  const { mcp, sse } = parts.endpoints;
  const { bodyBytes } = config.limits;
  const admission = new Admission(parts);
  const onFailure = failureHandler(log);

  const handleMcp = async (env: HttpBindings, view: string): Promise<Response> => {
    const admitted = await admission.admit(env, view);
    if (admitted instanceof Response) return admitted;
    return await mcp.answer(env, view, admitted, admission.endpoint(view));
  };

  const openSse = async (env: HttpBindings, view: string): Promise<Response> => {
    const admitted = await admission.admitSse(env, view);
    if (admitted instanceof Response) return admitted;
    if (!front.hasView(view, admitted.principal)) return mcp.refuseEndpoint(view, admitted.principal);
    // This status tells a client that tried Streamable HTTP to use HTTP+SSE.
    return env.incoming.method === 'GET' ? sse.open(env, view, admitted) : notAllowed('GET');
  };

  const app = new Hono<Env>();

  /** Serves what anybody may read. Without it, nothing is there. */
  const servePublic = (
    path: string,
    find: (c: Context<Env>) => Response | undefined | Promise<Response | undefined>,
  ) => {
    app.all(path, async (c) => {
      const headers = admission.checkSender(c.env);
      if (headers instanceof Response) return headers;
      const found = await find(c);
      if (found === undefined) return await c.notFound();
      return c.req.method === 'GET' || c.req.method === 'HEAD' ? found : notAllowed('GET, HEAD');
    });
  };
  const viewIn = (c: Context<Env>) => c.req.param('view') ?? '';
  const serveMetadata = (path: string, endpointOf: (view: string) => string) =>
    servePublic(metadataPath(path), (c) => {
      const metadata = protectedResourceMetadata(endpointOf(viewIn(c)), config.auth);
      return metadata && c.json(metadata, 200, { 'Cache-Control': 'max-age=3600' });
    });

  serveMetadata('/', (view) => admission.endpoint(view));
  // Some SDKs append a slash to every URL.
  for (const path of ['/mcp', '/mcp/', '/mcp/:view', '/mcp/:view/']) {
    app.all(path, (c) => handleMcp(c.env, viewIn(c)));
    serveMetadata(path, (view) => admission.endpoint(view));
  }
  for (const path of config.legacySse ? ['/sse', '/sse/', '/sse/:view', '/sse/:view/'] : []) {
    app.all(path, (c) => openSse(c.env, viewIn(c)));
    serveMetadata(path, (view) => admission.sseEndpoint(view));
  }
  app.all('/messages', async (c) => {
    const id = c.req.query('sessionId');
    // Streams that were opened by an earlier config go on until their answers are written.
    if (!config.legacySse && !sse.mayHave(id)) return await c.notFound();
    const admitted = await admission.admitSse(c.env, sse.viewOf(id));
    if (admitted instanceof Response) return admitted;
    return c.req.method === 'POST' ? await sse.post(c.env, id, admitted) : notAllowed('POST');
  });
  servePublic(AUTHORIZATION_SERVER_PATH, (c) => {
    const url = issuerMetadataUrl(config.auth);
    return url === undefined ? undefined : c.redirect(url, 302);
  });
  servePublic(JWKS_PATH, async (c) => {
    const set = await parts.jwks?.();
    return set && c.json(set, 200, { 'Cache-Control': 'max-age=300' });
  });

  app.notFound((c) => {
    const headers = admission.checkSender(c.env);
    if (headers instanceof Response) return headers;
    const endpoint = admission.endpoint('');
    const isBrowser = c.req.method === 'GET' && getForm(headers.accept) === 'hint';
    if (isBrowser) return browserHint(endpoint, 404);
    return refuse(
      new GatewayError('not-found', { message: `nothing is served here; the MCP endpoint is ${endpoint}` }),
    );
  });
  app.onError((error, c) => onFailure(error, c.env.outgoing));

  return {
    app,
    tryFastPath: postFastPath({ front, admission, mcp, bodyBytes, onFailure }),
    onConnectionDropped: () => metrics.countShed('connections'),
  };
}
