import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { connect, type EitherClient, SDKS, textOf } from '../support/either-sdk.ts';
import type { RunningGateway } from '../support/gateway.ts';
import { startReferenceGateway } from '../support/reference-servers.ts';

const TIMEOUT = { timeout: 120_000 };
const DOCUMENT = 'everything+demo://resource/static/document/features.md';
const OTHER = 'everything+demo://resource/static/document/startup.md';

let reference: Awaited<ReturnType<typeof startReferenceGateway>>;
let gateway: RunningGateway;

before(async () => {
  reference = await startReferenceGateway(['everything', 'memory']);
  ({ gateway } = reference);
});

after(async () => {
  await reference[Symbol.asyncDispose]();
});

const LONG = 'everything__trigger-long-running-operation';

/** Runs a long operation. Returns its progress. */
async function operation(client: EitherClient, duration: number, steps: number): Promise<readonly number[]> {
  const progressed: number[] = [];
  const onprogress = ({ progress, total }: { progress: number; total?: number | undefined }) => {
    assert.equal(total, steps);
    progressed.push(progress);
  };
  assert.match(textOf(await client.call(LONG, { duration, steps }, { onprogress })), /completed/);
  return progressed;
}

function receivedBy(client: EitherClient, method: string) {
  return client.notifications.items.filter((notification) => notification.method === method);
}

for (const sdk of SDKS) {
  suite(sdk, { concurrency: 1 }, () => {
    // M-019 M-020
    test('progress of a long operation arrives in order, before the result', TIMEOUT, async () => {
      await using client = await connect(sdk, gateway.endpoint());
      assert.deepEqual(await operation(client, 0.3, 3), [1, 2, 3]);
    });

    test('progress of simultaneous operations reaches only the call that it belongs to', TIMEOUT, async () => {
      await using one = await connect(sdk, gateway.endpoint());
      await using two = await connect(sdk, gateway.endpoint());
      const progressed = await Promise.all([
        operation(one, 0.4, 2),
        operation(one, 0.4, 4),
        operation(two, 0.4, 2),
        operation(two, 0.4, 5),
      ]);
      assert.deepEqual(progressed, [
        [1, 2],
        [1, 2, 3, 4],
        [1, 2],
        [1, 2, 3, 4, 5],
      ]);
    });

    test('a cancelled call ends at once, and its session goes on', TIMEOUT, async () => {
      await using client = await connect(sdk, gateway.endpoint());
      const abort = new AbortController();
      const options = { signal: abort.signal, onprogress: () => abort.abort(new Error('changed my mind')) };
      await assert.rejects(client.call(LONG, { duration: 30, steps: 300 }, options), /changed my mind/);
      assert.equal(textOf(await client.call('everything__echo', { message: 'x' })), 'Echo: x');
      await gateway.waitForLog((line) => (line.includes(LONG) && line.includes('cancelled') ? true : undefined));
    });

    //
    test('each session gets log messages from its level on, with the name of the server', TIMEOUT, async () => {
      await using curious = await connect(sdk, gateway.endpoint());
      await using calm = await connect(sdk, gateway.endpoint());
      await curious.setLevel('debug');
      await calm.setLevel('error');
      await calm.subscribe(DOCUMENT);
      await curious.subscribe(DOCUMENT);
      const { params } = await curious.waitForNotification('notifications/message');
      assert.equal(params?.['level'], 'info');
      assert.equal(params['logger'], 'everything');
      assert.match(String(params['data']), /Received Subscribe Resource request/);
      await calm.call('everything__echo', { message: 'x' });
      assert.deepEqual(receivedBy(calm, 'notifications/message'), []);
    });

    test('simulated log messages arrive after their level is set', TIMEOUT, async () => {
      await using client = await connect(sdk, gateway.endpoint());
      await client.setLevel('debug');
      await client.call('everything__toggle-simulated-logging');
      const { params } = await client.waitForNotification('notifications/message');
      assert.match(String(params?.['data']), /message/i);
    });

    test('an update of a resource reaches its subscribers under the published URI', TIMEOUT, async () => {
      await using subscriber = await connect(sdk, gateway.endpoint());
      await using other = await connect(sdk, gateway.endpoint());
      await subscriber.subscribe(DOCUMENT);
      await other.subscribe(OTHER);
      await other.unsubscribe(OTHER);
      await Promise.all([subscriber, other].map((client) => client.call('everything__toggle-subscriber-updates')));
      const { params } = await subscriber.waitForNotification('notifications/resources/updated');
      assert.deepEqual(params, { uri: DOCUMENT });
      await other.call('everything__echo', { message: 'x' });
      assert.deepEqual(receivedBy(other, 'notifications/resources/updated'), []);
    });

    test('a resource that a call creates is announced, listed and read in its own session', TIMEOUT, async () => {
      await using client = await connect(sdk, gateway.endpoint());
      await using other = await connect(sdk, gateway.endpoint());
      await other.call('everything__echo', { message: 'x' });
      const args = { name: 'hello.gz', data: 'data:text/plain,hello' };
      const { content } = await client.call('everything__gzip-file-as-resource', args);
      const link = content[0]?.uri ?? '';
      assert.equal(link, 'everything+demo://resource/session/hello.gz');
      await client.waitForNotification('notifications/resources/list_changed');
      assert.ok((await client.resources()).some(({ uri }) => uri === link));
      const [file] = await client.read(link);
      assert.equal(Buffer.from(file?.blob ?? '', 'base64').readUInt16BE(), 0x1f8b);

      assert.ok(!(await other.resources()).some(({ uri }) => uri === link));
      await assert.rejects(other.read(link));
      assert.deepEqual(receivedBy(other, 'notifications/resources/list_changed'), []);
    });

    test('lists do not change while the servers start for a session', TIMEOUT, async () => {
      await using client = await connect(sdk, gateway.endpoint());
      const before = await client.tools();
      for (const tool of ['everything__get-sum', 'memory__read_graph']) {
        await client.call(tool, { a: 1, b: 2 });
      }
      assert.deepEqual(await client.tools(), before);
      assert.deepEqual(
        client.notifications.items.filter(({ method }) => method.endsWith('list_changed')),
        [],
      );
    });
  });
}
