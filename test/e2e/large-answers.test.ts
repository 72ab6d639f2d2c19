import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { z } from 'zod';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { startGateway } from '../support/gateway.ts';
import { type HttpUpstream, legacyUpstream, resultText, type Served } from '../support/http-upstream.ts';
import { liveBytes, MEASURED } from '../support/live-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
/** Much less than all answers together, so that most readers of the gateway have to wait. */
const gateway = { limits: { messageTotal: '1MiB' } };
const TIMES = 30_000;
const CLIENTS = 4;
const CALLS = 3;
const TOOLS = [{ name: 'large', inputSchema: { type: 'object' } }];
const PROGRAM = fileURLToPath(new URL('../fixtures/servers/large-stdio.ts', import.meta.url));

const ARGUMENTS = z.object({ arguments: z.object({ text: z.string(), times: z.number() }) });

/** Returns the answer to a call of `large`. */
function answerTo({ id, params }: Served): string {
  const { text, times } = ARGUMENTS.parse(params).arguments;
  return resultText(id, { content: [{ type: 'text', text: text.repeat(times) }] });
}

/** Starts a server that ends no answer before it has begun so many. */
async function largeUpstream(form: 'json' | 'events', atOnce: number): Promise<HttpUpstream> {
  const begun = Promise.withResolvers<void>();
  let count = 0;
  const onCall = (served: Served) => {
    const { response } = served;
    const text = form === 'json' ? answerTo(served) : `data: ${answerTo(served)}\n\n`;
    const type = form === 'json' ? 'application/json' : 'text/event-stream';
    response.writeHead(200, { 'content-type': type });
    response.write(text.slice(0, text.length >> 1));
    void begun.promise.then(() => response.end(text.slice(text.length >> 1)));
    if (++count === atOnce) begun.resolve();
    return undefined;
  };
  return await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': onCall } });
}

const RESULT = z.object({ result: z.object({ content: z.tuple([z.object({ text: z.string() })]) }) });

/** Calls the tool, and checks its whole answer. */
async function callLarge(endpoint: string, session: string, nonce: string, times = TIMES): Promise<void> {
  const text = `${nonce}: a line of a large answer, ä😀\n`;
  const call = rpc(nonce, 'tools/call', { name: 'large', arguments: { text, times } });
  const [message] = messagesOf(await post(endpoint, call, session)).slice(-1);
  const parsed = RESULT.safeParse(message);
  assert.ok(parsed.success, JSON.stringify(message).slice(0, 1_000));
  assert.ok(parsed.data.result.content[0].text === text.repeat(times), 'the answer is whole');
}

async function metric(operatorUrl: string | undefined, name: string): Promise<number> {
  const text = await (await fetch(`${operatorUrl}/metrics`)).text();
  const line = text.split('\n').find((each) => each.startsWith(`${name} `));
  return Number(line?.slice(name.length + 1) ?? 0);
}

const HELD = 'linkspan_held_bytes{kind="messages"}';
const WAITS = 'linkspan_budget_exceeded_total{kind="messages"}';

/**
 * Lets clients call at the same time. Their readers have to wait for each other, and all answers arrive.
 *
 * @param onWait runs when a reader has had to wait.
 */
async function callAtOnce(
  server: Readonly<Record<string, unknown>>,
  onWait: () => Promise<void> = async () => undefined,
): Promise<void> {
  await using running = await startGateway({ mcpServers: { demo: server }, gateway });
  const endpoint = running.endpoint('demo');
  const sessions = await Promise.all(Array.from({ length: CLIENTS }, () => initialize(endpoint)));
  const nonces = Array.from({ length: CALLS }, (_, call) => `call ${call}`);
  const calls = Promise.all(
    sessions.flatMap((session, client) =>
      nonces.map((nonce) => callLarge(endpoint, session, `client ${client}, ${nonce}`)),
    ),
  );
  await waitUntil(async () => (await metric(running.operatorUrl, WAITS)) > 0);
  await onWait();
  await calls;
  await waitUntil(async () => (await metric(running.operatorUrl, HELD)) === 0);
}

for (const form of ['json', 'events'] as const) {
  // REL-23
  test(`large answers at the same time wait for each other: ${form}`, TIMEOUT, async () => {
    await using upstream = await largeUpstream(form, CLIENTS * CALLS);
    await callAtOnce({ url: upstream.url });
  });
}

// REL-23
test('large answers at the same time wait for each other: processes', TIMEOUT, async () => {
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-large-'));
  try {
    const gate = join(dir, 'gate');
    await callAtOnce({ command: process.execPath, args: [PROGRAM], env: { GATE: gate } }, () => writeFile(gate, ''));
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
});

// REL-23
test('an upstream that does not end its large answers delays no other one', TIMEOUT, async () => {
  await using stalling = await largeUpstream('json', Infinity);
  await using healthy = await largeUpstream('events', CALLS);
  const mcpServers = { stalling: { url: stalling.url }, healthy: { url: healthy.url } };
  await using running = await startGateway({ mcpServers, gateway });
  const [bad, good] = [running.endpoint('stalling'), running.endpoint('healthy')];
  const sessions = await Promise.all(Array.from({ length: CLIENTS * CALLS }, () => initialize(bad)));
  const waiting = Promise.allSettled(sessions.map((session) => callLarge(bad, session, 'stalled')));
  await waitUntil(async () => (await metric(running.operatorUrl, WAITS)) > 0);
  const session = await initialize(good);
  await Promise.all(Array.from({ length: CALLS }, (_, call) => callLarge(good, session, `call ${call}`)));
  await stalling[Symbol.asyncDispose]();
  await waiting;
});

// REL-24
test('fifty answers of 8 MiB at once take at most twice their size', TIMEOUT, async (t) => {
  const [answers, mebibytes] = [50, 8];
  await using upstream = await largeUpstream('json', 1);
  await using running = await startGateway({ mcpServers: { demo: { url: upstream.url } } }, { env: MEASURED });
  const endpoint = running.endpoint('demo');
  const sessions = await Promise.all(Array.from({ length: answers }, () => initialize(endpoint)));
  const before = await liveBytes(running);
  const times = Math.ceil((mebibytes * 1_048_576) / 36);
  const answered = { isOver: false };
  const calls = Promise.all(
    sessions.map((session, each) => callLarge(endpoint, session, `${100 + each}`, times)),
  ).finally(() => (answered.isOver = true));
  let most = before;
  let samples = 0;
  for (; !answered.isOver; samples++) most = Math.max(most, await liveBytes(running));
  await calls;
  const more = (most - before) / 1_048_576;
  t.diagnostic(`at most ${Math.round(more)} MiB more in ${samples} samples`);
  assert.ok(more <= 2 * answers * mebibytes, `${more} MiB more`);
});
