import assert from 'node:assert/strict';
import { suite, test } from 'node:test';
import { initialize, messagesOf, post, rpc } from '../downstream/client.ts';
import { testCore } from '../support/core.ts';
import { legacyUpstream, modernUpstream, type Served } from '../support/http-upstream.ts';
import { answerOf, modernPost, modernResult } from '../support/modern-wire.ts';
import { ModernClient } from '../support/modern-client.ts';
import { openGateway } from '../support/open-gateway.ts';
import { stopTime } from '../support/stopped-time.ts';
import { waitUntil } from '../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const KNOWS = { extensions: { 'io.modelcontextprotocol/tasks': {} } };
const TOOL = { name: 'act', inputSchema: { type: 'object' } };
const PROMPT = { name: 'ask' };
const CALL = { name: 'up__act', arguments: {} };
const DONE = { resultType: 'complete', content: [{ type: 'text', text: 'done' }] };
/** Longer than remote lists are valid. */
const LISTS_MS = 301_000;

type Members = Readonly<Record<string, unknown>>;
type Answer = (served: Served) => Members | undefined;

interface Script {
  tools: Members[];
  prompts?: Members[];
  answers: Record<string, Answer>;
}

/** Refuses a request as a server of the TypeScript SDK does. */
function refuse({ response }: Served, message: string): undefined {
  const error = { code: -32_000, message: `Bad Request: ${message}` };
  response.writeHead(400, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ jsonrpc: '2.0', error, id: null }));
}

/** Returns whether a prompt of the upstream is listed. */
async function hasPrompt(url: string): Promise<boolean> {
  const { prompts } = await modernResult(url, 'prompts/list');
  return Array.isArray(prompts) && prompts.length > 0;
}

