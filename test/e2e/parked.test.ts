import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { send } from '../downstream/client.ts';
import { Ledger } from '../matrix/ledger.ts';
import { Child } from '../support/child.ts';
import { type GatewayFile, type RunningGateway, startGateway } from '../support/gateway.ts';
import { type InputRequired, inputRequiredIn, type ModernReply, answersIn } from '../support/modern-client.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { random } from '../support/random.ts';
import { SEED } from '../support/seed.ts';

const TIMEOUT = { timeout: 180_000 };
const UPSTREAM = fileURLToPath(new URL('../matrix/upstream.ts', import.meta.url));
const REVISION = '2025-11-25';
const FORM = { elicitation: { form: {} } };
/** Longer than a test may take. */
const NEVER = '1h';
const PATIENT = { start: '60s', call: '10m', max: '1h', firstByte: '60s' };
const START_MS = 60_000;
const UNTIL_MS = 60_000;
const POLL_MS = 50;
/** Less than the concurrency of an upstream. */
const AT_ONCE = 24;

const KEYS = { ann: 'a-key-of-ann-0123456789abcdef', bob: 'a-key-of-bob-0123456789abcdef' } as const;
type Who = keyof typeof KEYS;
const WHO = ['ann', 'bob'] as const satisfies readonly Who[];
const apiKeys = WHO.map((name) => ({ name, sha256: createHash('sha256').update(KEYS[name]).digest('hex') }));

/** A server of 2025-11-25 over each transport. Its tool `elicits` sends a question about the nonce in its arguments. */
class Servers implements AsyncDisposable {
  readonly dir: string;
  readonly ledgers: Readonly<Record<'web' | 'own' | 'all', Ledger>>;
  readonly #web: Child;
  readonly #url: string;

  private constructor(dir: string, web: Child, url: string) {
    this.dir = dir;
    this.#web = web;
    this.#url = url;
    const at = (id: string) => new Ledger(join(dir, id));
    this.ledgers = { web: at('web'), own: at('own'), all: at('all') };
  }

  static async start(): Promise<Servers> {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-parked-'));
    for (const id of ['web', 'own', 'all']) await mkdir(join(dir, id));
    const web = await Child.start(process.execPath, [UPSTREAM, REVISION, 'http', join(dir, 'web')]);
    const url = await web.waitForLine((line) => /listening on (\S+)/.exec(line)?.[1], START_MS);
    return new Servers(dir, web, url);
  }

