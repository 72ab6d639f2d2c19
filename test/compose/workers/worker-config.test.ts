import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { deserialize, serialize } from 'node:v8';
import { parse } from 'yaml';
import { workerConfig } from '../../../src/compose/workers/worker-config.ts';
import { loadConfig } from '../../../src/config/load.ts';
import { makeCertificate } from '../../support/certificate.ts';
import { lockTextOf } from '../../support/pins.ts';

const FILE = `
mcpServers:
  local: {command: node, args: [x.js], env: {A: b}, processLimits: {openFiles: 64}}
  remote: {url: "https://x.example/mcp", headers: {X: y}, includeTools: ["a*"]}
gateway:
  workers: 4
  operator: 127.0.0.1:0
  audit: {file: audit.log}
  overload: {memory: 1GiB}
  limits: {processes: 10, sessions: 2, unsentTotal: 64MiB}
  access: {roles: {reader: {tools: ["local__*"], when: args.x == 1}}, grants: [{anyone: true, roles: [reader]}]}
`;

test('a worker has its part of the bounds of a process, and no port for operators', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-worker-config-'));
  try {
    const file = join(dir, 'linkspan.yaml');
    await writeFile(file, FILE);
    const { config } = await loadConfig(file, { env: {} });
    const { limits, overload, operator, audit, reload, ...rest } = workerConfig(config);
    assert.deepEqual(
      [limits.processes, limits.sessions, limits.unsentTotalBytes, limits.bodyTotalBytes],
      [2, 1, 16 * 1_024 * 1_024, undefined],
    );
    assert.equal(overload.memory, 256 * 1_024 * 1_024);
    const none = { ...config, limits: { ...config.limits, processes: 0 } };
    assert.equal(workerConfig(none).limits.processes, 0);
    assert.equal(limits.sessionsPerPrincipal, config.limits.sessionsPerPrincipal, 'it is counted over all workers');
    assert.deepEqual([operator, audit], [undefined, undefined]);
    assert.equal(reload.watch, false);
    assert.deepEqual(rest.upstreams, config.upstreams);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

test('every setting reaches a worker as its parent has it', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-worker-config-'));
  await using made = await makeCertificate();
  try {
    const reference = parse(await readFile(new URL('../../../config/reference.yaml', import.meta.url), 'utf8'));
    const { redis: _redis, ...gateway } = reference.gateway;
    const file = join(dir, 'linkspan.json');
    await writeFile(file, JSON.stringify({ ...reference, gateway: { ...gateway, workers: 4 } }));
    await writeFile(join(dir, 'linkspan.lock'), lockTextOf({ local: { tools: [{ name: 'read' }] } }));
    const env = { HOME: dir, EXAMPLE_TOKEN: 'x', EXAMPLE_CERT: made.cert, EXAMPLE_KEY: made.key };
    const { config } = await loadConfig(file, { env });
    assert.equal(config.lock?.pins.lists.get('local')?.length, 1);
    const sent = workerConfig(config);
    // As the pipe to a worker does. The comparison includes the classes of all objects.
    assert.deepEqual(deserialize(serialize(sent)), sent);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});
