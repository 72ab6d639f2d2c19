import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ClassifiedPost, classify } from '../../src/downstream/classify.ts';
import { refusalOfInput, refusalOfPost } from '../../src/downstream/new-work.ts';
import { GatewayError } from '../../src/errors.ts';
import type { Load, Work } from '../../src/load/load.ts';
import { parseClientBatch, parseClientMessage, type Request } from '../../src/protocol/jsonrpc.ts';
import { modernHeaders, modernText } from '../support/modern-wire.ts';

/** A load that refuses everything it is asked about. */
function highLoad() {
  const asked: Work[] = [];
  const load: Load = {
    isHigh: true,
    refusalOf: (work) => {
      asked.push(work);
      return { error: new GatewayError('overloaded'), retryAfterSeconds: 1 };
    },
  };
  return { load, asked };
}

const textOf = (method: string, params: object = {}) => JSON.stringify({ jsonrpc: '2.0', id: 7, method, params });
const inSession = (text: string): ClassifiedPost => ({
  kind: 'session',
  sessionId: 's',
  input: parseClientMessage(text),
});

function modern(method: string, params: Readonly<Record<string, unknown>>): ClassifiedPost {
  const headers = new Map(Object.entries(modernHeaders(method, params)));
  const named = { sessionId: undefined, version: '2026-07-28' };
  return classify(modernText(method, params, { id: 7 }), named, (name) => headers.get(name), true);
}

const INITIALIZE: Request = { kind: 'request', id: '7', method: 'initialize', params: undefined };

const posts: readonly { readonly name: string; readonly posted: ClassifiedPost; readonly work?: Work }[] = [
  { name: 'tools/call', posted: inSession(textOf('tools/call', { name: 'a' })), work: 'call' },
  { name: 'prompts/get', posted: inSession(textOf('prompts/get', { name: 'a' })), work: 'call' },
  { name: 'resources/read', posted: inSession(textOf('resources/read', { uri: 'a:b' })), work: 'call' },
  { name: 'completion/complete', posted: inSession(textOf('completion/complete')), work: 'call' },
  { name: 'initialize', posted: { kind: 'initialize', request: INITIALIZE }, work: 'session' },
  { name: 'a call of 2026-07-28', posted: modern('tools/call', { name: 'a' }), work: 'call' },
  { name: 'subscriptions/listen', posted: modern('subscriptions/listen', { notifications: {} }), work: 'stream' },
  {
    name: 'a legacy call with a made-up requestState',
    posted: inSession(textOf('tools/call', { name: 'a', requestState: 's' })),
    work: 'call',
  },
  // Posts that continue or end work, or cost little.
  { name: 'a retry with answers', posted: modern('tools/call', { name: 'a', requestState: 's', inputResponses: {} }) },
  { name: 'tasks/cancel', posted: modern('tasks/cancel', { taskId: 't' }) },
  { name: 'tasks/result', posted: inSession(textOf('tasks/result', { taskId: 't' })) },
  { name: 'tools/list', posted: inSession(textOf('tools/list')) },
  { name: 'server/discover', posted: modern('server/discover', {}) },
  { name: 'ping', posted: inSession(textOf('ping')) },
  { name: 'a cancellation', posted: inSession('{"jsonrpc":"2.0","method":"notifications/cancelled","params":{}}') },
  { name: 'an answer', posted: inSession('{"jsonrpc":"2.0","id":1,"result":{}}') },
  { name: 'an error as an answer', posted: inSession('{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}') },
];

for (const { name, posted, work } of posts) {
  // R19
  test(`${name} is ${work === undefined ? 'never refused' : `a new ${work}`}`, () => {
    assert.notEqual(posted.kind, 'refused');
    const { load, asked } = highLoad();
    assert.equal(refusalOfPost(load, posted) !== undefined, work !== undefined);
    assert.deepEqual(asked, work === undefined ? [] : [work]);
    assert.equal(refusalOfPost({ ...load, isHigh: false }, posted), undefined);
  });
}

// R19
test('a modern retry over one stream is never refused, unlike a made-up one', () => {
  const { load } = highLoad();
  const params = { name: 'a', requestState: 's', inputResponses: {} };
  const isRefused = (text: string) => refusalOfInput(load, parseClientMessage(text)) !== undefined;
  assert.equal(isRefused(modernText('tools/call', params, { id: 7 })), false);
  assert.equal(isRefused(modernText('tools/call', { name: 'a' }, { id: 7 })), true);
  assert.equal(isRefused(textOf('tools/call', params)), true);
});

// R19
test('a batch is refused if it does nothing but begin calls', () => {
  const { load } = highLoad();
  const isRefused = (...texts: readonly string[]) =>
    refusalOfInput(load, parseClientBatch(`[${texts.join()}]`, 20)) !== undefined;
  const [call, ping] = [textOf('tools/call', { name: 'a' }), textOf('ping')];
  assert.equal(isRefused(call, call), true);
  assert.equal(isRefused(call, ping), false);
});