  file(park: string): GatewayFile {
    const process = (id: string) => ({
      command: globalThis.process.execPath,
      args: [UPSTREAM, REVISION, 'stdio', join(this.dir, id)],
      timeouts: PATIENT,
    });
    return {
      mcpServers: {
        web: { url: this.#url, timeouts: PATIENT },
        own: { ...process('own'), idle: '1s' },
        all: { ...process('all'), isolation: 'shared' },
      },
      gateway: {
        auth: { apiKeys },
        limits: { parkedPerPrincipal: 2_000, parkedPerUpstream: 2_000 },
        sessions: { park },
      },
    };
  }

  /** Returns the messages that the servers should not have received, such as a second answer. */
  get violations(): string[] {
    return Object.values(this.ledgers).flatMap(({ entries }) =>
      entries.filter(({ kind }) => kind === 'violation').map(({ detail }) => detail),
    );
  }

  async crash(): Promise<void> {
    this.#web.kill('SIGKILL');
    await this.#web.ended;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#web.stop();
    await rm(this.dir, { recursive: true, force: true });
  }
}

interface Question {
  readonly upstream: string;
  readonly who: Who;
  readonly nonce: string;
}

interface Waiting extends Question, InputRequired {}

let lastNonce = 0;
let lastId = 0;

async function call(
  gateway: RunningGateway,
  { upstream, who, nonce }: Question,
  retry: object = {},
): Promise<ModernReply> {
  const params = { name: `${upstream}__elicits`, arguments: { nonce }, ...retry };
  const headers = { authorization: `Bearer ${KEYS[who]}` };
  const options = { id: ++lastId, capabilities: FORM, headers };
  return answerOf(await modernPost(gateway.endpoint(), 'tools/call', params, options));
}

async function ask(gateway: RunningGateway, upstream: string, who: Who): Promise<Waiting> {
  const question = { upstream, who, nonce: `${who}-${++lastNonce}` };
  const asked = inputRequiredIn(await call(gateway, question));
  // The question is about the client's own call.
  assert.equal(Object.keys(asked.inputRequests).length, 1);
  for (const { params } of Object.values(asked.inputRequests)) {
    assert.ok(JSON.stringify(params).includes(`about ${question.nonce}"`), JSON.stringify(params));
  }
  return { ...question, ...asked };
}

function retryOf({ inputRequests, requestState, nonce }: Waiting, mail = `${nonce}@example.org`): object {
  const answer = { action: 'accept', content: { mail } };
  return { requestState, inputResponses: Object.fromEntries(Object.keys(inputRequests).map((key) => [key, answer])) };
}

function assertAnswered(reply: ModernReply, { nonce }: Question): void {
  const content = { mail: `${nonce}@example.org` };
  assert.deepEqual(answersIn(reply), { nonce, form: { action: 'accept', content } });
}

async function gauge(gateway: RunningGateway, name: string): Promise<number> {
  const { text } = await send(`${gateway.operatorUrl}/metrics`, {});
  return Number(new RegExp(`^${name} (\\d+)$`, 'm').exec(text)?.[1]);
}

async function untilGauge(gateway: RunningGateway, name: string, wanted: number): Promise<void> {
  const deadline = performance.now() + UNTIL_MS;
  for (;;) {
    const value = await gauge(gateway, name);
    if (value === wanted) return;
    assert.ok(performance.now() < deadline, `${name} is ${value}, not ${wanted}`);
    await sleep(POLL_MS);
  }
}

/** Runs the work for all items, several at a time. */
async function each<T>(items: readonly T[], work: (item: T) => Promise<void>): Promise<void> {
  const left = [...items];
  const worker = async () => {
    for (let item = left.shift(); item !== undefined; item = left.shift()) await work(item);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, worker));
}

const below = random(SEED);

function shuffled<T>(items: readonly T[]): T[] {
  return items
    .map((item) => ({ item, order: below(2 ** 32) }))
    .toSorted((a, b) => a.order - b.order)
    .map(({ item }) => item);
}

