import assert from 'node:assert/strict';
import { test } from 'node:test';
import { META } from '../../src/protocol/meta.ts';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { act, startRemote } from '../support/nonce-remote.ts';
import { answerOf, modernPost } from '../support/modern-wire.ts';
import { MISSING, Replicas } from '../support/replicas.ts';
import { waitUntil } from '../support/wait-until.ts';

const OPTIONS = { timeout: 120_000, ...(MISSING === undefined ? {} : { skip: MISSING }) };
const DUPLICATES = 100;
const RETRY_MS = 100;

/** Calls the tool with a key, as a client of 2026-07-28. Returns the text of its answer. */
async function callModern(url: string, nonce: string, pauseMs = 0): Promise<string> {
  const { _meta, ...params } = act(nonce, [], { pauseMs });
  const { result, error } = answerOf(
    await modernPost(url, 'tools/call', params, { meta: { [META.idempotencyKey]: nonce } }),
  );
  return JSON.stringify(result ?? error);
}

/** Calls until the answer is that of the call. */
async function callUntilAnswered(url: string, nonce: string, pauseMs: number): Promise<string> {
  for (;;) {
    const text = await callModern(url, nonce, pauseMs);
    // On a slow machine, a command of Redis may take too long.
    if (!/"(?:duplicate-call|store-unavailable)"/.test(text)) return text;
    await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
  }
}

// REL-08
test('of 100 duplicates at three replicas one is made, and all get its result', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(3, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const nonce = 'nonce:1:1;';
  const answers = await Promise.all(
    Array.from({ length: DUPLICATES }, (_, n) => callUntilAnswered(replicas.at(n % 3).endpoint(), nonce, 1_000)),
  );
  assert.equal(new Set(answers).size, 1, [...new Set(answers)].join('\n'));
  assert.match(answers[0] ?? '', /"text":"nonce:1:1;"/);
  assert.equal(await remote.ran(nonce), 1);
});

// REL-08
test('a call with a key is refused while Redis is down, and made once after that', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const [one, two] = [replicas.at(0).endpoint(), replicas.at(1).endpoint()];
  const nonce = 'nonce:2:1;';
  for (const url of [one, two]) assert.match(await callUntilAnswered(url, 'nonce:9:9;', 0), /"text":"nonce:9:9;"/);
  replicas.redis.pause();
  const refused = await callModern(one, nonce);
  assert.match(refused, /needs the shared state, which cannot be used now\. The call was not made/);
  assert.match(refused, /"store-unavailable","upstream":"nonce","executed":"no","retryable":true/);
  assert.equal(await remote.ran(nonce), 0);
  replicas.redis.resume();
  // The claim may have reached Redis, and is taken back; until then the call counts as under way.
  await waitUntil(async () => (await callModern(two, nonce)).includes('"text"'));
  assert.match(await callUntilAnswered(one, nonce, 0), /"text":"nonce:2:1;"/);
  assert.equal(await remote.ran(nonce), 1);
});

test('a call whose replica dies is not made again, also by a session at another one', OPTIONS, async () => {
  await using remote = await startRemote();
  await using replicas = await Replicas.start(2, { mcpServers: { nonce: { url: `${remote.url}/mcp` } } });
  const [one, two] = [replicas.at(0), replicas.at(1)];
  const nonce = 'nonce:3:1;';
  const call = (id: number, pauseMs: number) => {
    const params = { ...act(nonce, [], { pauseMs }), _meta: { [META.idempotencyKey]: 'k' } };
    return rpc(id, 'tools/call', params);
  };
  const session = await initialize(one.endpoint());
  const lost = post(one.endpoint(), call(1, 60_000), session).catch(() => undefined);
  await waitUntil(async () => (await remote.ran(nonce)) === 1);
  one.kill('SIGKILL');
  await lost;
  const other = await initialize(two.endpoint());
  let text = '';
  await waitUntil(async () => {
    const [answer] = messagesOf(await post(two.endpoint(), call(2, 60_000), other));
    text = JSON.stringify(answer);
    return !/"(?:duplicate-call|store-unavailable)"/.test(text);
  });
  assert.match(text, /"outcome-unknown".*"executed":"unknown"/);
  assert.match(text, /the process that made it is gone\. It was not made again/);
  assert.equal(await remote.ran(nonce), 1);
});