suite('a modern upstream that was deployed anew', () => {
  // L-011 R4
  test('gets a handshake when its stream has broken, and its new lists are read', TIMEOUT, async () => {
    const script: Script = { tools: [TOOL], answers: {} };
    await using upstream = await modernUpstream(script);
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    await waitUntil(() => upstream.listens().length === 1);
    script.prompts = [PROMPT];
    upstream.listens()[0]?.breakOff();
    await waitUntil(() => hasPrompt(gateway.url));
    await waitUntil(() => upstream.listens().length === 1);
    const filters = upstream.listens().map(({ params }) => params['notifications']);
    assert.deepEqual(filters, [{ toolsListChanged: true, promptsListChanged: true }]);
  });

  // L-011 R4
  test('finishes the calls in flight, each of which it has got once', TIMEOUT, async () => {
    const gate = Promise.withResolvers<void>();
    const script: Script = { tools: [TOOL], answers: {} };
    script.answers['tools/call'] = (served) => {
      void gate.promise.then(() => served.result(DONE));
      return undefined;
    };
    await using upstream = await modernUpstream(script);
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    const calling = modernPost(gateway.url, 'tools/call', CALL);
    await waitUntil(() => upstream.requests('tools/call').length === 1 && upstream.listens().length === 1);
    script.prompts = [PROMPT];
    upstream.listens()[0]?.breakOff();
    await waitUntil(() => hasPrompt(gateway.url));
    gate.resolve();
    assert.deepEqual(answerOf(await calling).result?.['content'], DONE.content);
    assert.equal(upstream.requests('tools/call').length, 1);
  });

  // R4
  test('keeps its connection if it describes itself as before', TIMEOUT, async () => {
    await using upstream = await modernUpstream({ tools: [TOOL] });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    await waitUntil(() => upstream.listens().length === 1);
    const lists = upstream.requests('tools/list').length;
    upstream.notify('notifications/tools/list_changed');
    await waitUntil(() => upstream.requests('tools/list').length > lists);
    await modernResult(gateway.url, 'tools/list');
    assert.equal(upstream.requests('subscriptions/listen').length, 1);
    assert.match(await gateway.metrics(), /linkspan_upstream_restarts_total\{upstream="up"\} 0/);
  });

  // R4
  test('is asked once about itself when it refuses many calls in a row', TIMEOUT, async (t) => {
    const time = stopTime(t);
    const answers = {
      'tools/call': ({ response }: Served): undefined => {
        response.writeHead(404).end();
      },
    };
    await using upstream = await modernUpstream({ tools: [TOOL], answers });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    await waitUntil(() => upstream.listens().length === 1);
    const discoveries = () => upstream.requests('server/discover').length;
    const before = discoveries();
    const refused = await Promise.all(Array.from({ length: 20 }, () => modernPost(gateway.url, 'tools/call', CALL)));
    assert.ok(refused.every((one) => answerOf(one).error !== undefined));
    await waitUntil(() => discoveries() > before);
    assert.equal(discoveries(), before + 1);
    time.pass(5_000);
    await modernPost(gateway.url, 'tools/call', CALL);
    await waitUntil(() => discoveries() === before + 2);
    assert.equal(upstream.requests('subscriptions/listen').length, 1);
  });

  // R4
  test('loses its era only if it refuses the handshake twice, seconds apart', TIMEOUT, async (t) => {
    const time = stopTime(t);
    const down = ({ response }: Served): undefined => {
      response.writeHead(404).end();
    };
    const answers = { 'tools/call': down, 'server/discover': down };
    const script: Script = { tools: [TOOL], answers: {} };
    await using upstream = await modernUpstream(script);
    await using gateway = await openGateway({ up: { url: upstream.url } });
    await modernResult(gateway.url, 'tools/list');
    await waitUntil(() => upstream.listens().length === 1);
    Object.assign(script.answers, answers);
    const checks = () => upstream.requests('server/discover').length;
    const before = checks();
    await modernPost(gateway.url, 'tools/call', CALL);
    await waitUntil(() => checks() === before + 1);
    await modernPost(gateway.url, 'tools/call', CALL);
    assert.equal(upstream.listens().length, 1);
    time.pass(5_000);
    await modernPost(gateway.url, 'tools/call', CALL);
    await waitUntil(() => upstream.listens().length === 0);
  });

  // L-011 R4
  test('ends the streams that follow its tasks, so that clients listen again', TIMEOUT, async () => {
    const task = { taskId: 't-1', status: 'working', createdAt: '', lastUpdatedAt: '', ttlMs: 600_000 };
    let calls = 0;
    // The second call keeps the old connection open.
    const answer = () => (++calls === 1 ? { ...task, resultType: 'task' } : undefined);
    const answers: Script['answers'] = { 'tools/call': answer };
    const script = { tools: [TOOL], answers, capabilities: { tools: { listChanged: true }, ...KNOWS } };
    await using upstream = await modernUpstream(script);
    await using gateway = await testCore({ up: upstream.config });
    const client = new ModernClient(gateway, KNOWS);
    const { taskId } = await client.result('tools/call', CALL);
    const running = client.request('tools/call', CALL);
    const { reply } = client.request('subscriptions/listen', { notifications: { taskIds: [taskId] } });
    const follows = ({ params }: Served) => JSON.stringify(params['notifications']).includes('t-1');
    await waitUntil(() => upstream.listens().some(follows));
    script.capabilities = { tools: { listChanged: false }, ...KNOWS };
    for (const stream of upstream.listens()) stream.breakOff();
    const first = await Promise.race([reply, running.reply]);
    assert.equal(first, await reply, 'the stream does not wait for the end of the connection');
    assert.notEqual(first.result, undefined);
    running.call.cancel('done');
    await running.reply;
  });

  // L-011 R4
  test('in an older version is used in the legacy era, also by clients that call alone', TIMEOUT, async () => {
    const script: Script = { tools: [TOOL], answers: { 'tools/call': () => DONE } };
    await using upstream = await modernUpstream(script);
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    const call = async () => messagesOf(await post(gateway.url, rpc(1, 'tools/call', CALL), session)).at(-1);
    assert.notEqual((await call())?.result, undefined);
    Object.assign(script.answers, rolledBack());
    const before = upstream.requests('tools/call').length;
    await waitUntil(async () => (await call())?.result !== undefined);
    assert.notEqual(answerOf(await modernPost(gateway.url, 'tools/call', CALL)).result, undefined);
    const eras = upstream
      .requests('tools/call')
      .slice(before)
      .map(({ headers }) => headers['mcp-protocol-version']);
    assert.deepEqual(eras.slice(-2), ['2025-11-25', '2025-11-25']);
  });
});

