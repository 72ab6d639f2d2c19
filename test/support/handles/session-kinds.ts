import assert from 'node:assert/strict';
import { type Actor, type Seen, seenOf } from './actors.ts';
import { changed, type HandleKind, type Upstreams } from './handle-kind.ts';
import { held } from './held-call.ts';

/** Opens a GET stream, and closes it again. Resolves with what it brings before an update that the actor has asked for. */
async function seenOnStream(actor: Actor, { leg }: Upstreams, session: string, lastEventId?: string): Promise<Seen> {
  const events = await actor.listen(session, lastEventId);
  try {
    if (events.status !== 200) {
      const resumed = lastEventId === undefined ? undefined : { 'last-event-id': lastEventId };
      return seenOf(await actor.send('/mcp', 'GET', { 'mcp-session-id': session, ...resumed }), session);
    }
    const uri = `test://watched/${actor.nonce()}`;
    await actor.ask('resources/subscribe', { uri }, session);
    leg.update(uri);
    await events.until(({ seen }) => seen.some(({ data }) => data.includes(uri)));
    // Lists that arrive late are announced to the actor at any time.
    const messages = events.messages.filter(
      (message) => !JSON.stringify(message).includes(uri) && message.method?.endsWith('/list_changed') !== true,
    );
    return { status: 200, challenge: undefined, text: JSON.stringify(messages) };
  } finally {
    events.close();
  }
}

export const SESSION: HandleKind = {
  name: 'session id',
  sealed: 'session',
  make: async (owner) => ({
    text: owner.bare,
    unknown: changed(owner.bare),
    use: async (actor, session) => [
      seenOf(await actor.ask('tools/call', { name: 'leg__echo', arguments: { nonce: 'stolen' } }, session), session),
      seenOf(await actor.sendMessage({ method: 'notifications/roots/list_changed' }, session), session),
      seenOf(await actor.send('/mcp', 'DELETE', { 'mcp-session-id': session }), session),
    ],
    assertWorks: async () => {
      const nonce = owner.nonce();
      const got = await owner.ask('tools/call', { name: 'leg__echo', arguments: { nonce } }, owner.bare);
      assert.ok(got.text.includes(nonce), got.text);
    },
  }),
};

export const GET_STREAM: HandleKind = {
  name: 'GET stream of a session',
  make: async (owner, upstreams) => ({
    text: owner.session,
    unknown: changed(owner.session),
    use: async (actor, session) => [await seenOnStream(actor, upstreams, session)],
    assertWorks: async () => {
      const uri = `test://watched/${owner.nonce()}`;
      await owner.ask('resources/subscribe', { uri });
      upstreams.leg.update(uri);
      await owner.inbox.until(({ seen }) => seen.some(({ data }) => data.includes(uri)));
    },
  }),
};

export const SSE_SESSION: HandleKind = {
  name: 'id in the URL of HTTP+SSE',
  make: async (owner) => {
    const events = await owner.sse();
    await events.until(({ seen }) => seen.some(({ event }) => event === 'endpoint'));
    const path = events.seen.find(({ event }) => event === 'endpoint')?.data ?? '';
    const initialize = {
      jsonrpc: '2.0',
      id: 1,
      method: 'initialize',
      params: { protocolVersion: '2024-11-05', capabilities: {}, clientInfo: { name: 'test', version: '1' } },
    };
    const json = { 'content-type': 'application/json' };
    const answers = () => events.seen.filter(({ event }) => event === 'message').length;
    return {
      text: path,
      unknown: changed(path),
      use: async (actor, to) => [seenOf(await actor.send(to, 'POST', json, JSON.stringify(initialize)), to)],
      assertWorks: async () => {
        assert.equal(answers(), 0);
        await owner.send(path, 'POST', json, JSON.stringify(initialize));
        await events.until(() => answers() === 1);
        events.close();
      },
    };
  },
};

export const EVENT_ID: HandleKind = {
  name: 'Last-Event-ID',
  make: async (owner, upstreams) => {
    const { call, events } = await held(owner, upstreams, { progressToken: 1 });
    await events.until(({ numbers }) => numbers.length === 1);
    const { lastId } = events;
    events.close();
    call.finish();
    return {
      text: lastId,
      unknown: lastId.replace(/^[^.]+/, 'invented'),
      use: async (actor, id) => [
        await seenOnStream(actor, upstreams, actor.bare, id),
        await seenOnStream(actor, upstreams, owner.bare, id),
      ],
      assertWorks: async () => {
        const resumed = await owner.listen(owner.session, lastId);
        await resumed.until(({ messages }) => messages.some(({ result }) => result !== undefined));
        assert.ok(JSON.stringify(resumed.messages).includes(call.nonce));
        resumed.close();
      },
    };
  },
};
