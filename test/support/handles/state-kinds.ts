import assert from 'node:assert/strict';
import { inputRequiredIn } from '../modern-client.ts';
import { answerOf } from '../modern-wire.ts';
import { seenOf } from './actors.ts';
import { changed, type HandleKind, resultIn } from './handle-kind.ts';
import { acceptedBy, QUESTION } from './held-call.ts';

export const PARKED: HandleKind = {
  name: 'requestState of a parked call',
  sealed: 'state/park',
  make: async (owner, { leg }) => {
    const nonce = owner.nonce();
    const params = { name: 'leg__hold', arguments: { nonce } };
    const asking = owner.modern('tools/call', params);
    const call = await leg.held(nonce);
    call.ask(`q ${nonce}`, 'elicitation/create', QUESTION);
    const { inputRequests, requestState } = inputRequiredIn(answerOf(await asking));
    const retry = (who: string, state: string) => ({
      ...params,
      requestState: state,
      inputResponses: Object.fromEntries(Object.keys(inputRequests).map((key) => [key, acceptedBy(who)])),
    });
    return {
      text: requestState,
      unknown: changed(requestState),
      use: async (actor, state) => [seenOf(await actor.modern('tools/call', retry('thief', state)), state)],
      assertWorks: async () => {
        const answering = owner.modern('tools/call', retry(nonce, requestState));
        await leg.until((body) => body.includes(`"who":"${nonce}"`));
        call.finish();
        assert.ok(JSON.stringify(resultIn(await answering)).includes(nonce));
      },
    };
  },
};

export const RELAYED: HandleKind = {
  name: 'requestState of an upstream',
  sealed: 'state/relay',
  make: async (owner, { mod }) => {
    const nonce = owner.nonce();
    const params = { name: 'mod__ask', arguments: { nonce } };
    const first = await owner.modern('tools/call', params);
    const { requestState } = inputRequiredIn(answerOf(first));
    assert.ok(!first.text.includes('inner state'), 'the state of the upstream must be sealed');
    const retry = (who: string, state: string) => ({
      ...params,
      requestState: state,
      inputResponses: { q: acceptedBy(who) },
    });
    return {
      text: requestState,
      unknown: changed(requestState),
      use: async (actor, state) => [seenOf(await actor.modern('tools/call', retry('thief', state)), state)],
      assertWorks: async () => {
        resultIn(await owner.modern('tools/call', retry(nonce, requestState)));
        const retries = mod
          .requests('tools/call')
          .filter(({ params: sent }) => sent['requestState'] === `inner state ${nonce}`);
        assert.equal(retries.length, 1);
      },
    };
  },
};

export const PAGES: HandleKind = {
  name: 'requestState of a page',
  sealed: 'state/pages',
  make: async (owner, { leg }) => {
    const nonce = owner.nonce();
    const params = { name: 'leg__page', arguments: { nonce } };
    const { inputRequests, requestState } = inputRequiredIn(answerOf(await owner.modern('tools/call', params)));
    const inputResponses = Object.fromEntries(Object.keys(inputRequests).map((key) => [key, { action: 'accept' }]));
    const retry = (state: string) => ({ ...params, requestState: state, inputResponses });
    return {
      text: requestState,
      unknown: changed(requestState),
      use: async (actor, state) => [seenOf(await actor.modern('tools/call', retry(state)), state)],
      assertWorks: async () => {
        const answering = owner.modern('tools/call', retry(requestState));
        leg.completePage(nonce);
        assert.ok(JSON.stringify(resultIn(await answering)).includes(nonce));
      },
    };
  },
};

export const ELICITATION_ID: HandleKind = {
  name: 'id of a URL elicitation',
  make: async (owner, { leg }) => {
    const nonce = owner.nonce();
    const { error } = answerOf(await owner.ask('tools/call', { name: 'leg__page', arguments: { nonce } }));
    const id = /"elicitationId":("[^"]*")/.exec(JSON.stringify(error))?.[1];
    assert.ok(id !== undefined, JSON.stringify(error));
    const method = 'notifications/elicitation/complete';
    return {
      text: id,
      unknown: '"leg:page <nobody>1"',
      use: async (actor, of) => [
        seenOf(await actor.sendMessage({ method, params: { elicitationId: JSON.parse(of) } })),
      ],
      assertWorks: async () => {
        leg.completePage(nonce);
        await owner.inbox.until(({ messages }) =>
          messages.some((one) => one.method === method && JSON.stringify(one).includes(nonce)),
        );
      },
    };
  },
};