/** Returns the answers of a server that knows only the legacy era, without sessions. */
function rolledBack(): Script['answers'] {
  const legacy =
    (answer: Answer): Answer =>
    (served) =>
      served.headers['mcp-protocol-version'] === '2026-07-28'
        ? refuse(served, 'Server not initialized')
        : answer(served);
  const accept = ({ response }: Served): undefined => {
    response.writeHead(202).end();
  };
  const serverInfo = { name: 'scripted', version: '0' };
  return {
    '': ({ response }) => {
      response.writeHead(405).end();
      return undefined;
    },
    'server/discover': legacy(() => undefined),
    'subscriptions/listen': legacy(() => undefined),
    initialize: legacy(() => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo })),
    'notifications/initialized': legacy(accept),
    'tools/list': legacy(() => ({ tools: [TOOL] })),
    'tools/call': legacy(() => ({ content: DONE.content })),
  };
}

suite('a legacy upstream without sessions that was deployed anew', () => {
  // L-011 R4
  test('gets a handshake when its lists are read again, with its new lists', TIMEOUT, async (t) => {
    const time = stopTime(t);
    const script: Script = { tools: [TOOL], answers: {} };
    await using upstream = await legacyUpstream(script);
    await using gateway = await testCore({ up: { ...upstream.config, era: 'auto' } });
    const client = await gateway.connect();
    await time.passUntil(client.result('tools/list'), 10);
    script.prompts = [PROMPT];
    time.pass(LISTS_MS);
    const hasNew = async () => {
      const { prompts } = await time.passUntil(client.result('prompts/list'), 100);
      return Array.isArray(prompts) && prompts.length > 0;
    };
    await waitUntil(hasNew);
  });

  // R4
  test('gets one handshake for all sessions whose requests it refuses', TIMEOUT, async () => {
    const gate = Promise.withResolvers<void>();
    const answers: Script['answers'] = {
      'tools/call': (served) => {
        void gate.promise.then(() => refuse(served, 'Unsupported protocol version'));
        return undefined;
      },
    };
    await using upstream = await legacyUpstream({ tools: [TOOL], answers });
    await using gateway = await openGateway({ up: { url: upstream.url, isolation: 'session' } });
    const sessions = await Promise.all(Array.from({ length: 10 }, () => initialize(gateway.url)));
    const calling = sessions.map((session) => post(gateway.url, rpc(1, 'tools/call', CALL), session));
    await waitUntil(() => upstream.requests('tools/call').length === 10);
    const before = upstream.requests('initialize').length;
    gate.resolve();
    await Promise.all(calling);
    await waitUntil(() => upstream.requests('initialize').length > before);
    await post(gateway.url, rpc(2, 'tools/list'), sessions[0]);
    assert.equal(upstream.requests('initialize').length, before + 1);
  });

  // L-011 R4
  test('and has only other texts gets other connections once an hour', TIMEOUT, async (t) => {
    const time = stopTime(t);
    const serverInfo = { name: 'scripted', version: '1' };
    const hello = () => ({ protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo });
    await using upstream = await legacyUpstream({ tools: [TOOL], answers: { initialize: hello } });
    await using gateway = await testCore({ up: upstream.config });
    const client = await gateway.connect();
    const count = (method: string) => upstream.requests(method).length;
    /** Returns the number of handshakes before the lists of another version are read. */
    const handshakesAfter = async (version: string, ms: number) => {
      serverInfo.version = version;
      const [handshakes, lists] = [count('initialize'), count('tools/list')];
      time.pass(ms);
      await waitUntil(async () => {
        await time.passUntil(client.result('tools/list'), 100);
        return count('tools/list') > lists;
      });
      return count('initialize') - handshakes;
    };
    await time.passUntil(client.result('tools/list'), 10);
    assert.equal(await handshakesAfter('2', LISTS_MS), 2);
    assert.equal(await handshakesAfter('3', LISTS_MS), 1);
    assert.equal(await handshakesAfter('3', 3_600_000), 2);
  });

  // L-011 R4
  test('gets a new connection while a call runs on the old one, the only one allowed', TIMEOUT, async () => {
    const gate = Promise.withResolvers<void>();
    let revision = '2025-11-25';
    const serverInfo = { name: 'scripted', version: '1' };
    const answers: Script['answers'] = {
      initialize: () => ({ protocolVersion: revision, capabilities: { tools: {} }, serverInfo }),
      'tools/call': (served) => {
        if (served.headers['mcp-protocol-version'] !== revision) return refuse(served, 'Unsupported protocol version');
        if (revision !== '2025-11-25') return { content: [] };
        void gate.promise.then(() => served.result(DONE));
        return undefined;
      },
    };
    await using upstream = await legacyUpstream({ tools: [TOOL], answers });
    const limited = { maxConnections: 1, isolation: 'shared', queueWait: '1s' }; // subject
    await using gateway = await openGateway({ up: { url: upstream.url, ...limited } });
    const session = await initialize(gateway.url);
    let id = 0;
    const call = async () => messagesOf(await post(gateway.url, rpc(++id, 'tools/call', CALL), session)).at(-1);
    const running = call();
    await waitUntil(() => upstream.requests('tools/call').length === 1);
    revision = '2025-06-18';
    await waitUntil(async () => (await call())?.result !== undefined);
    gate.resolve();
    assert.notEqual((await running)?.result, undefined);
  });

  // L-011 R4
  test('and refuses the revision of before gets a handshake after one refused call', TIMEOUT, async () => {
    let revision = '2025-11-25';
    const upstreamScript: Script = { tools: [TOOL], answers: {} };
    upstreamScript.answers = {
      initialize: () => ({
        protocolVersion: revision,
        capabilities: { tools: {} },
        serverInfo: { name: 'scripted', version: '1' },
      }),
      'tools/call': (served) => {
        if (served.headers['mcp-protocol-version'] === revision) return { content: DONE.content };
        return refuse(served, `Unsupported protocol version (supported versions: ${revision})`);
      },
    };
    await using upstream = await legacyUpstream(upstreamScript);
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    const call = async () => messagesOf(await post(gateway.url, rpc(1, 'tools/call', CALL), session)).at(-1);
    assert.notEqual((await call())?.result, undefined);
    revision = '2025-06-18';
    await waitUntil(async () => (await call())?.result !== undefined);
    assert.equal(upstream.requests('tools/call').at(-1)?.headers['mcp-protocol-version'], revision);
  });
});

