import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type UpstreamResult, ResultTranslator } from '../../../src/gateway/forward/result-translator.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Answer } from '../../../src/protocol/jsonrpc.ts';
import { META } from '../../../src/protocol/meta.ts';
import type { Era } from '../../../src/protocol/revisions.ts';
import { RPC } from '../../../src/protocol/rpc-codes.ts';
import { tokenOf } from '../../policy/policies.ts';
import { GatewayParts } from '../../support/gateway-parts.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const NAMED = { _meta: { [META.serverInfo]: { name: 'gateway' } } };
const COMPLETE = { resultType: 'complete', ...NAMED };
const LINK = { type: 'resource_link', name: 'a', uri: 'mem://a' };
const PAGE = { mode: 'url', elicitationId: '1', url: 'https://up.test/pay', message: 'Pay' };
const MAY_OPEN = { elicitation: { url: {} } };
const failure = (code: number, data?: object): Answer => ({ kind: 'error', error: { code, message: 'no', data } });
const NEEDS_SAMPLING = failure(RPC.missingCapability, { requiredCapabilities: { sampling: {} } });

interface Own extends Partial<UpstreamResult> {
  readonly method?: string;
  readonly capabilities?: object;
  /** The endpoint of the client, which had all upstreams when the request was routed. */
  readonly view?: string;
}

/** Translates an answer of an upstream of one era for a client of one era. */
async function translated(client: Era, from: Era, answer: Answer | object, own: Own = {}): Promise<Answer> {
  const { method = 'tools/call', capabilities = {}, view = '', ...rest } = own;
  await using at = new GatewayParts({ up: { memory: memoryUpstream({}) }, other: { memory: memoryUpstream({}) } });
  const { upstreams, metrics, log } = at;
  const policy = new QuestionPolicy({ rulesOf: (id) => upstreams.get(id)?.config, metrics, log });
  const translator = new ResultTranslator(RawObject.of({ name: 'gateway' }), policy);
  const options = { principal: tokenOf('ada'), capabilities, view };
  const { session } = at.session(options);
  const group = at.group(options);
  const { exchange } =
    client === 'legacy'
      ? at.exchange(session, session, { method })
      : at.exchange(group.client, group.group, { method });
  exchange.view = at.views.get('');
  const sent: Answer = 'kind' in answer ? answer : { kind: 'result', result: JSON.stringify(answer) };
  return translator.toClient(exchange, { upstream: 'up', era: from, source: undefined, ...rest }, sent);
}

/** Returns the parsed result of a translation that must succeed. */
async function resultOf(...args: Parameters<typeof translated>): Promise<unknown> {
  const answer = await translated(...args);
  assert.ok(answer.kind === 'result', JSON.stringify(answer));
  return JSON.parse(answer.result);
}

test('an answer that needs no translation is passed on as it came', async () => {
  const answers: readonly Answer[] = [{ kind: 'result', result: '{ "content" : [] }' }, failure(1)];
  for (const answer of answers) assert.deepEqual(await translated('legacy', 'legacy', answer), answer);
});

//
test('the members of 2026-07-28 are added and removed between the eras', async () => {
  const content = { content: [] };
  assert.deepEqual(await resultOf('modern', 'legacy', content), { ...content, ...COMPLETE });
  const modern = { ...content, resultType: 'complete' };
  assert.deepEqual(await resultOf('legacy', 'modern', modern), content);
  const read = { contents: [], resultType: 'complete', ttlMs: 1, cacheScope: 'public' };
  assert.deepEqual(await resultOf('legacy', 'modern', read, { method: 'resources/read' }), { contents: [] });
});

test('a read with credentials is private, and may be kept for the rest of its time', async () => {
  const read = { contents: [], ttlMs: 1_000, cacheScope: 'public', _meta: { [META.serverInfo]: { name: 'up' } } };
  const own = { method: 'resources/read', ageMs: 400.5 };
  const expected = { contents: [], ttlMs: 599, cacheScope: 'private', ...COMPLETE };
  assert.deepEqual(await resultOf('modern', 'modern', read, own), expected);
  assert.deepEqual(await resultOf('modern', 'modern', read, { ...own, ageMs: 2_000 }), { ...expected, ttlMs: 0 });
});

test('URIs are those of the client, also after the upstream has left its endpoint', async () => {
  for (const [client, from] of [
    ['legacy', 'legacy'],
    ['modern', 'legacy'],
    ['legacy', 'modern'],
    ['modern', 'modern'],
  ] as const) {
    for (const view of ['', 'other']) {
      const { content } = Object(await resultOf(client, from, { content: [LINK] }, { view }));
      assert.deepEqual(content, [{ ...LINK, uri: 'up+mem://a' }], `${from} to ${client} at /${view}`);
    }
  }
});

//
test('a capability that the client lacks is named to it, one that it has is not', async () => {
  const named = await translated('modern', 'modern', NEEDS_SAMPLING);
  assert.deepEqual(named, NEEDS_SAMPLING);
  const declares = { capabilities: { sampling: {} } };
  const unreachable = { code: 'client-unreachable', executed: 'no' };
  await assert.rejects(translated('modern', 'modern', NEEDS_SAMPLING, declares), unreachable);
  const { isError } = Object(await resultOf('legacy', 'modern', NEEDS_SAMPLING));
  assert.equal(isError, true);
  await assert.rejects(translated('legacy', 'modern', NEEDS_SAMPLING, { method: 'prompts/get' }), unreachable);
});

// T-014
test('an error about capabilities that names none has no reserved code', async () => {
  for (const data of [{ requiredCapabilities: ['sampling'] }, {}]) {
    const { error } = Object(await translated('modern', 'modern', failure(RPC.missingCapability, data)));
    assert.deepEqual(error, { code: -32_603, message: 'no', data: { ...data, upstreamCode: -32_021 } });
  }
});

test('an error about the gateway’s part of a request is a fault of the upstream', async () => {
  for (const code of [RPC.headerMismatch, RPC.unsupportedVersion]) {
    for (const client of ['legacy', 'modern'] as const) {
      const refused = translated(client, 'modern', failure(code));
      await assert.rejects(refused, { code: 'upstream-protocol', executed: 'no' }, client);
    }
  }
});

test('pages reach a session from a legacy upstream, with its name, and nobody else', async () => {
  const answer = failure(RPC.urlElicitationRequired, { elicitations: [PAGE] });
  const own = { capabilities: MAY_OPEN };
  const shown = await translated('legacy', 'legacy', answer, own);
  assert.ok(shown.kind === 'error');
  const { elicitations } = Object(shown.error.data);
  assert.deepEqual(elicitations, [{ ...PAGE, elicitationId: 'up:1', message: '[up] Pay' }]);
  for (const [client, from] of [
    ['modern', 'legacy'],
    ['legacy', 'modern'],
    ['modern', 'modern'],
  ] as const) {
    const refused = translated(client, from, answer, own);
    await assert.rejects(refused, { code: 'upstream-protocol', executed: 'unknown' }, `${from} to ${client}`);
  }
  const unsafe = failure(RPC.urlElicitationRequired, { elicitations: [{ ...PAGE, url: 'file:///etc' }] });
  await assert.rejects(translated('legacy', 'legacy', unsafe, own), { code: 'upstream-protocol' });
});

test('a result that is no object is a fault of the upstream, which has run the call', async () => {
  const fault = { code: 'upstream-protocol', executed: 'yes' };
  for (const client of ['legacy', 'modern'] as const) {
    await assert.rejects(translated(client, 'modern', { kind: 'result', result: '[]' }), fault, client);
  }
});
