import { Hono } from 'hono';

import type { Metrics } from '../telemetry/metrics.ts';
import { isOwnHost } from './host.ts';
import type { UpstreamStatus } from './status.ts';

/** Data for the operator's port. Every request reads it afresh. */
export interface OperatorView {
  readonly metrics: Metrics;
  readonly version: string;
  /** Host names accepted besides loopback names and addresses. */
  readonly allowedHosts: readonly string[];
  readonly startedAtMs: number;
  /** Returns whether to send traffic here, and all reasons against it in words. */
  ready(): { readonly ready: boolean; readonly reasons: readonly string[] };
  upstreams(): Promise<readonly UpstreamStatus[]>;
}

/** Creates the app of the operator's port: probes, metrics and status. Nothing can be changed through it. */
export function createOperatorApp(view: OperatorView): Hono {
  const app = new Hono();
  const startedAt = new Date(view.startedAtMs).toISOString();

  app.use(async (c, next) => {
    c.header('Cache-Control', 'no-store');
    c.header('X-Content-Type-Options', 'nosniff');
    if (!isOwnHost(c.req.header('host'), view.allowedHosts)) {
      return c.json({ error: 'Host not allowed. Use an address, or add the name to allowedHosts.' }, 403);
    }
    if (c.req.method !== 'GET' && c.req.method !== 'HEAD') {
      return c.json({ error: 'Only GET.' }, 405, { Allow: 'GET, HEAD' });
    }
    return await next();
  });

  app.get('/livez', (c) => c.json({ live: true }));
  app.get('/readyz', (c) => {
    const { ready, reasons } = view.ready();
    return c.json({ ready, reasons }, ready ? 200 : 503);
  });
  // The port opens after the gateway has started, so every answer means "started".
  app.get('/startupz', (c) => c.json({ started: true, startedAt }));
  app.get('/version', (c) => c.json({ name: 'linkspan', version: view.version, node: process.version }));
  app.get('/metrics', async (c) =>
    c.text(await view.metrics.text(), 200, { 'Content-Type': view.metrics.contentType }),
  );
  app.get('/status', async (c) =>
    c.json({ version: view.version, startedAt, ...view.ready(), upstreams: await view.upstreams() }),
  );
  app.notFound((c) =>
    c.json({ error: 'Not found. Try /livez, /readyz, /startupz, /metrics, /version or /status.' }, 404),
  );
  return app;
}
