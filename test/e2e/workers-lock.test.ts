import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { type Ran, runCli } from '../support/cli.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { marker } from '../support/leftovers.ts';
import { waitUntil } from '../support/wait-until.ts';
import { askEachWorker, metricOf, workersOf } from '../support/workers.ts';

const OPTIONS = { timeout: 180_000 };
const LISTED = join(import.meta.dirname, '../fixtures/servers/listed-stdio.ts');

const tool = (name: string) => ({ name, description: `Does ${name}.`, inputSchema: { type: 'object' } });

/** A folder with a config, the lists of its server `files`, and a lock file if `lock` was run. */
interface Place extends AsyncDisposable {
  list(...names: readonly string[]): Promise<void>;
  lock(): Promise<Ran>;
  start(workers: number, lock?: object): Promise<RunningGateway>;
}

async function place(): Promise<Place> {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-workers-lock-'));
  const lists = join(dir, 'lists.json');
  const mcpServers = { files: { command: process.execPath, args: [LISTED, lists], env: marker() } };
  return {
    list: (...names) => writeFile(lists, JSON.stringify({ tools: names.map(tool) })),
    lock: async () => {
      const file = join(dir, 'lock.json');
      await writeFile(file, JSON.stringify({ mcpServers }));
      return await runCli(['lock', '--config', file], dir, { HOME: dir }, 60_000);
    },
    start: (workers, lock) =>
      startGateway({ mcpServers, gateway: { workers, ...(lock === undefined ? {} : { lock }) } }, { dir }),
    [Symbol.asyncDispose]: () => rm(dir, { recursive: true, force: true }),
  };
}

async function request(gateway: RunningGateway, session: string, method: string, params = {}): Promise<string> {
  return JSON.stringify(messagesOf(await post(gateway.endpoint(), rpc(1, method, params), session)));
}

const call = (gateway: RunningGateway, session: string, name: string) =>
  request(gateway, session, 'tools/call', { name, arguments: {} });

/** Lists and calls at each worker, in a session that one of them has. */
async function useEachWorker(gateway: RunningGateway, session: string): Promise<void> {
  for (const text of await askEachWorker(gateway, () => request(gateway, session, 'tools/list')))
    assert.match(text, /"files__read"/);
  for (const text of await askEachWorker(gateway, () => call(gateway, session, 'files__read')))
    assert.match(text, /"text":"read"/);
}

// SEC-33
test('workers serve what a lock file beside the config pins', OPTIONS, async () => {
  await using at = await place();
  await at.list('read', 'write');
  assert.equal((await at.lock()).code, 0);
  await using gateway = await at.start(2);
  await useEachWorker(gateway, await initialize(gateway.endpoint()));
});

// SEC-33
test('workers start with a lock file and the lists of an earlier gateway', OPTIONS, async () => {
  await using at = await place();
  await at.list('read', 'write');
  assert.equal((await at.lock()).code, 0);
  const first = await at.start(1);
  assert.match(await call(first, await initialize(first.endpoint()), 'files__read'), /"text":"read"/);
  await first.stop();
  await at.list('read', 'write', 'added');
  await using gateway = await at.start(2, { onChange: 'quarantine' });
  const session = await initialize(gateway.endpoint());
  await useEachWorker(gateway, session);
  assert.doesNotMatch(await request(gateway, session, 'tools/list'), /"files__added"/);
  assert.doesNotMatch(await call(gateway, session, 'files__added'), /"text":"added"/);
});

// SEC-33
test('a lock file that is written while workers run holds in each of them', OPTIONS, async () => {
  await using at = await place();
  await at.list('read', 'announce');
  await using gateway = await at.start(2);
  const workers = await workersOf(gateway);
  const session = await initialize(gateway.endpoint());
  await useEachWorker(gateway, session);
  assert.equal((await at.lock()).code, 0);
  await gateway.waitForLog((line) => (line.includes('"config applied"') ? true : undefined));
  await useEachWorker(gateway, session);
  await at.list('read', 'announce', 'added');
  await call(gateway, session, 'files__announce');
  await waitUntil(async () => ((await metricOf(gateway, /^linkspan_lock_differences_total/)) ?? 0) > 0);
  assert.deepEqual(await workersOf(gateway), workers, 'no worker has died');
});
