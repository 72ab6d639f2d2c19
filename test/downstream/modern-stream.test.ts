import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { event, stream } from '../fixtures/servers/http-harness.ts';
import {
  type HttpUpstream,
  legacyUpstream,
  modernUpstream,
  resultText,
  type Served,
} from '../support/http-upstream.ts';
import { answerOf, modernEvents, modernPost, modernResult } from '../support/modern-wire.ts';
import { type OpenGateway, openGateway } from '../support/open-gateway.ts';
import { usedBytes } from '../support/used-bytes.ts';
import { waitUntil } from '../support/wait-until.ts';
import { messagesOf } from './client.ts';

const TIMEOUT = { timeout: 120_000 };
const SUBSCRIPTION = 'io.modelcontextprotocol/subscriptionId';

const TOOLS = ['quick', 'counts', 'stumbles', 'asks', 'chats', 'waits'].map((name) => ({
  name,
  inputSchema: { type: 'object' },
}));

const DONE = { content: [{ type: 'text', text: 'done' }] };

function progressText({ meta }: Served, progress: number | undefined): string {
  const { progressToken } = meta;
  return JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken, progress } });
}

/** Returns the handler of tool calls. The name of the tool decides its behaviour. */
function act(result: Readonly<Record<string, unknown>>) {
  return (served: Served) => {
    const { id, params, response } = served;
    const final = event(resultText(id, result));
    switch (params['name']) {
      case 'counts':
        stream(response, event(progressText(served, 1)), event(progressText(served, 2)), final);
        response.end();
        return undefined;
      case 'stumbles':
        stream(response, ...[3, undefined, 2, 4].map((n) => event(progressText(served, n))), final);
        response.end();
        return undefined;
      case 'asks': {
        const sampling = { messages: [], maxTokens: 1 };
        stream(
          response,
          event(JSON.stringify({ jsonrpc: '2.0', id: 'x', method: 'sampling/createMessage', params: sampling })),
          event(JSON.stringify({ jsonrpc: '2.0', id: 'y', method: 'ping' })),
          final,
        );
        response.end();
        return undefined;
      }
      case 'chats':
        stream(response, event(progressText(served, 1)), final, event(progressText(served, 2)), final);
        response.end();
        return undefined;
      case 'waits':
        stream(response, event(progressText(served, 1)));
        return undefined;
      default:
        return result;
    }
  };
}

let modern: HttpUpstream;
let legacy: HttpUpstream;
let gateway: OpenGateway;
let url = '';

before(async () => {
  modern = await modernUpstream({
    tools: TOOLS,
    resources: [{ uri: 'file:///a', name: 'a' }],
    answers: { 'tools/call': act({ resultType: 'complete', ...DONE }) },
  });
  legacy = await legacyUpstream({ tools: TOOLS, answers: { 'tools/call': act(DONE) } });
  gateway = await openGateway(
    { new: { url: modern.url }, old: { url: legacy.url, era: 'legacy' } },
    { sessions: { keepAlive: '1s' } },
  );
  url = gateway.url;
  await modernResult(url, 'tools/list');
});

after(async () => {
  await gateway[Symbol.asyncDispose]();
  await modern[Symbol.asyncDispose]();
  await legacy[Symbol.asyncDispose]();
});

function call(id: string, tool: string) {
  return { name: `${id}__${tool}`, arguments: {} };
}

/** Adds the progress token to `_meta`. */
const counted = (progressToken: number | string) => ({ meta: { progressToken } });

