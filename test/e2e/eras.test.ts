/** Upstreams of both eras, through the whole gateway: each client is served in its own era. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { suite, test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { connect, textOf } from '../support/either-sdk.ts';
import { dual, modernCall, namesIn, replaceable, sessionCall, textIn } from '../support/eras.ts';
import { inputRequiredIn } from '../support/modern-client.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { openGateway } from '../support/open-gateway.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };

suite('a program of both eras', { concurrency: 1 }, () => {
  // N-40
  test('is listed and called in the era of each client', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual() });
    const session = await initialize(gateway.url);
    const listed = messagesOf(await post(gateway.url, rpc(1, 'tools/list'), session)).at(-1)?.['result'];
    assert.deepEqual(namesIn(listed), ['up__count', 'up__era', 'up__ask']);
    assert.equal(await sessionCall(gateway.url, session, 'up__era'), 'legacy');
    const modern = await modernResult(gateway.url, 'tools/list');
    assert.deepEqual(namesIn(modern), ['up__count', 'up__era', 'up__only_modern']);
    assert.equal(await modernCall(gateway.url, 'up__era'), 'modern');
    // The list of one era does not change that of the other.
    const again = messagesOf(await post(gateway.url, rpc(3, 'tools/list'), session)).at(-1)?.['result'];
    assert.deepEqual(namesIn(again), ['up__count', 'up__era', 'up__ask']);
  });

  // N-40
  test('gives each client the instructions of its era, in any order', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual() });
    await initialize(gateway.url);
    const { instructions } = await modernResult(gateway.url, 'server/discover');
    assert.match(String(instructions), /modern/);
    await using client = await connect('SDK v1', gateway.url);
    assert.match(client.instructions, /legacy/);
  });

  // N-40
  test('sends its questions to clients with a session', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual() });
    const human = { elicitation: () => ({ name: 'Ada' }) };
    await using client = await connect('SDK v1', gateway.url, { human });
    assert.equal(textOf(await client.call('up__ask')), 'Hello, Ada');
  });

  // N-40
  test('is not probed in an era before a client of that era arrives', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual() });
    const session = await initialize(gateway.url);
    assert.equal(await sessionCall(gateway.url, session, 'up__era'), 'legacy');
    const found = () =>
      gateway.lines
        .map((line): { msg: string; era?: string } => JSON.parse(line))
        .filter(({ msg }) => msg.startsWith('era of'))
        .map(({ era }) => era);
    // Lines are written some time after their event.
    await waitUntil(() => found().length > 0);
    assert.deepEqual(found(), ['legacy']);
    await modernResult(gateway.url, 'tools/list');
    await waitUntil(() => found().length > 1);
    assert.deepEqual(found(), ['legacy', 'modern']);
  });

  // N-40
  test('restricted to one era by the config is bridged for clients of the other', TIMEOUT, async () => {
    await using gateway = await openGateway({
      old: { ...dual(), era: 'legacy' },
      new: { ...dual(), era: 'modern' },
    });
    await modernResult(gateway.url, 'tools/list');
    assert.equal(await modernCall(gateway.url, 'old__era'), 'legacy');
    const session = await initialize(gateway.url);
    assert.equal(await sessionCall(gateway.url, session, 'new__era'), 'modern');
  });
});

suite('a program of 2026-07-28 that comes back as one of 2025-11-25', { concurrency: 1 }, () => {
  test('is listed again for the next list request', TIMEOUT, async () => {
    await using program = await replaceable();
    await using gateway = await openGateway({ up: program.config });
    const list = async () => namesIn(await modernResult(gateway.url, 'tools/list'));
    assert.ok((await list()).includes('up__only_modern'));
    await program.replace();
    await modernPost(gateway.url, 'tools/call', { name: 'up__quit', arguments: {} });
    assert.equal(await modernCall(gateway.url, 'up__era'), 'legacy');
    assert.ok((await list()).includes('up__only_legacy'));
  });

  // N-40
  test('is ready again once it serves as that', TIMEOUT, async () => {
    await using program = await replaceable();
    await using gateway = await openGateway({ up: program.config });
    await modernResult(gateway.url, 'tools/list');
    await program.replace();
    await modernPost(gateway.url, 'tools/call', { name: 'up__quit', arguments: {} });
    assert.equal(await modernCall(gateway.url, 'up__era'), 'legacy');
    const states = (await gateway.metrics()).match(/^linkspan_upstream_state_info\{.*\} 1$/gm);
    assert.deepEqual(states, ['linkspan_upstream_state_info{upstream="up",state="ready"} 1']);
    assert.match(await (await fetch(`${gateway.operatorUrl}/status`)).text(), /"state":"ready"/);
  });

  for (const isolation of ['session', 'principal']) {
    //
    test(`asks a modern client in its first call, with isolation ${isolation}`, TIMEOUT, async () => {
      await using program = await replaceable();
      await using gateway = await openGateway({ up: { ...program.config, isolation } });
      const call = askable(gateway.url);
      assert.equal(textIn((await call('era')).result), 'modern');
      await program.replace();
      await call('quit');
      const { requestState } = inputRequiredIn(await call('ask'));
      const inputResponses = { user_name: { action: 'accept', content: { name: 'Ada' } } };
      assert.equal(textIn((await call('ask', { requestState, inputResponses })).result), 'Hello, Ada');
    });
  }

  //
  test('is refused a question in a call that had waited for the old program', TIMEOUT, async () => {
    await using program = await replaceable();
    await using gateway = await openGateway({ up: { ...program.config, concurrency: 1 } });
    const call = askable(gateway.url);
    await call('era');
    const quitting = call('quit');
    const shows = async (metric: string) => (await gateway.metrics()).includes(`${metric}{upstream="up"} 1\n`);
    await waitUntil(() => shows('linkspan_upstream_requests_in_flight'));
    const asking = call('ask');
    await waitUntil(() => shows('linkspan_upstream_requests_queued'));
    await program.replace();
    await quitting;
    assert.equal(textIn((await asking).result), 'Hello, undefined');
  });
});

/** Returns a function that calls a tool with a request of 2026-07-28 that declares forms. */
function askable(url: string) {
  const options = { capabilities: { elicitation: { form: {} } } };
  return async (tool: string, retry: object = {}) => {
    const params = { name: `up__${tool}`, arguments: {}, ...retry };
    return answerOf(await modernPost(url, 'tools/call', params, options));
  };
}

