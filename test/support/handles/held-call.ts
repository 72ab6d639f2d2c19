import assert from 'node:assert/strict';
import type { Events } from '../../downstream/client.ts';
import type { Actor } from './actors.ts';
import type { Upstreams } from './handle-kind.ts';
import type { HeldCall } from './spy-upstream.ts';

/** Resolves with the last message of a stream, which must be a result of this call. */
export async function assertFinishes(events: Events, call: HeldCall): Promise<void> {
  assert.ok(!call.isClosed, 'the call was cancelled at the upstream');
  call.finish();
  await events.until(({ messages }) => messages.some(({ result }) => result !== undefined));
  assert.ok(JSON.stringify(events.messages.at(-1)?.result).includes(call.nonce));
  events.close();
}

/** Starts a call in the session of an actor that its upstream does not answer yet. */
export async function held(
  owner: Actor,
  { leg }: Upstreams,
  meta: object = {},
  session = owner.session,
  id = owner.id(),
) {
  const nonce = owner.nonce();
  const params = { name: 'leg__hold', arguments: { nonce }, _meta: meta };
  const streaming = owner.stream('tools/call', params, session, id);
  const call = await leg.held(nonce);
  call.progress();
  const events = await streaming;
  return { id, nonce, call, events };
}

export const QUESTION = {
  message: 'Who?',
  requestedSchema: { type: 'object', properties: { who: { type: 'string' } } },
};

/** Sends a question about a call. Returns its id at the client. */
export async function asked({ call, events }: Awaited<ReturnType<typeof held>>, meta: object = {}): Promise<string> {
  call.ask(`q ${call.nonce}`, 'elicitation/create', { ...QUESTION, _meta: meta });
  await events.until(({ messages }) => messages.some(({ method }) => method === 'elicitation/create'));
  return JSON.stringify(events.messages.find(({ method }) => method === 'elicitation/create')?.id);
}

export const acceptedBy = (who: string) => ({ action: 'accept', content: { who } });

/** Answers the question as its owner, and checks that the upstream gets this answer and no other. */
export async function assertAnswers(
  owner: Actor,
  { leg }: Upstreams,
  one: Awaited<ReturnType<typeof held>>,
  id: string,
) {
  const got = await owner.sendMessage({ id: JSON.parse(id), result: acceptedBy(one.nonce) });
  assert.equal(got.status, 202);
  await leg.until((body) => body.includes(`"who":"${one.nonce}"`));
  assert.equal(leg.caused.filter((body) => body.includes(`"q ${one.nonce}"`)).length, 1);
  await assertFinishes(one.events, one.call);
}
