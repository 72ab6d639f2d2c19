/** An upstream that never sends the headers of its GET stream. */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, request } from 'node:http';
import { test } from 'node:test';
import { type RunningServer } from './servers.ts';
import { startSetting } from './setting.ts';
import { listenLocally } from '../support/local-port.ts';

interface Held extends AsyncDisposable {
  readonly url: string;
  /** Returns the number of waiting GETs. */
  count(): number;
}

/** Forwards everything to `url` except GETs, which it never answers. */
async function holdingGets(url: string): Promise<Held> {
  let held = 0;
  const server = createServer((from, to) => {
    if (from.method === 'GET') {
      held++;
      return;
    }
    const onward = request(url, { method: from.method, headers: { ...from.headers, host: new URL(url).host } });
    onward.on('response', (answer) => {
      to.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(to);
    });
    onward.on('error', () => to.destroy());
    from.pipe(onward);
  });
  const port = await listenLocally(server);
  return {
    url: `http://127.0.0.1:${port}/mcp`,
    count: () => held,
    [Symbol.asyncDispose]: async () => {
      server.closeAllConnections();
      server.close();
      await once(server, 'close');
    },
  };
}

for (const id of ['python1-http', 'typescript1-http']) {
  // N-50
  test(`${id} without headers on its GET streams serves every session`, async () => {
    await using stack = new AsyncDisposableStack();
    let held: Held | undefined;
    const hold = async ({ place }: RunningServer) => {
      if (place.kind === 'stdio') throw new Error('not over HTTP');
      held = stack.use(await holdingGets(place.url));
      return { url: held.url };
    };
    const setting = stack.use(await startSetting(id, { config: hold }));
    const clients = await Promise.all(
      Array.from({ length: 5 }, () => setting.connect({ client: 'typescript1', mode: 'legacy' }, ['elicitation'])),
    );
    for (const client of clients) stack.use(client);
    const texts = await Promise.all(
      clients.map(async (client) => (await client.call('echo', { text: 'through' })).text),
    );
    const names = await Promise.all(clients.map(async (client) => (await client.call('ask_name')).text));
    const counts = await Promise.all(clients.map(async (client) => (await client.call('count')).text));
    assert.deepEqual(new Set(texts), new Set(['through']));
    assert.deepEqual(new Set(names), new Set(['Hello, Ada']));
    assert.deepEqual(new Set(counts), new Set(['1']));
    assert.ok((held?.count() ?? 0) > 0, 'the gateway asked for no stream');
  });
}
