import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { workerConfig } from '../../../src/compose/workers/worker-config.ts';
import { loadConfig } from '../../../src/config/load.ts';

const FILE = `
mcpServers:
  local: {command: node, args: [x.js], env: {A: b}, processLimits: {openFiles: 64}}
  remote: {url: "https://x.example/mcp", headers: {X: y}, includeTools: ["a*"]}
gateway:
  workers: 4
  operator: 127.0.0.1:0
  audit: {file: audit.log}
  limits: {processes: 10, sessions: 2, unsentTotal: 64MiB}
  access: {roles: {reader: {tools: ["local__*"], when: args.x == 1}}, grants: [{anyone: true, roles: [reader]}]}
`;

test('a worker has its part of the bounds of a process, and no port for operators', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-worker-config-'));
  try {
    const file = join(dir, 'linkspan.yaml');
    await writeFile(file, FILE);
    const { config } = await loadConfig(file, { env: {} });
    const { limits, operator, audit, reload, ...rest } = workerConfig(config);
    assert.deepEqual(
      [limits.processes, limits.sessions, limits.unsentTotalBytes, limits.bodyTotalBytes],
      [2, 1, 16 * 1_024 * 1_024, undefined],
    );
    assert.equal(limits.sessionsPerPrincipal, config.limits.sessionsPerPrincipal, 'it is counted over all workers');
    assert.deepEqual([operator, audit], [undefined, undefined]);
    assert.equal(reload.watch, false);
    assert.deepEqual(rest.upstreams, config.upstreams);
    assert.deepEqual(structuredClone(workerConfig(config)), workerConfig(config), 'it can be sent to a worker');
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