// R4
test('a remote upstream that drops the sessions of clients has not ended', TIMEOUT, async () => {
  let begun = 0;
  const known = new Set<string>();
  const answers: Script['answers'] = {
    initialize: ({ response }) => {
      const id = `session-${++begun}`;
      known.add(id);
      response.setHeader('mcp-session-id', id);
      const serverInfo = { name: 'scripted', version: '1' };
      return { protocolVersion: '2025-11-25', capabilities: { tools: {} }, serverInfo };
    },
    'tools/call': ({ headers, response }) => {
      if (known.has(String(headers['mcp-session-id']))) return { content: [] };
      response.writeHead(404).end();
      return undefined;
    },
  };
  await using upstream = await legacyUpstream({ tools: [TOOL], answers });
  await using gateway = await openGateway({ up: { url: upstream.url } });
  const clients = [await initialize(gateway.url), await initialize(gateway.url)];
  const call = async () => {
    for (const client of clients) {
      const answer = messagesOf(await post(gateway.url, rpc(1, 'tools/call', CALL), client)).at(-1);
      assert.notEqual(answer?.result, undefined);
    }
  };
  await call();
  known.clear();
  await call();
  const metrics = await gateway.metrics();
  assert.match(metrics, /linkspan_upstream_restarts_total\{upstream="up"\} 0/);
  assert.match(metrics, /linkspan_upstream_state_lost_total\{upstream="up",reason="forgotten"\} 2/);
});