for (const id of ['new', 'old']) {
  suite(`a modern client of the upstream "${id}"`, { concurrency: 3 }, () => {
    // T-018
    test('is answered with one JSON object if the answer is the first message', TIMEOUT, async () => {
      const got = await modernPost(url, 'tools/call', call(id, 'quick'));
      assert.equal(got.headers['content-type'], 'application/json');
      assert.equal(answerOf(got).result?.['resultType'], 'complete');
    });

    // T-018 T-022
    test('is answered with unbuffered events if other messages come first', TIMEOUT, async () => {
      const got = await modernPost(url, 'tools/call', call(id, 'counts'), counted('mine'));
      assert.equal(got.status, 200);
      assert.equal(got.headers['content-type'], 'text/event-stream');
      assert.equal(got.headers['x-accel-buffering'], 'no');
      const messages = messagesOf(got);
      assert.deepEqual(
        messages.slice(0, -1).map(({ params }) => params),
        [1, 2].map((progress) => ({ progressToken: 'mine', progress })),
      );
      assert.equal(answerOf(got).result?.['resultType'], 'complete');
    });

    // T-018
    test('that accepts only one of the two gets that one', TIMEOUT, async () => {
      const json = await modernPost(url, 'tools/call', call(id, 'counts'), {
        ...counted(1),
        headers: { accept: 'application/json' },
      });
      assert.equal(json.headers['content-type'], 'application/json');
      assert.equal(messagesOf(json).length, 1);
      const events = await modernPost(url, 'tools/call', call(id, 'quick'), {
        headers: { accept: 'text/event-stream' },
      });
      assert.equal(events.headers['content-type'], 'text/event-stream');
      assert.equal(messagesOf(events).length, 1);
    });

    // T-017
    test('gets events without ids', TIMEOUT, async () => {
      const events = await modernEvents(url, 'tools/call', call(id, 'counts'), counted(7));
      await events.ended();
      assert.deepEqual(
        events.seen.map(({ id: eventId }) => eventId),
        [undefined, undefined, undefined],
      );
      assert.equal(events.retryMs, undefined);
      assert.equal(events.headers['mcp-session-id'], undefined);
    });

    // T-019
    test('gets no request on its stream, whatever the upstream asks', TIMEOUT, async () => {
      for (const capabilities of [{}, { sampling: {} }]) {
        const events = await modernEvents(url, 'tools/call', call(id, 'asks'), { ...counted(7), capabilities });
        await events.ended();
        assert.deepEqual(
          events.messages.filter((message) => message.method !== undefined && message.id !== undefined),
          [],
        );
      }
    });

    // T-021 M-020
    test('gets nothing after the answer', TIMEOUT, async () => {
      const events = await modernEvents(url, 'tools/call', call(id, 'chats'), counted(7));
      await events.ended();
      assert.deepEqual(events.numbers, [1]);
      assert.equal(events.messages.length, 2);
      assert.notEqual(events.messages.at(-1)?.result, undefined);
    });

    // M-020
    test('gets only increasing progress', TIMEOUT, async () => {
      const events = await modernEvents(url, 'tools/call', call(id, 'stumbles'), counted(7));
      await events.ended();
      assert.deepEqual(events.numbers, [3, 4]);
    });
  });
}

// T-020
test('a disconnect closes the stream to a modern upstream', TIMEOUT, async () => {
  const seen = modern.received.items.length;
  const events = await modernEvents(url, 'tools/call', call('new', 'waits'), counted(7));
  await events.until(({ numbers }) => numbers.length === 1);
  const asked = modern.received.items.slice(seen).find(({ rpc }) => rpc === 'tools/call');
  assert.ok(asked);
  events.close();
  await asked.closed;
});

// T-020
test('a disconnect sends a cancel to a legacy upstream', TIMEOUT, async () => {
  const seen = legacy.received.items.length;
  const events = await modernEvents(url, 'tools/call', call('old', 'waits'), counted(7));
  await events.until(({ numbers }) => numbers.length === 1);
  const asked = legacy.received.items.slice(seen).find(({ rpc }) => rpc === 'tools/call');
  events.close();
  const cancelled = await legacy.received.find(({ rpc }, i) => i >= seen && rpc === 'notifications/cancelled');
  assert.equal(JSON.parse(cancelled.body).params.requestId, asked?.id);
});

// T-020
test('the end of a connection does not cancel an answered request', TIMEOUT, async () => {
  const seen = legacy.received.items.length;
  await modernPost(url, 'tools/call', call('old', 'quick'), { headers: { connection: 'close' } });
  await modernPost(url, 'tools/call', call('old', 'quick'));
  const methods = legacy.received.items.slice(seen).map(({ rpc }) => rpc);
  assert.deepEqual(methods, ['tools/call', 'tools/call']);
});

// L-014
test('requests of several clients may have the same id at the same time', TIMEOUT, async () => {
  const events = await modernEvents(url, 'tools/call', call('new', 'waits'), { id: 'same', ...counted(7) });
  await events.until(({ numbers }) => numbers.length === 1);
  const got = await modernPost(url, 'tools/call', call('new', 'counts'), { id: 'same', ...counted(8) });
  assert.equal(answerOf(got).id, 'same');
  assert.deepEqual(
    messagesOf(got)
      .slice(0, -1)
      .map(({ params }) => params),
    [1, 2].map((progress) => ({ progressToken: 8, progress })),
  );
  assert.deepEqual(events.numbers, [1]);
  events.close();
});