suite('calls that wait for their clients', { concurrency: 1 }, () => {
  let servers: Servers;
  before(async () => {
    servers = await Servers.start();
  });
  after(async () => {
    await servers[Symbol.asyncDispose]();
  });

  // X-014 X-016
  test('a thousand calls are answered in any order, twice or forged', TIMEOUT, async (t) => {
    t.diagnostic(`LINKSPAN_SEED=${SEED}`);
    await using gateway = await startGateway(servers.file(NEVER));
    const waiting: Waiting[] = [];
    await each(
      Array.from({ length: 1_000 }, (_, i) => WHO[i % 2] ?? 'ann'),
      async (who) => {
        waiting.push(await ask(gateway, 'web', who));
      },
    );
    assert.equal(await gauge(gateway, 'linkspan_parked_calls'), 1_000);
    const mixed = shuffled(waiting);
    const [forged, doubled, answered] = [mixed.slice(0, 200), mixed.slice(200, 400), mixed.slice(400, 800)];
    await each(forged, async (one) => {
      const stranger = one.who === 'ann' ? 'bob' : 'ann';
      const other = mixed.find(({ nonce, who }) => who === one.who && nonce !== one.nonce) ?? one;
      const at = below(one.requestState.length);
      const flipped = String.fromCharCode(one.requestState.charCodeAt(at) ^ 1);
      const requestState = one.requestState.slice(0, at) + flipped + one.requestState.slice(at + 1);
      const forgeries = [
        call(gateway, { ...one, who: stranger }, retryOf(one, 'eve@example.org')),
        call(gateway, one, retryOf(other, 'eve@example.org')),
        call(gateway, one, { ...retryOf(one, 'eve@example.org'), requestState }),
      ];
      for (const { error } of await Promise.all(forgeries)) assert.equal(error?.code, -32602, JSON.stringify(error));
    });
    await each(doubled, async (one) => {
      const replies = await Promise.all([1, 2, 3].map(() => call(gateway, one, retryOf(one))));
      for (const reply of replies) assertAnswered(reply, one);
    });
    await each(shuffled([...answered, ...forged]), async (one) =>
      assertAnswered(await call(gateway, one, retryOf(one)), one),
    );
    await untilGauge(gateway, 'linkspan_parked_calls', mixed.length - 800);
    await untilGauge(gateway, 'linkspan_requests_in_flight', 0);
    assert.deepEqual(servers.violations, []);
  });

  //
  test('the questions of calls whose clients do not come back are cancelled', TIMEOUT, async () => {
    await using gateway = await startGateway(servers.file('1s'));
    const waiting = await Promise.all(WHO.map((who) => ask(gateway, 'web', who)));
    await untilGauge(gateway, 'linkspan_parked_calls', 0);
    for (const one of waiting) {
      // The gateway answered the question with `cancel` when it expired, and the server returned a result.
      const cancelled = answersIn(await call(gateway, one, retryOf(one)));
      assert.partialDeepStrictEqual(cancelled, { form: { action: 'cancel' } });
    }
    await untilGauge(gateway, 'linkspan_requests_in_flight', 0);
    assert.deepEqual(servers.violations, []);
  });

  //
  test('over stdio each principal gets its own messages, and unused processes end', TIMEOUT, async () => {
    await using gateway = await startGateway(servers.file(NEVER));
    const whose = Array.from({ length: 12 }, (_, i) => WHO[i % 2] ?? 'ann');
    const waiting = await Promise.all(whose.map((who) => ask(gateway, 'own', who)));
    assert.equal(await gauge(gateway, 'linkspan_parked_calls'), 12);
    await Promise.all(
      shuffled(waiting).map(async (one) => {
        const stranger = one.who === 'ann' ? 'bob' : 'ann';
        const { error } = await call(gateway, { ...one, who: stranger }, retryOf(one));
        assert.equal(error?.code, -32602);
        assertAnswered(await call(gateway, one, retryOf(one)), one);
      }),
    );
    await untilGauge(gateway, 'linkspan_parked_calls', 0);
    // The shared process remains.
    await untilGauge(gateway, 'linkspan_processes', 1);
    assert.deepEqual(servers.violations, []);
  });

  //
  test('a process that all clients share reaches no client with a question', TIMEOUT, async () => {
    await using gateway = await startGateway(servers.file(NEVER));
    const replies = await Promise.all(WHO.map((who) => call(gateway, { upstream: 'all', who, nonce: who })));
    for (const { result, error } of replies) {
      assert.notEqual(result?.['resultType'], 'input_required', JSON.stringify(result));
      assert.ok(error !== undefined || result?.['isError'] === true, JSON.stringify(result));
    }
    assert.equal(await gauge(gateway, 'linkspan_parked_calls'), 0);
    assert.deepEqual(servers.violations, []);
  });

  //
  test('a gateway that stops ends its parked calls, and the next one refuses retries', TIMEOUT, async () => {
    const dir = await mkdtemp(join(tmpdir(), 'linkspan-parked-gateway-'));
    try {
      const waiting: Waiting[] = [];
      {
        await using gateway = await startGateway(servers.file(NEVER), { dir });
        for (const upstream of ['web', 'own']) {
          await Promise.all(WHO.map(async (who) => waiting.push(await ask(gateway, upstream, who))));
        }
      }
      await using gateway = await startGateway(servers.file(NEVER), { dir });
      for (const one of waiting) assert.equal((await call(gateway, one, retryOf(one))).error?.code, -31017);
      assert.equal(await gauge(gateway, 'linkspan_parked_calls'), 0);
      assert.deepEqual(servers.violations, []);
    } finally {
      await rm(dir, { recursive: true, force: true });
    }
  });

  // G6
  test('a server crash fails its calls, and retries report it and run nothing again', TIMEOUT, async () => {
    await using gateway = await startGateway(servers.file(NEVER));
    const waiting: Waiting[] = [];
    await each(
      Array.from({ length: 50 }, (_, i) => WHO[i % 2] ?? 'ann'),
      async (who) => {
        waiting.push(await ask(gateway, 'web', who));
      },
    );
    await servers.crash();
    await untilGauge(gateway, 'linkspan_parked_calls', 0);
    await each(shuffled(waiting), async (one) => {
      const { error } = await call(gateway, one, retryOf(one));
      assert.partialDeepStrictEqual(error, { code: -31010, data: { executed: 'unknown' } });
    });
    assert.deepEqual(servers.violations, []);
  });
});
