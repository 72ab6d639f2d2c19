import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { suite, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { SECOND_SIGNAL_MS } from '../../src/cli/signals.ts';
import { type Events, getEvents, initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { connect, connectOver, SDKS, textOf } from '../support/either-sdk.ts';
import { freePort } from '../support/free-port.ts';
import { type RunningGateway, startGateway } from '../support/gateway.ts';
import { hostileStdio, Ledgers } from '../support/hostile.ts';
import { referenceServers } from '../support/reference-servers.ts';
import { childrenOf, isGone, until } from '../support/stdio.ts';

const TIMEOUT = { timeout: 120_000 };
/** Longer than a test may take. */
const NEVER = '5m';
/** The longest wait that a config may have. */
const LONGEST = { wait: '1m', ms: 60_000 };
const ENDINGS = ['SIGTERM', 'SIGKILL'] as const;
type Ending = (typeof ENDINGS)[number];

const DOCUMENT = 'everything+demo://resource/static/document/features.md';
const EVERYTHING = 'everything__toggle-subscriber-updates';

/** The folder of a gateway that is started several times. */
class Place implements AsyncDisposable {
  readonly dir: string;
  readonly ledgers: Ledgers;
  readonly #listen: string;
  #gateway: RunningGateway | undefined;

  private constructor(dir: string, port: number) {
    this.dir = dir;
    this.ledgers = new Ledgers(dir);
    this.#listen = `127.0.0.1:${port}`;
  }

  static async open(): Promise<Place> {
    return new Place(await mkdtemp(join(tmpdir(), 'linkspan-restart-')), await freePort());
  }

  async start(
    mcpServers: Readonly<Record<string, Readonly<Record<string, unknown>>>>,
    settings: object = {},
  ): Promise<RunningGateway> {
    const gateway = { listen: this.#listen, ...settings };
    this.#gateway = await startGateway({ mcpServers, gateway }, { dir: this.dir });
    return this.#gateway;
  }

  /** Returns how many offers of servers are on disk. */
  keptOffers(): number {
    return readdirSync(join(this.dir, 'state', 'offers')).filter((name) => name.endsWith('.json')).length;
  }

  async end(how: Ending): Promise<void> {
    const gateway = this.#gateway;
    gateway?.kill(how);
    const ended = await gateway?.ended;
    if (how === 'SIGTERM') assert.equal(ended?.code, 0, gateway?.logs());
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#gateway?.stop();
    await rm(this.dir, { recursive: true, force: true });
  }
}

const call = (id: number, name: string, args: object = {}) => rpc(id, 'tools/call', { name, arguments: args });

function messages(stream: Events, method: string) {
  return stream.messages.filter((message) => message.method === method);
}

suite('a gateway that ends', { concurrency: 1 }, () => {
  for (const how of ENDINGS) {
    // D7
    test('a session continues with its level and subscriptions, an ended one stays ended', TIMEOUT, async () => {
      await using place = await Place.open();
      const { everything } = referenceServers(place.dir);
      const first = await place.start({ everything });
      const url = first.endpoint();
      const id = await initialize(url);
      assert.equal((await post(url, rpc(1, 'logging/setLevel', { level: 'warning' }), id)).status, 200);
      assert.equal((await post(url, rpc(2, 'resources/subscribe', { uri: DOCUMENT }), id)).status, 200);
      const ended = await initialize(url);
      const deleted = await send(url, { method: 'DELETE', headers: { 'mcp-session-id': ended } });
      assert.equal(deleted.status, 204);
      await place.end(how);

      await place.start({ everything });
      assert.equal((await post(url, rpc(1, 'ping'), ended)).status, 404);
      assert.equal((await getEvents(url, ended)).status, 404);
      const stream = await getEvents(url, id);
      assert.equal(stream.status, 200);
      const echoed = await post(url, call(3, 'everything__echo', { message: 'again' }), id);
      assert.match(echoed.text, /Echo: again/);
      // The server logs the subscription at level info, which this client does not want.
      await post(url, call(4, EVERYTHING), id);
      await stream.until((events) => messages(events, 'notifications/resources/updated').length > 0);
      assert.deepEqual(messages(stream, 'notifications/resources/updated')[0]?.params, { uri: DOCUMENT });
      assert.deepEqual(messages(stream, 'notifications/message'), []);
      stream.close();
    });

    // D4
    test(`after ${how} the whole list is there at once, before slow servers have started`, TIMEOUT, async () => {
      await using place = await Place.open();
      const gate = join(place.dir, 'gate');
      await writeFile(gate, '');
      const servers = {
        'gated-start': hostileStdio('gated-start', place.ledgers, { start: NEVER }, { GATE: gate }),
        calm: hostileStdio('calm', place.ledgers),
      };
      const first = await place.start(servers);
      const id = await initialize(first.endpoint());
      const listed = await post(first.endpoint(), rpc(1, 'tools/list'), id);
      assert.match(listed.text, /gated-start__fine.*calm__bad/);
      // An offer is written shortly after it is known. SIGKILL leaves no time for it.
      await until(() => place.keptOffers() === 2, 'both offers are kept');
      await place.end(how);

      await rm(gate);
      // A list that waits for the server takes as long as it may: the gate opens after the answers.
      const again = await place.start(servers, { lists: { wait: LONGEST.wait } });
      const askedMs = performance.now();
      const old = await post(again.endpoint(), rpc(2, 'tools/list'), id);
      const fresh = await post(again.endpoint(), rpc(1, 'tools/list'), await initialize(again.endpoint()));
      assert.ok(performance.now() - askedMs < LONGEST.ms / 2);
      const [before, woken, begun] = [listed, old, fresh].map((got) => messagesOf(got)[0]?.result);
      assert.deepEqual(woken, before);
      assert.deepEqual(begun, before);
      // A call waits for the server.
      const called = post(again.endpoint(), call(3, 'gated-start__fine'), id);
      await writeFile(gate, '');
      assert.match((await called).text, /"text":"fine"/);
    });

    // R11 R10
    test(`no process survives ${how}, not even one that ignores SIGTERM`, TIMEOUT, async () => {
      await using place = await Place.open();
      const servers = { stubborn: hostileStdio('stubborn', place.ledgers), calm: hostileStdio('calm', place.ledgers) };
      const gateway = await place.start(servers);
      const id = await initialize(gateway.endpoint());
      for (const [n, name] of ['stubborn__fine', 'calm__fine'].entries()) {
        assert.match((await post(gateway.endpoint(), call(n, name), id)).text, /"text":"fine"/);
      }
      const servants = ['stubborn', 'calm'].flatMap((name) => place.ledgers.of(name).map(({ pid }) => pid));
      const processes = [...childrenOf(gateway.pid), ...servants];
      assert.ok(processes.length >= 4);
      await place.end(how);
      // A gateway that ends by itself waits for its servers, also for those that it has to kill.
      if (how === 'SIGTERM') assert.ok(servants.every(isGone));
      await until(() => processes.every(isGone), 'every process ended');
    });

    for (const sdk of SDKS) {
      test(`${sdk} does not notice ${how} and another start`, TIMEOUT, async () => {
        await using place = await Place.open();
        const { everything } = referenceServers(place.dir);
        const first = await place.start({ everything });
        await using client = await connectOver(sdk, { kind: 'http', url: first.endpoint(), isPatient: true });
        const before = await client.tools();
        await client.subscribe(DOCUMENT);
        await place.end(how);
        await place.start({ everything });
        assert.equal(textOf(await client.call('everything__echo', { message: 'x' })), 'Echo: x');
        assert.deepEqual(await client.tools(), before);
        // The GET stream was cut, and the SDK opens it again by itself.
        await client.call(EVERYTHING);
        const updated = await client.waitForNotification('notifications/resources/updated');
        assert.deepEqual(updated.params, { uri: DOCUMENT });
      });
    }
  }

  // R10
  test('a call in flight at SIGTERM gets its answer', TIMEOUT, async () => {
    await using place = await Place.open();
    const { everything } = referenceServers(place.dir);
    const gateway = await place.start({ everything });
    await using client = await connect('SDK v1', gateway.endpoint());
    const begun = Promise.withResolvers<void>();
    const options = { onprogress: () => begun.resolve() };
    const long = client.call('everything__trigger-long-running-operation', { duration: 1, steps: 5 }, options);
    await begun.promise;
    gateway.kill('SIGTERM');
    assert.match(textOf(await long), /completed/);
    assert.equal((await gateway.ended).code, 0);
  });

  // N-88
  // R10
  test('two signals at the same moment count as one', TIMEOUT, async () => {
    await using place = await Place.open();
    const { everything } = referenceServers(place.dir);
    const gateway = await place.start({ everything });
    await using client = await connect('SDK v1', gateway.endpoint());
    const begun = Promise.withResolvers<void>();
    const options = { onprogress: () => begun.resolve() };
    const long = client.call('everything__trigger-long-running-operation', { duration: 1, steps: 5 }, options);
    await begun.promise;
    // The kernel merges equal signals that are pending, and keeps unequal ones apart.
    gateway.kill('SIGINT');
    gateway.kill('SIGTERM');
    assert.equal((await gateway.ended).code, 0);
    assert.match(textOf(await long), /completed/);
  });

  // R10
  test('a second signal after half a second ends the gateway at once', TIMEOUT, async () => {
    await using place = await Place.open();
    const { everything } = referenceServers(place.dir);
    const gateway = await place.start({ everything });
    await using client = await connect('SDK v1', gateway.endpoint());
    const begun = Promise.withResolvers<void>();
    const options = { onprogress: () => begun.resolve() };
    const long = client.call('everything__trigger-long-running-operation', { duration: 100, steps: 200 }, options);
    long.catch(() => undefined);
    await begun.promise;
    const processes = childrenOf(gateway.pid);
    gateway.kill('SIGTERM');
    await gateway.waitForLog((line) => (line.includes('"stopping"') ? true : undefined));
    await delay(SECOND_SIGNAL_MS);
    gateway.kill('SIGTERM');
    await gateway.waitForLog((line) => (/"requests":1,.*"msg":"stopped at once/.test(line) ? true : undefined));
    assert.equal((await gateway.ended).code, 130);
    await until(() => processes.every(isGone), 'every process ended');
  });
});