const KEYS = ['anna-key', 'bert-key'] as const;
const AUTH = {
  apiKeys: KEYS.map((key) => ({ name: key, sha256: createHash('sha256').update(key).digest('hex') })),
};
const as = (key: string) => ({ authorization: `Bearer ${key}` });

suite('a program with state, used with two API keys', { concurrency: 1 }, () => {
  const [anna, bert] = KEYS.map(as);

  for (const { isolation, counts } of [
    { isolation: 'session', counts: ['1', '2', '1', '3', '2'] },
    { isolation: 'principal', counts: ['1', '2', '1', '3', '2'] },
    { isolation: 'shared', counts: ['1', '2', '3', '4', '5'] },
    { isolation: 'call', counts: ['1', '1', '1', '1', '1'] },
  ]) {
    // N-40
    test(`keeps modern principals apart with isolation ${isolation}`, TIMEOUT, async () => {
      await using gateway = await openGateway({ up: { ...dual(), isolation } }, { auth: AUTH });
      const results: string[] = [];
      for (const headers of [anna, anna, bert, anna, bert]) {
        results.push(await modernCall(gateway.url, 'up__count', headers));
      }
      assert.deepEqual(results, counts);
    });
  }

  // N-40
  test('keeps the endpoints of one principal apart in the modern era', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: dual() }, { auth: AUTH });
    const own = `${gateway.url}/up`;
    const results = [];
    for (const [url, name] of [
      [gateway.url, 'up__count'],
      [gateway.url, 'up__count'],
      [own, 'count'],
    ] as const) {
      results.push(await modernCall(url, name, anna));
    }
    assert.deepEqual(results, ['1', '2', '1']);
  });

  // N-40
  test('keeps two sessions apart if it supports only the modern era', TIMEOUT, async () => {
    await using gateway = await openGateway({ up: { ...dual(), era: 'modern' } });
    const first = await initialize(gateway.url);
    const second = await initialize(gateway.url);
    const results = [];
    for (const session of [first, first, second]) results.push(await sessionCall(gateway.url, session, 'up__count'));
    assert.deepEqual(results, ['1', '2', '1']);
  });
});
