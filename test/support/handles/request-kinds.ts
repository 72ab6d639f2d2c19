import assert from 'node:assert/strict';
import { seenOf } from './actors.ts';
import { cancelModern, type HandleKind } from './handle-kind.ts';
import { acceptedBy, assertAnswers, assertFinishes, asked, held } from './held-call.ts';

export const REQUEST_ID: HandleKind = {
  name: 'request id in a cancellation',
  make: async (owner, upstreams) => {
    const one = await held(owner, upstreams, { progressToken: 1 });
    return {
      text: String(one.id),
      unknown: '999999',
      use: async (actor, id) => [
        seenOf(await actor.sendMessage({ method: 'notifications/cancelled', params: { requestId: Number(id) } })),
        seenOf(await actor.modernTell('notifications/cancelled', { requestId: Number(id) })),
      ],
      assertWorks: () => assertFinishes(one.events, one.call),
    };
  },
};

export const MODERN_REQUEST_ID: HandleKind = {
  name: 'request id of 2026-07-28 in a cancellation',
  make: async (owner, { leg }) => {
    const [nonce, id] = [owner.nonce(), owner.id()];
    const params = { name: 'leg__hold', arguments: { nonce } };
    const streaming = owner.modernStream('tools/call', params, { progressToken: 1 }, id);
    const call = await leg.held(nonce);
    call.progress();
    const events = await streaming;
    return {
      text: String(id),
      unknown: '999999',
      use: cancelModern,
      assertWorks: () => assertFinishes(events, call),
    };
  },
};

export const QUESTION_ID: HandleKind = {
  name: 'id of a question',
  make: async (owner, upstreams) => {
    const one = await held(owner, upstreams, { progressToken: 1 });
    const id = await asked(one);
    return {
      text: id,
      unknown: JSON.stringify('invented'),
      use: async (actor, of) => [
        seenOf(await actor.sendMessage({ id: JSON.parse(of), result: acceptedBy(actor.nonce()) })),
        seenOf(
          await actor.sendMessage({ id: JSON.parse(of), error: { code: -1, message: actor.nonce() } }, actor.bare),
        ),
      ],
      assertWorks: () => assertAnswers(owner, upstreams, one, id),
    };
  },
};

export const QUESTION_TOKEN: HandleKind = {
  name: 'progress token of a question',
  make: async (owner, upstreams) => {
    const one = await held(owner, upstreams, { progressToken: 1 });
    const id = await asked(one, { progressToken: `token ${one.nonce}` });
    const params = one.events.messages.find(({ method }) => method === 'elicitation/create')?.params;
    const token = tokenIn(params);
    return {
      text: JSON.stringify(token),
      unknown: JSON.stringify('invented'),
      use: async (actor, of) => [
        seenOf(
          await actor.sendMessage({
            method: 'notifications/progress',
            params: { progressToken: JSON.parse(of), progress: 1, message: actor.nonce() },
          }),
        ),
      ],
      assertWorks: () => assertAnswers(owner, upstreams, one, id),
    };
  },
};

function tokenIn(params: unknown): unknown {
  const text = JSON.stringify(params);
  const found = /"progressToken":("[^"]*"|\d+)/.exec(text)?.[1];
  assert.ok(found !== undefined, text);
  return JSON.parse(found);
}

export const PROGRESS_TOKEN: HandleKind = {
  name: 'progress token and request id of a call',
  calls: true,
  make: async (owner, upstreams) => {
    const token = `token ${owner.nonce()}`;
    const one = await held(owner, upstreams, { progressToken: token });
    return {
      text: token,
      unknown: 'token invented',
      use: async (actor, of) => {
        const params = { name: 'leg__echo', arguments: { nonce: actor.nonce() }, _meta: { progressToken: of } };
        return [
          seenOf(await actor.ask('tools/call', params, actor.session, one.id)),
          seenOf(await actor.modern('tools/call', params, { progressToken: of }, one.id)),
        ];
      },
      assertWorks: async () => {
        one.call.progress();
        await one.events.until(({ numbers }) => numbers.length === 2);
        await assertFinishes(one.events, one.call);
      },
    };
  },
};
