import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { isDeepStrictEqual } from 'node:util';
import * as z from 'zod';
import { LONG, ODD } from '../fixtures/servers/hostile-tools.ts';
import { connect, type EitherClient, SDKS, textOf } from '../support/either-sdk.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers, startHostile } from '../support/hostile.ts';
import { connectSdk1 } from '../support/sdk-client.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
/** Longer than a test may take. */
const NEVER = '1h';
/** The longest wait that a config may have. */
const LONGEST = { wait: '1m', ms: 60_000 };

const WAYS = [
  'slow-start',
  'never-starts',
  'dies-after-initialize',
  'never-lists',
  'names',
  'schemas',
  'bottomless',
  'crash-loop',
] as const;

let hostile: Awaited<ReturnType<typeof startHostile>>;
let client: EitherClient;
let tools: readonly string[] = [];

before(async () => {
  hostile = await startHostile(WAYS);
  client = await connect('SDK v1', hostile.gateway.endpoint());
  tools = (await client.tools()).map(({ name }) => name);
}, TIMEOUT);

after(async () => {
  await client[Symbol.asyncDispose]();
  await hostile[Symbol.asyncDispose]();
});

const of = (way: string) => tools.filter((name) => name.startsWith(`${way}__`));

const STATUS = z.object({ upstreams: z.array(z.looseObject({ id: z.string(), state: z.string() })) });

async function statusOf(way: string, { operatorUrl }: RunningGateway = hostile.gateway) {
  const response = await fetch(`${operatorUrl}/status`);
  const { upstreams } = STATUS.parse(await response.json());
  return upstreams.find(({ id }) => id === way);
}

/** Returns the error that a client gets for a failed call. */
async function failureOf(call: Promise<unknown>): Promise<{ code: unknown; data: unknown; message: string }> {
  try {
    await call;
  } catch (thrown) {
    assert.ok(thrown instanceof Error && 'code' in thrown && 'data' in thrown, String(thrown));
    return { code: thrown.code, data: thrown.data, message: thrown.message };
  }
  return assert.fail('the call went well');
}

// M-028
test('the first list has the tools of all servers that have any', () => {
  assert.deepEqual(of('calm'), ['calm__fine', 'calm__bad']);
  for (const way of ['never-starts', 'dies-after-initialize', 'never-lists', 'bottomless'])
    assert.deepEqual(of(way), [], way);
});

