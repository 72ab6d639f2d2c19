import assert from 'node:assert/strict';
import { test } from 'node:test';

import { Hono } from 'hono';

import { createOperatorApp, type OperatorView } from '../../src/operator/app.ts';
import type { ConfigState, UpstreamStatus } from '../../src/operator/admin/answers.ts';
import { createMetrics } from '../../src/telemetry/metrics.ts';

const ERA: UpstreamStatus['eras']['legacy'] = {
  speaks: 'yes',
  how: 'initialize answered',
  revision: '2025-11-25',
  servedIn: 'legacy',
  tools: 0,
  prompts: 0,
  resources: 0,
  listProblems: [],
};

const CONFIG: ConfigState = {
  file: '/etc/linkspan/config.yaml',
  hash: '0123456789ab',
  loadedAt: '2026-11-20T00:00:00.000Z',
  lastGoodAt: '2026-11-19T00:00:00.000Z',
  rejected: { at: '2026-11-20T01:00:00.000Z', reason: 'config.yaml:1:1: not YAML' },
  atRestart: [],
  warnings: [],
};

const FILES: UpstreamStatus = {
  id: 'files',
  title: 'Files',
  transport: 'stdio',
  state: 'failed',
  since: '2026-11-29T03:00:00.000Z',
  reason: 'spawn npx ENOENT',
  connections: 0,
  eras: { legacy: ERA, modern: ERA },
  isListed: true,
  isForCallers: false,
  tools: 12,
  filteredTools: 0,
  prompts: 0,
  resources: 3,
};

async function get(
  path: string,
  { host = '127.0.0.1:3001', method = 'GET', ...view }: Partial<OperatorView> & { host?: string; method?: string } = {},
): Promise<Response> {
  const app = createOperatorApp({
    metrics: createMetrics('1.2.3'),
    version: '1.2.3',
    allowedHosts: ['gateway.internal'],
    startedAtMs: Date.UTC(2026, 10, 20),
    ready: () => ({ ready: true, reasons: [] }),
    upstreams: async () => [FILES],
    isLocal: true,
    admin: new Hono(),
    onRefused: () => undefined,
    config: () => CONFIG,
    ...view,
  });
  return await app.request(path, { method, headers: { host } }, {});
}

test('/livez and /startupz answer 200, whether ready or not', async () => {
  const ready = (): { ready: boolean; reasons: string[] } => ({ ready: false, reasons: ['draining'] });
  assert.equal((await get('/livez', { ready })).status, 200);
  assert.deepEqual(await (await get('/startupz', { ready })).json(), {
    started: true,
    startedAt: '2026-11-20T00:00:00.000Z',
  });
});

test('/readyz answers 503 with every reason while not ready', async () => {
  const reasons = ['upstream "files" is required and failed: spawn npx ENOENT'];
  const response = await get('/readyz', { ready: () => ({ ready: false, reasons }) });
  assert.equal(response.status, 503);
  assert.deepEqual(await response.json(), { ready: false, reasons });
  assert.equal((await get('/readyz')).status, 200);
});

test('/status shows the state, the reason and the offer of each upstream', async () => {
  const response = await get('/status');
  assert.deepEqual(await response.json(), {
    version: '1.2.3',
    startedAt: '2026-11-20T00:00:00.000Z',
    ready: true,
    reasons: [],
    config: CONFIG,
    upstreams: [FILES],
  });
});

test('/metrics is what Prometheus reads', async () => {
  const response = await get('/metrics');
  assert.match(response.headers.get('content-type') ?? '', /^text\/plain; version=0\.0\.4/);
  assert.match(await response.text(), /^linkspan_build_info\{version="1\.2\.3",commit="unknown"\} 1$/m);
});

test('/version names the program and its Node', async () => {
  assert.deepEqual(await (await get('/version')).json(), { name: 'linkspan', version: '1.2.3', node: process.version });
});

test('responses forbid caching and other origins', async () => {
  const response = await get('/status');
  assert.equal(response.headers.get('cache-control'), 'no-store');
  assert.equal(response.headers.get('access-control-allow-origin'), null);
});

const hosts = [
  { host: 'localhost:3001', status: 200 },
  { host: 'LOCALHOST', status: 200 },
  { host: '[::1]:3001', status: 200 },
  { host: '10.0.0.7:3001', status: 200 },
  { host: 'gateway.internal:3001', status: 200 },
  { host: 'evil.example', status: 403 },
  { host: 'localhost.evil.example:3001', status: 403 },
  { host: '127.0.0.1.evil.example', status: 403 },
  { host: '127.0.0.1:80@evil.example', status: 403 },
  { host: '[evil]', status: 403 },
  { host: '', status: 403 },
];

for (const { host, status } of hosts) {
  // SEC-15
  test(`a request for host "${host}" is answered ${status}`, async () => {
    assert.equal((await get('/status', { host })).status, status);
  });
}

test('other methods are refused, and unknown paths name the valid ones', async () => {
  const post = await get('/status', { method: 'POST' });
  assert.equal(post.status, 405);
  assert.equal(post.headers.get('allow'), 'GET, HEAD');
  assert.match(await (await get('/nope')).text(), /\/readyz/);
});