// L-017
test('a request inherits nothing from the previous one on its connection', TIMEOUT, async () => {
  const seen = modern.received.items.length;
  for (const capabilities of [{ sampling: {}, elicitation: { form: {} } }, {}, { roots: {} }]) {
    await modernPost(url, 'tools/call', call('new', 'quick'), { capabilities, headers: { connection: 'keep-alive' } });
  }
  const messages = modern.received.items
    .slice(seen)
    .filter(({ rpc }) => rpc === 'tools/call')
    .map(({ body }) => JSON.parse(body).params._meta['io.modelcontextprotocol/clientCapabilities']);
  assert.deepEqual(messages, [{ sampling: {}, elicitation: { form: {} } }, {}, { roots: {} }]);
});

// T-022 X-032 X-033
test('a listen stream starts with an acknowledgement, and idles with comments', TIMEOUT, async () => {
  const notifications = { toolsListChanged: true, resourceSubscriptions: ['new+file:///a', 'nobody:///x'] };
  const events = await modernEvents(url, 'subscriptions/listen', { notifications }, { id: 'l-1' });
  await events.until(({ comments, messages }) => comments >= 2 && messages.length > 0);
  assert.equal(events.status, 200);
  assert.equal(events.headers['x-accel-buffering'], 'no');
  assert.deepEqual(events.messages, [
    {
      jsonrpc: '2.0',
      method: 'notifications/subscriptions/acknowledged',
      params: {
        notifications: { toolsListChanged: true, resourceSubscriptions: ['new+file:///a'] },
        _meta: { [SUBSCRIPTION]: 'l-1' },
      },
    },
  ]);
  modern.notify('notifications/resources/updated', { uri: 'file:///b' });
  modern.notify('notifications/prompts/list_changed');
  modern.notify('notifications/message', { level: 'error', data: 'x' });
  modern.notify('notifications/resources/updated', { uri: 'file:///a' });
  await events.until(({ messages }) => messages.length === 2);
  assert.deepEqual(events.messages.at(-1), {
    jsonrpc: '2.0',
    method: 'notifications/resources/updated',
    params: { uri: 'new+file:///a', _meta: { [SUBSCRIPTION]: 'l-1' } },
  });
  events.close();
});

for (const notifications of [undefined, [], 'all']) {
  //
  test(`a listen for ${JSON.stringify(notifications)} is refused`, TIMEOUT, async () => {
    const got = await modernPost(url, 'subscriptions/listen', { notifications });
    assert.equal(answerOf(got).error?.code, -32602);
  });
}

// X-036 T-021
test('open listen streams do not keep the texts of their requests', TIMEOUT, async () => {
  await using own = await openGateway({ new: { url: modern.url } });
  const notifications = { resourceSubscriptions: [`nobody://${'x'.repeat(1_000)}`] };
  const params = { notifications, pad: 'x'.repeat(900_000) };
  const listen = async (id: string) => {
    const events = await modernEvents(own.url, 'subscriptions/listen', params, { id, capabilities: { sampling: {} } });
    await events.until(({ messages }) => messages.length > 0);
    return events;
  };
  const streams = [await listen('the-first-stream')];
  const before = usedBytes();
  for (let n = 0; n < 20; n++) streams.push(await listen(`a-stream-with-a-long-id-${n}`));
  await waitUntil(() => usedBytes() - before < 6_000_000);
  for (const events of streams) events.close();
});

test('when the gateway stops, a listen stream gets its answer and ends', TIMEOUT, async () => {
  await using own = await openGateway({ new: { url: modern.url } });
  const events = await modernEvents(
    own.url,
    'subscriptions/listen',
    { notifications: { toolsListChanged: true } },
    { id: 9 },
  );
  await events.until(({ messages }) => messages.length === 1);
  const stopped = own.stop();
  await events.ended();
  await stopped;
  const [, last, ...more] = events.messages;
  assert.equal(last?.id, 9);
  assert.match(JSON.stringify(last?.result), /"resultType":"complete"/);
  assert.match(JSON.stringify(last?.result), /subscriptionId":9/);
  assert.deepEqual(more, []);
});