suite('a legacy upstream with sessions that reports a change', () => {
  /** A server whose sessions have a stream each. @param hello the members of the next handshakes. */
  function sessions(hello: Members) {
    const streams: Served[] = [];
    let begun = 0;
    const answers: Script['answers'] = {
      initialize: ({ response }) => {
        response.setHeader('mcp-session-id', `session-${++begun}`);
        const serverInfo = { name: 'scripted', version: '1' };
        return { protocolVersion: '2025-11-25', capabilities: { tools: { listChanged: true } }, serverInfo, ...hello };
      },
      '': (served) => {
        if (served.method !== 'GET') return {};
        streams.push(served);
        served.notify('notifications/other', {});
        return undefined;
      },
    };
    return { answers, streams, begun: () => begun };
  }

  /** Returns what a new session is told. */
  async function helloOf(url: string): Promise<string> {
    const client = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'test', version: '0' } };
    return (await post(url, rpc(0, 'initialize', client))).text;
  }

  // R4
  test('and has other instructions gets another session, so that clients get them', TIMEOUT, async () => {
    const hello: Record<string, unknown> = { instructions: 'Of before.' };
    const { answers, streams, begun } = sessions(hello);
    await using upstream = await legacyUpstream({ tools: [TOOL], answers });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    await post(gateway.url, rpc(1, 'tools/list'), session);
    await waitUntil(() => streams.length === 1);
    hello['instructions'] = 'Of now.';
    streams[0]?.notify('notifications/tools/list_changed', {});
    await waitUntil(async () => (await helloOf(gateway.url)).includes('Of now.'));
    await waitUntil(() => streams.length === 2);
    // The one that has asked what changed ends at once.
    assert.equal(begun(), 3);
    hello['instructions'] = 'Of later.';
    const lists = upstream.requests('tools/list').length;
    streams[1]?.notify('notifications/tools/list_changed', {});
    await waitUntil(() => upstream.requests('tools/list').length > lists);
    assert.equal(begun(), 3);
  });

  // R4
  test('keeps its session if it describes itself as before', TIMEOUT, async () => {
    const { answers, streams, begun } = sessions({});
    await using upstream = await legacyUpstream({ tools: [TOOL], answers });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    await post(gateway.url, rpc(1, 'tools/list'), session);
    await waitUntil(() => streams.length === 1);
    const lists = upstream.requests('tools/list').length;
    streams[0]?.notify('notifications/tools/list_changed', {});
    await waitUntil(() => upstream.requests('tools/list').length > lists);
    assert.equal(begun(), 2);
    assert.deepEqual(
      streams.map(({ response }) => response.closed),
      [false],
    );
  });

  // R4
  test('gets back the session that has asked what changed when the gateway stops', TIMEOUT, async () => {
    const { answers, streams } = sessions({});
    const asking = Promise.withResolvers<Served>();
    answers['notifications/initialized'] = (served) => {
      if (served.headers['mcp-session-id'] === 'session-2') asking.resolve(served);
      else served.response.writeHead(202).end();
      return undefined;
    };
    await using upstream = await legacyUpstream({ tools: [TOOL], answers });
    await using gateway = await openGateway({ up: { url: upstream.url } });
    const session = await initialize(gateway.url);
    await post(gateway.url, rpc(1, 'tools/list'), session);
    await waitUntil(() => streams.length === 1);
    streams[0]?.notify('notifications/tools/list_changed', {});
    const { response } = await asking.promise;
    const ended = () =>
      upstream.received.items
        .filter(({ method }) => method === 'DELETE')
        .map(({ headers }) => headers['mcp-session-id']);
    const stopping = gateway.stop();
    await waitUntil(() => ended().length > 0);
    response.writeHead(202).end();
    await stopping;
    assert.deepEqual(new Set(ended()), new Set(['session-1', 'session-2']));
  });
});
