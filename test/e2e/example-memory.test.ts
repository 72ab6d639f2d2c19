import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { loadConfig } from '../../src/config/load.ts';
import { startGateway } from '../support/gateway.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { connectSdk1 } from '../support/sdk-client.ts';

const EXAMPLE = fileURLToPath(new URL('../../config/example.yaml', import.meta.url));

for (const env of [{ HOME: '/home/me' }, { HOME: '/home/me', XDG_STATE_HOME: '/state', TMPDIR: '/tmp' }, {}]) {
  test(`the example keeps notes beside its private state: ${JSON.stringify(env)}`, async () => {
    const { config } = await loadConfig(EXAMPLE, { env });
    const target = config.upstreams.find(({ id }) => id === 'memory')?.target;
    assert.ok(target?.kind === 'stdio');
    assert.equal(dirname(target.env['MEMORY_FILE_PATH'] ?? ''), dirname(config.stateDir));
  });
}

const CLIENTS = 4;
const CALLS = 15;

test('server-memory as in the example keeps the changes of many calls at once', { timeout: 120_000 }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-memory-'));
  t.after(() => rm(dir, { recursive: true }));
  const { config } = await loadConfig(EXAMPLE, { env: process.env });
  const example = config.upstreams.find(({ id }) => id === 'memory');
  assert.ok(example !== undefined);
  const { isolation, concurrency, queue } = example;
  // The calls take longer than the default wait on a slow machine.
  const settings = { isolation, concurrency, queue, queueWait: '1m' };
  await using gateway = await startGateway({
    mcpServers: { memory: { ...referenceServers(dir).memory, ...settings } },
  });
  await using clients = new AsyncDisposableStack();
  const opened = Array.from({ length: CLIENTS }, async () => clients.use(await connectSdk1(gateway.endpoint())));
  const sdks = await Promise.all(opened);
  const names = sdks.flatMap((_, client) => Array.from({ length: CALLS }, (_, call) => `${client}-${call}`));
  const added = names.map(async (name, index) => {
    const entities = [{ name, entityType: 'test', observations: [] }];
    return await sdks[index % CLIENTS]?.client.callTool({
      name: 'memory__create_entities',
      arguments: { entities },
    });
  });
  for (const one of await Promise.all(added)) assert.notEqual(one?.isError, true);
  const graph = await sdks[0]?.client.callTool({ name: 'memory__read_graph', arguments: {} });
  const text = JSON.stringify(graph);
  assert.deepEqual(
    names.filter((name) => !text.includes(`\\"${name}\\"`)),
    [],
  );
});
