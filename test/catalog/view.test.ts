import assert from 'node:assert/strict';
import { test } from 'node:test';
import { viewsOf } from '../../src/catalog/view.ts';
import { CLIENT_FEATURES, type Config, type UpstreamConfig } from '../../src/config/config.ts';

function upstreamConfig(id: string, more: Partial<UpstreamConfig> = {}): UpstreamConfig {
  return {
    id,
    title: id.toUpperCase(),
    target: { kind: 'http', url: 'http://127.0.0.1:1/mcp', headers: {} },
    prefix: `${id}__`,
    rawUris: false,
    isolation: 'session',
    clientFeatures: CLIENT_FEATURES,
    era: 'auto',
    start: 'lazy',
    required: false,
    timeouts: { startMs: 1, connectMs: 1, firstByteMs: 1, callMs: 1, maxMs: 1 },
    concurrency: 1,
    queue: 1,
    queueMs: 1,
    idleMs: 1,
    maxConnections: 1,
    includeTools: undefined,
    excludeTools: [],
    problem: undefined,
    ...more,
  };
}

const config: Config = {
  file: '/linkspan.yaml',
  listen: { host: '127.0.0.1', port: 0 },
  operator: undefined,
  operatorMayMove: false,
  accessLog: 'all',
  publicUrl: undefined,
  allowedHosts: [],
  allowedOrigins: [],
  stateDir: '/state',
  auth: { jwt: [], apiKeys: [] },
  operatorKeys: [],
  limits: {
    bodyBytes: 1,
    messageBytes: 1,
    processes: 1,
    sessionsPerPrincipal: 1,
    parkedPerPrincipal: 1,
    parkedPerUpstream: 1,
    inFlightPerSession: 1,
    streamsPerPrincipal: 1_000,
  },
  sessions: { idleMs: 1, maxAgeMs: 1, parkMs: 1, keepAliveMs: 1, eventLimit: 1, eventLimitBytes: 1 },
  legacySse: true,
  logLevel: 'info',
  names: { maxChars: 48 },
  instructions: { maxChars: 1000 },
  lists: { waitMs: 8_000 },
  reload: { watch: true, drainMs: 60_000 },
  upstreams: [upstreamConfig('a', { excludeTools: ['drop_*'] }), upstreamConfig('b')],
  profiles: [{ id: 'mine', upstreams: ['b', 'a'], includeTools: ['b__*'], excludeTools: [], renames: { b__x: 'x' } }],
};

const views = viewsOf(config);

test('there is an endpoint for all upstreams, for each one and for each profile', () => {
  assert.deepEqual([...views.keys()], ['', 'a', 'b', 'mine']);
});

test('D5 the merged endpoint has every upstream in config order as configured', () => {
  assert.deepEqual(
    views.get('')?.upstreams.map(({ id, title, prefix, rawUris }) => [id, title, prefix, rawUris]),
    [
      ['a', 'A', 'a__', false],
      ['b', 'B', 'b__', false],
    ],
  );
});

test("D5 an upstream's own endpoint renames nothing, and its filter still holds", () => {
  const [only, ...others] = views.get('a')?.upstreams ?? [];
  assert.deepEqual(others, []);
  assert.deepEqual([only?.prefix, only?.rawUris, only?.excludeTools], ['', true, ['drop_*']]);
});

test('a profile has its own order, filter and renames', () => {
  const mine = views.get('mine');
  assert.deepEqual(
    mine?.upstreams.map(({ id }) => id),
    ['b', 'a'],
  );
  assert.deepEqual([mine?.includeTools, mine?.renames], [['b__*'], { b__x: 'x' }]);
});