// REL-15
test('only the first list waits for a server that hangs, and a bounded time', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-lists-'));
  const ledgers = new Ledgers(dir);
  const calm = hostileStdio('calm', ledgers);
  const mcpServers = { calm, hangs: hostileStdio('never-starts', ledgers, { start: NEVER }) };
  const start = (wait: string) => startGateway({ mcpServers, gateway: { lists: { wait } } }, { dir });
  const toolsOf = async (gateway: RunningGateway) => {
    await using other = await connect('SDK v2', gateway.endpoint());
    return (await other.tools()).map(({ name }) => name);
  };
  const fromCalm = ['calm__fine', 'calm__bad'];
  try {
    {
      await using gateway = await start('2s');
      // A busy machine may take longer to start the other server than the list waits.
      await waitUntil(async () => isDeepStrictEqual(await toolsOf(gateway), fromCalm));
      assert.equal((await statusOf('hangs', gateway))?.['state'], 'starting');
    }
    await using gateway = await start(LONGEST.wait);
    const startedMs = performance.now();
    assert.deepEqual(await toolsOf(gateway), fromCalm);
    assert.ok(performance.now() - startedMs < LONGEST.ms / 2);
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

const REASONS = [
  { way: 'dies-after-initialize', reason: /exited with code 0/ },
  { way: 'bottomless', reason: /refused: nested too deeply/ },
  { way: 'never-lists', reason: /did not answer tools\/list within [\d.]+ s/ },
];

suite('from then on', { concurrency: 1 }, () => {
  test('a server that starts slowly is in the first list, and answers', TIMEOUT, async () => {
    assert.deepEqual(of('slow-start'), ['slow-start__fine', 'slow-start__bad']);
    assert.equal(textOf(await client.call('slow-start__fine')), 'fine');
  });

  for (const { way, reason } of REASONS) {
    // N-06
    test(`/status and errors say why ${way} has no tools`, TIMEOUT, async () => {
      const status = await statusOf(way);
      assert.match(String(status?.['reason']), reason);
      const { code, data, message } = await failureOf(client.call(`${way}__fine`));
      if (status?.['state'] === 'failed') {
        assert.equal(code, -31_010, message);
        assert.partialDeepStrictEqual(data, { code: 'upstream-unavailable', upstream: way, executed: 'no' });
        assert.match(message, /belongs to upstream/);
      } else assert.deepEqual({ code, data }, { code: -32_602, data: { code: 'unknown-tool' } });
    });
  }

  // REL-10
  test('a server in a crash loop is reported, and started only a few times', TIMEOUT, async () => {
    assert.deepEqual(of('crash-loop'), ['crash-loop__fine', 'crash-loop__bad']);
    // The process that listed serves the first session; only later starts fail.
    assert.equal(textOf(await client.call('crash-loop__fine')), 'fine');
    await using other = await connect('SDK v2', hostile.gateway.endpoint());
    let last = '';
    for (let call = 0; call < 12; call++) {
      const { code, data, message } = await failureOf(other.call('crash-loop__fine'));
      assert.equal(code, -31_010, message);
      assert.partialDeepStrictEqual(data, { code: 'upstream-unavailable', upstream: 'crash-loop', executed: 'no' });
      last = message;
    }
    assert.match(last, /crash loop: failed 5 times within a minute/);
    // The first start, which listed, and five that failed.
    assert.ok(hostile.ledgers.count('crash-loop', 'start') <= 7);
    assert.equal(hostile.ledgers.count('crash-loop', 'call fine'), 1);
    assert.equal((await statusOf('crash-loop'))?.state, 'degraded', 'the first session still has its process');
    assert.equal(textOf(await client.call('calm__fine')), 'fine');
  });

  // M-002
  test('long, invalid and duplicate names are each published once, and can be called', TIMEOUT, async () => {
    const published = of('names');
    const [fine, twin, long, alike, odd, ...others] = published;
    assert.deepEqual([fine, twin, others], ['names__fine', 'names__twin', []]);
    for (const name of published) assert.match(name, /^[A-Za-z0-9_-]{1,48}$/);
    assert.equal(new Set(published).size, published.length);
    for (const [name, own] of [
      [twin, 'twin'],
      [long, LONG],
      [alike, `${LONG}!`],
      [odd, ODD],
    ]) {
      assert.equal(textOf(await client.call(name ?? '')), own);
    }
  });

  // R5
  test('tools with an unreadable schema are left out, the others are unchanged', TIMEOUT, async () => {
    const readable = ['fine', 'typeless', 'unknown-keywords', 'remote-ref', 'deep', 'proto'];
    assert.deepEqual(
      of('schemas'),
      readable.map((name) => `schemas__${name}`),
    );
    await using raw = await connectSdk1(hostile.gateway.endpoint('schemas'));
    const listed = new Map((await raw.client.listTools()).tools.map(({ name, inputSchema }) => [name, inputSchema]));
    assert.deepEqual(listed.get('typeless'), { type: 'object', properties: { a: {} } });
    assert.deepEqual(listed.get('unknown-keywords'), {
      type: 'object',
      'x-odd': [1],
      $schema: 'http://127.0.0.1:9/s.json',
    });
    for (const name of readable) assert.equal(textOf(await client.call(`schemas__${name}`)), name);
  });

  for (const sdk of SDKS) {
    test(`${sdk} reads every list of this gateway`, TIMEOUT, async () => {
      await using other = await connect(sdk, hostile.gateway.endpoint());
      assert.deepEqual(
        (await other.tools()).map(({ name }) => name),
        tools,
      );
      assert.deepEqual(await other.resources(), []);
    });
  }

  // M-009
  test('an endless list is cut, and served in pages', TIMEOUT, async () => {
    await using endless = await startHostile(['endless-list']);
    await using merged = await connectSdk1(endless.gateway.endpoint());
    const names: string[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const page = await merged.client.listTools(cursor === undefined ? {} : { cursor });
      names.push(...page.tools.map(({ name }) => name));
      cursor = page.nextCursor;
      pages++;
    } while (cursor !== undefined);
    assert.equal(pages, 2);
    assert.equal(new Set(names).size, names.length);
    assert.deepEqual(names.slice(0, 2), ['endless-list__fine', 'endless-list__page-1']);
    assert.deepEqual(names.slice(-2), ['calm__fine', 'calm__bad']);
    await assert.rejects(merged.client.listTools({ cursor: 'x' }), { code: -32_602 });
  });
});
