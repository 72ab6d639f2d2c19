import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { modernUpstream } from '../support/http-upstream.ts';
import { answerOf, modernEvents, modernPost } from '../support/modern-wire.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const LISTED = join(import.meta.dirname, '../fixtures/servers/listed-stdio.ts');
const CHANGED = 'notifications/tools/list_changed';

/** Replicas of a gateway with one stdio server, whose tools a test chooses. */
class Listed implements AsyncDisposable {
  readonly replicas: Replicas;
  readonly #dir: string;

  private constructor(replicas: Replicas, dir: string) {
    this.replicas = replicas;
    this.#dir = dir;
  }

  static async start(count: number): Promise<Listed> {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-listed-'));
    await offer(dir, []);
    const listed = { command: process.execPath, args: [LISTED, fileIn(dir)] };
    return new Listed(await Replicas.start(count, { mcpServers: { listed } }), dir);
  }

  /** Changes the tools of the server, which announces it to the process that has it. */
  async change(index: number, names: readonly string[]): Promise<void> {
    await offer(this.#dir, names);
    const url = this.replicas.at(index).endpoint();
    const { result } = answerOf(await modernPost(url, 'tools/call', { name: 'listed__announce', arguments: {} }));
    assert.match(JSON.stringify(result), /announce/);
  }

  /** Returns whether a replica lists a tool. */
  async lists(index: number, name: string): Promise<boolean> {
    const { result } = answerOf(await modernPost(this.replicas.at(index).endpoint(), 'tools/list'));
    return JSON.stringify(result?.['tools']).includes(`"listed__${name}"`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.replicas[Symbol.asyncDispose]();
    await rm(this.#dir, { recursive: true, force: true });
  }
}

function fileIn(dir: string): string {
  return join(dir, 'lists.json');
}

async function offer(dir: string, names: readonly string[]): Promise<void> {
  const tools = ['announce', ...names].map((name) => ({ name, inputSchema: { type: 'object' } }));
  await writeFile(fileIn(dir), JSON.stringify({ tools, prompts: [] }));
}

test('a replica that says that a list has changed has told the others before', OPTIONS, async () => {
  await using listed = await Listed.start(3);
  await waitUntil(() => listed.lists(0, 'announce'));
  for (let round = 0; round < 9; round++) {
    const [at, hearer, reader] = [round % 3, (round + 1) % 3, (round + 2) % 3];
    const url = listed.replicas.at(hearer).endpoint();
    const listening = await modernEvents(url, 'subscriptions/listen', { notifications: { toolsListChanged: true } });
    await listening.until(({ messages }) => messages.length > 0);
    await listed.change(at, [`round_${round}`]);
    // The first one may be about the change before.
    for (let received = 0; !(await listed.lists(reader, `round_${round}`)); received++) {
      await listening.until(({ messages }) => messages.filter(({ method }) => method === CHANGED).length > received);
    }
    listening.close();
  }
});

test('lists that changed while Redis was away reach the other replicas after it', OPTIONS, async () => {
  await using listed = await Listed.start(2);
  // The first replica has the process from now on.
  await listed.change(0, ['before']);
  await waitUntil(() => listed.lists(1, 'before'));
  listed.replicas.redis.pause();
  await waitUntil(async () => {
    await listed.change(0, ['after']).catch(() => undefined);
    return await listed.lists(0, 'after');
  });
  listed.replicas.redis.resume();
  await waitUntil(() => listed.lists(1, 'after'));
});

test('replicas read lists that differ at each reading ever more rarely', OPTIONS, async () => {
  let lists = 0;
  await using upstream = await modernUpstream({
    capabilities: { tools: { listChanged: true } },
    answers: {
      'tools/list': () => ({
        resultType: 'complete',
        tools: [{ name: 'clock', description: `read ${++lists} times`, inputSchema: { type: 'object' } }],
        ttlMs: 0,
        cacheScope: 'private',
      }),
    },
  });
  await using replicas = await Replicas.start(2, { mcpServers: { up: { url: upstream.url } } });
  for (const index of [0, 1]) {
    await waitUntil(async () => {
      const { result } = answerOf(await modernPost(replicas.at(index).endpoint(), 'tools/list'));
      return JSON.stringify(result?.['tools']).includes('up__clock');
    });
  }
  await waitUntil(() => upstream.listens().length === 2);
  upstream.notify(CHANGED);
  const before = lists;
  await sleep(3_000); // subject: several readings with pauses, or hundreds without
  assert.ok(lists - before >= 2 && lists - before <= 16, `${lists - before} readings in 3 s`);
});

test('a client that lists at a replica that is still reading a change gets the change', OPTIONS, async () => {
  const tools = ['old'];
  let readings = 0;
  await using upstream = await modernUpstream({
    capabilities: { tools: { listChanged: true } },
    answers: {
      'tools/list': (served) => {
        const items = tools.map((name) => ({ name, inputSchema: { type: 'object' } }));
        const list = { resultType: 'complete', tools: items, ttlMs: 0, cacheScope: 'private' };
        // One replica reads the change at once, the other one later.
        if (tools.length === 1 || ++readings === 1) return list;
        setTimeout(() => served.result(list), 2_000); // subject: longer than a list request waits
        return undefined;
      },
    },
  });
  await using replicas = await Replicas.start(2, { mcpServers: { up: { url: upstream.url } } });
  const listedAt = async (index: number) => (await modernPost(replicas.at(index).endpoint(), 'tools/list')).text;
  for (const index of [0, 1]) await waitUntil(async () => (await listedAt(index)).includes('up__old'));
  await waitUntil(() => upstream.listens().length === 2);
  const heard = [0, 1].map(async (index) => {
    const filter = { notifications: { toolsListChanged: true } };
    const listening = await modernEvents(replicas.at(index).endpoint(), 'subscriptions/listen', filter);
    await listening.until(({ messages }) => messages.length > 0);
    return async () => {
      // The first one may be about the first lists.
      for (let received = 0; !(await listedAt(1 - index)).includes('up__new'); received++) {
        await listening.until(({ messages }) => messages.filter(({ method }) => method === CHANGED).length > received);
      }
      listening.close();
    };
  });
  const listOnceTold = await Promise.all(heard);
  tools.push('new');
  upstream.notify(CHANGED);
  await Promise.all(listOnceTold.map((list) => list()));
});
