import { isIP } from 'node:net';
import type { HttpBindings } from '@hono/node-server';
import { Hono } from 'hono';

import { type Metrics, METRICS_TYPE } from '../telemetry/metrics.ts';
import { type AdminApp, answerWith } from './admin/admin-app.ts';
import type { OnRefused } from './admin/access.ts';
import { ADMIN_PATH } from './admin/routes.ts';
import type { ConfigState } from './admin/answers.ts';

/** The readiness of a gateway for traffic, with all reasons against it in words. */
export interface Readiness {
  readonly ready: boolean;
  readonly reasons: readonly string[];
}

interface Env {
  Bindings: Partial<HttpBindings>;
}

/** Data for the operator's port. Every request reads it afresh. */
export interface OperatorView {
  readonly metrics: Pick<Metrics, 'text'>;
  readonly version: string;
  /** Host names accepted besides loopback names and addresses. */
  readonly allowedHosts: readonly string[];
  readonly startedAtMs: number;
  /** True if only this machine reaches the port. Otherwise names and reasons are shown by the admin API alone. */
  readonly isLocal: boolean;
  readonly admin: AdminApp;
  readonly onRefused: OnRefused;
  ready(): Readiness | Promise<Readiness>;
  /** Returns the status of each upstream, as JSON. */
  upstreams(): Promise<readonly object[]>;
  /** The running config and the one on disk. */
  config(): ConfigState;
}

/**
 * Returns whether a `Host` header names this gateway. A web page rebound to our address (DNS rebinding) still sends its
 * own host name. Addresses are accepted, because no page can use one as its name, and probes use them.
 */
function isOwnHost(header: string | undefined, allowed: readonly string[]): boolean {
  const [, name = ''] = /^(\[[\da-fA-F:.]+\]|[^:]+)(?::\d+)?$/.exec(header ?? '') ?? [];
  const host = name.toLowerCase();
  if (host === 'localhost' || allowed.some((each) => each.toLowerCase() === host)) return true;
  return isIP(host.startsWith('[') ? host.slice(1, -1) : host) !== 0;
}

/**
 * Creates the app of the operator's port. Probes and metrics are open. Status is open if only this machine reaches the port. The admin API
 * needs the key of an operator.
 */
export function createOperatorApp(view: OperatorView): Hono<Env> {
  const app = new Hono<Env>();
  const startedAt = new Date(view.startedAtMs).toISOString();

  app.use(async (c, next) => {
    c.header('Cache-Control', 'no-store');
    c.header('X-Content-Type-Options', 'nosniff');
    const isAdmin = c.req.path.startsWith(`${ADMIN_PATH}/`);
    if (!isOwnHost(c.req.header('host'), view.allowedHosts)) {
      view.onRefused('forbidden', c.env.incoming);
      const message = 'Host not allowed. Use an address, or add the name to allowedHosts.';
      return c.json(isAdmin ? { error: 'forbidden', message } : { error: message }, 403);
    }
    if (!isAdmin && c.req.method !== 'GET' && c.req.method !== 'HEAD') {
      return c.json({ error: 'Only GET.' }, 405, { Allow: 'GET, HEAD' });
    }
    return await next();
  });

  app.get('/livez', (c) => c.json({ live: true }));
  app.get('/readyz', async (c) => {
    const { ready, reasons } = await view.ready();
    return answerWith(c, view.isLocal ? { ready, reasons } : { ready }, ready ? 200 : 503);
  });
  // The port opens after the gateway has started, so every answer means "started".
  app.get('/startupz', (c) => c.json({ started: true, startedAt }));
  app.get('/version', (c) => c.json({ name: 'linkspan', version: view.version, node: process.version }));
  app.get('/metrics', async (c) => c.text(await view.metrics.text(), 200, { 'Content-Type': METRICS_TYPE }));
  app.get('/status', async (c) => {
    if (!view.isLocal) {
      const message = `Other machines reach this port, so the status needs the key of an operator: ${ADMIN_PATH}/status and ${ADMIN_PATH}/upstreams.`;
      return c.json({ error: message }, 403);
    }
    const { version } = view;
    const ready = await view.ready();
    return answerWith(c, { version, startedAt, ...ready, config: view.config(), upstreams: await view.upstreams() });
  });
  app.route(ADMIN_PATH, view.admin);
  app.notFound((c) =>
    c.json(
      { error: `Not found. Try /livez, /readyz, /startupz, /metrics, /version, /status or ${ADMIN_PATH}/status.` },
      404,
    ),
  );
  return app;
}
