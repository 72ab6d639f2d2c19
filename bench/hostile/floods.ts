import type { ServerResponse } from 'node:http';
import { eventOf, FixtureServer, textResult, toolNamed } from '../fixture-server.ts';
import { keptConnections } from '../mcp-client.ts';
import type { Figures } from '../sheet.ts';
import type { Bench, Series } from '../suite.ts';
import { underAttack } from './arena.ts';

const FLOOD_MS = 6_000;
const RATE = 10_000;
const TICK_MS = 5;
const URI = 'x:///a';
/** With more unread bytes than this, the flood waits for the gateway. */
const UNREAD_BYTES = 1_048_576;

/** Writes updates to the streams at the given rate until it is stopped. */
function flood(streams: readonly ServerResponse[]): { stop(): number } {
  const update = eventOf({ jsonrpc: '2.0', method: 'notifications/resources/updated', params: { uri: URI } });
  let sent = 0;
  const beganMs = performance.now();
  const timer = setInterval(() => {
    const due = Math.floor(((performance.now() - beganMs) * RATE) / 1_000) - sent;
    const writable = streams.filter((stream) => stream.writableLength < UNREAD_BYTES);
    if (writable.length === 0 || due <= 0) return;
    for (const [index, stream] of writable.entries()) {
      const share = Math.floor(due / writable.length) + (index < due % writable.length ? 1 : 0);
      if (share > 0) stream.write(update.repeat(share));
      sent += share;
    }
  }, TICK_MS);
  return {
    stop: () => {
      clearInterval(timer);
      return sent;
    },
  };
}

/** Many clients subscribe and do not read. The upstream, which they share, floods them. */
async function updates(bench: Bench, readers: number): Promise<Figures> {
  const streams: ServerResponse[] = [];
  await using upstream = await FixtureServer.start({
    capabilities: { resources: { subscribe: true } },
    answer: ({ method }) => (method === 'resources/list' ? { resources: [{ uri: URI, name: 'a' }] } : {}),
    onStream: (response) => streams.push(response),
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url, isolation: 'shared' } },
    attack: async ({ open, stack, pass }) => {
      for (let reader = 0; reader < readers; reader++) {
        const client = await open({ agent: keptConnections(2) });
        const stream = await client.openStream();
        stack.defer(() => void stream.destroy());
        await client.request('resources/subscribe', { uri: `hostile+${URI}` });
      }
      const flooding = flood(streams);
      stack.defer(() => void flooding.stop());
      await pass(FLOOD_MS);
      return { readers, 'upstream streams': streams.length, 'sent/s': flooding.stop() / (FLOOD_MS / 1_000) };
    },
  });
}

const HEADS = 100_000;
const HEADS_AT_ONCE = 1_000;

/** The upstream sends endless interim heads before its answer. */
async function interimHeads(bench: Bench): Promise<Figures> {
  const heads = 'HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n'.repeat(HEADS_AT_ONCE);
  await using upstream = await FixtureServer.start({
    capabilities: { tools: {} },
    answer: ({ id, method, response }) => {
      if (method === 'tools/list') return { tools: [toolNamed('hints')] };
      for (let sent = 0; sent < HEADS; sent += HEADS_AT_ONCE) response.socket?.write(heads);
      const body = JSON.stringify({ jsonrpc: '2.0', id, result: textResult('late') });
      response.writeHead(200, { 'content-type': 'application/json', 'content-length': body.length }).end(body);
      return undefined;
    },
  });
  return await underAttack(bench, {
    servers: { hostile: { url: upstream.url } },
    attack: async ({ open }) => {
      const client = await open();
      for (let call = 0; call < 3; call++)
        await client.request('tools/call', { name: 'hostile__hints', arguments: {} });
      return { heads: HEADS };
    },
  });
}

export const FLOODS: Series = {
  id: 'N-29',
  title: `resources/updated, ${RATE} a second to clients that do not read; interim heads`,
  points: [
    ...[50, 300].map((readers) => ({
      label: `${readers} readers`,
      measure: (bench: Bench) => updates(bench, readers),
    })),
    { label: `${HEADS} heads of 103`, measure: interimHeads },
  ],
  bounds: [
    { point: '50 readers', column: 'p99 ms', atMost: 50 },
    { point: '300 readers', column: 'p99 ms', atMost: 50 },
    { point: `${HEADS} heads of 103`, column: 'block ms', atMost: 50 },
  ],
};
