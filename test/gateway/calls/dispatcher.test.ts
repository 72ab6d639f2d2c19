import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pino } from 'pino';
import { commonKey, EMPTY_OFFER } from '../../../src/catalog/offer.ts';
import { GatewayError } from '../../../src/errors.ts';
import { Dispatcher, type EraHandler } from '../../../src/gateway/calls/dispatcher.ts';
import type { Cancellable } from '../../../src/gateway/exchange/external-decisions.ts';
import type { ClientGroup } from '../../../src/gateway/clients/client-group.ts';
import type { ModernClient } from '../../../src/gateway/clients/modern-client.ts';
import { ListAnswers } from '../../../src/gateway/forward/list-answers.ts';
import { PagedLists } from '../../../src/gateway/forward/paged-lists.ts';
import { ResultTranslator } from '../../../src/gateway/forward/result-translator.ts';
import { Sealer } from '../../../src/gateway/handles/sealer.ts';
import { ListAnnouncer } from '../../../src/gateway/lists/changes/list-announcer.ts';
import { QuestionPolicy } from '../../../src/gateway/questions/question-policy.ts';
import { RawObject } from '../../../src/json/json.ts';
import type { Item } from '../../../src/policy/decide.ts';
import type { Principal } from '../../../src/policy/principal.ts';
import type { Answer, Request } from '../../../src/protocol/jsonrpc.ts';
import { MemoryKeyStore } from '../../../src/store/memory/key-store.ts';
import { createMetrics } from '../../../src/telemetry/metrics.ts';
import { accessOf, ANYONE } from '../../policy/policies.ts';
import { type ListedOptions, ListedUpstreams } from '../../support/listed-upstreams.ts';
import type { PartsUpstream } from '../../support/gateway-parts.ts';
import { memoryUpstream, type Script } from '../../support/memory-upstream.ts';
import { stopTime } from '../../support/stopped-time.ts';

interface One extends Cancellable {
  readonly request: Request;
  allowedItem: Item | undefined;
}
type Handler = EraHandler<One, ModernClient>;

const ANNA: Principal = { key: 'anna', label: 'anna', scopes: [] };
const ECHO = { name: 'echo', inputSchema: { type: 'object' } };
const DELETE = { name: 'delete', inputSchema: { type: 'object' } };
const LISTS = {
  tools: [ECHO, DELETE],
  prompts: [{ name: 'review' }],
  resources: [{ uri: 'mem://a', name: 'a' }],
  resourceTemplates: [{ uriTemplate: 'mem://{x}', name: 'x' }],
};
const CAPABILITIES = { tools: {}, prompts: {}, resources: {}, completions: {} };
const DONE: Answer = { kind: 'result', result: '{}' };
const ignore = () => undefined;

interface Trial extends AsyncDisposable {
  readonly setup: ListedUpstreams;
  readonly dispatcher: Dispatcher<One, ModernClient>;
  readonly group: ClientGroup;
  /** The parts that have answered, and the verdicts of the gate, in order. */
  readonly log: string[];
  listings(): number;
  /** Asks with the lists of the group as they are. */
  ask(method: string, params?: object): Promise<Answer>;
}

/** A dispatcher in front of the upstream `up`, and maybe others, for an era whose parts only record that they were asked. */
async function trial(
  own: Partial<Handler> = {},
  options: ListedOptions = {},
  script: Script = {},
  others: Readonly<Record<string, PartsUpstream>> = {},
): Promise<Trial> {
  const log: string[] = [];
  const memory = memoryUpstream({ lists: LISTS, capabilities: CAPABILITIES, ...script });
  const onVerdict: ListedOptions['onVerdict'] = ({ effect, method }) => log.push(`${effect} ${method}`);
  const setup = await ListedUpstreams.open({ up: { memory }, ...others }, { onVerdict, ...options });
  const { refresher: listRefresher, gate, upstreams } = setup;
  const policy = new QuestionPolicy({
    rulesOf: ignore,
    metrics: createMetrics('test'),
    log: pino({ level: 'silent' }),
  });
  const lists = new ListAnswers({
    sealer: await Sealer.open(new MemoryKeyStore()),
    translator: new ResultTranslator(RawObject.EMPTY, policy),
    listRefresher,
    announcer: new ListAnnouncer(ignore),
    offers: setup.offers,
    paged: new PagedLists(ignore),
  });
  const record = (entry: string) => {
    log.push(entry);
    return DONE;
  };
  const lifecycleOf = (id: string) => upstreams.get(id)?.lifecycle;
  const parts = { lists, listRefresher, gate, external: { ask: ignore, askAboutResource: ignore }, lifecycleOf };
  const dispatcher = new Dispatcher<One, ModernClient>(parts, {
    call: async (_one, _client, { upstream, params }) => record(`call ${upstream} ${params.toString()}`),
    runTask: async ({ request }) => record(`task ${request.method}`),
    answer: ({ request }) => record(`era ${request.method}`),
    ...own,
  });
  const { group, client } = setup.group({ principal: ANNA });
  return {
    setup,
    dispatcher,
    group,
    log,
    listings: () => memory.requests('tools/list').length,
    ask: async (method, params = {}) => {
      const request = { kind: 'request', id: '1', method, params: RawObject.of(params) } as const;
      return await dispatcher.answer(
        { request, allowedItem: undefined, unlessCancelled: (wanted) => wanted },
        client,
        group,
      );
    },
    [Symbol.asyncDispose]: () => setup[Symbol.asyncDispose](),
  };
}

/** Everyone may use `echo` if it is not loud, and nothing else. */
const ACCESS = accessOf({ user: { tools: ['echo'], when: '!has(args.loud)' } }, [{ ...ANYONE, roles: ['user'] }]);

test('each method is answered by its upstream, the lists, the tasks or the era', async () => {
  await using at = await trial();
  const [name, uri] = ['echo', 'mem://a'];
  for (const { method, params, logged } of [
    { method: 'tools/call', params: { name: 'up__echo' }, logged: { name } },
    { method: 'prompts/get', params: { name: 'up__review' }, logged: { name: 'review' } },
    { method: 'resources/read', params: { uri: 'up+mem://a' }, logged: { uri } },
    {
      method: 'completion/complete',
      params: { ref: { type: 'ref/prompt', name: 'up__review' } },
      logged: { ref: { type: 'ref/prompt', name: 'review' } },
    },
  ]) {
    await at.ask(method, params);
    assert.equal(at.log.pop(), `call up ${JSON.stringify(logged)}`);
  }
  for (const method of ['tasks/get', 'tasks/result', 'tasks/list', 'tasks/update', 'tasks/cancel']) {
    await at.ask(method);
    assert.equal(at.log.pop(), `task ${method}`);
  }
  for (const method of ['ping', 'tools/unknown', 'constructor']) {
    await at.ask(method);
    assert.equal(at.log.pop(), `era ${method}`);
  }
  for (const [method, item] of [
    ['tools/list', 'up__echo'],
    ['prompts/list', 'up__review'],
    ['resources/list', 'up+mem://a'],
    ['resources/templates/list', 'up+mem://{x}'],
  ] as const) {
    const answer = await at.ask(method);
    assert.ok(answer.kind === 'result' && answer.result.includes(JSON.stringify(item)), method);
  }
  assert.deepEqual(at.log, []);
});

test('a tool can be called before its client has asked for a list', async () => {
  await using at = await trial();
  assert.equal(at.group.catalog.tools.size, 0);
  await at.ask('tools/call', { name: 'up__echo' });
  assert.deepEqual([at.log, at.listings()], [['call up {"name":"echo"}'], 1]);
});

test('a name that no list has is unknown, and reaches no upstream', async () => {
  await using at = await trial();
  await assert.rejects(at.ask('tools/call', { name: 'up__none' }), { code: 'unknown-tool' });
  await assert.rejects(at.ask('prompts/get', { name: 'up__none' }), { code: 'unknown-prompt' });
  assert.deepEqual([at.log, at.listings()], [[], 1]);
});

/** An upstream that answers `initialize`, and never a list. */
function unlisted() {
  return { memory: memoryUpstream({ capabilities: CAPABILITIES, hold: () => new Promise<never>(ignore) }) };
}

test('a call waits only for the lists that may have its name', async (t) => {
  stopTime(t);
  for (const [method, params, outcome] of [
    ['tools/call', { name: 'up__echo' }, undefined],
    ['resources/read', { uri: 'up+mem://a' }, undefined],
    ['tools/call', { name: 'up__none' }, 'unknown-tool'],
    ['prompts/get', { name: 'nobody__review' }, 'unknown-prompt'],
  ] as const) {
    await using at = await trial({}, {}, {}, { hung: unlisted() });
    const asking = at.ask(method, params);
    if (outcome === undefined) await asking;
    else await assert.rejects(asking, { code: outcome });
  }
});

test('a call waits for the first lists of its upstream once, as long as configured', async (t) => {
  const time = stopTime(t);
  const hung = unlisted();
  await using at = await trial({}, { waitMs: 8_000 }, {}, { hung });
  const refused = assert.rejects(at.ask('tools/call', { name: 'hung__x' }), { code: 'upstream-unavailable' });
  await hung.memory.until(() => hung.memory.requests('tools/list')[0]);
  time.pass(8_000);
  await refused;
});

test('a request that is not admitted is not judged, and starts no upstream', async () => {
  const refusal = new GatewayError('overloaded', {});
  await using at = await trial({ admit: () => Promise.reject(refusal) }, { access: ACCESS });
  await assert.rejects(at.ask('tools/call', { name: 'up__echo' }), refusal);
  assert.deepEqual([at.log, at.listings()], [[], 0]);
  await at.ask('tools/list');
  await assert.rejects(at.ask('tools/call', { name: 'up__echo' }), refusal);
  assert.deepEqual(at.log, []);
});

test('a request is routed by the lists of the moment when it is admitted', async () => {
  const admitted = Promise.withResolvers<void>();
  await using at = await trial({ admit: () => admitted.promise });
  await at.ask('tools/list');
  const calling = at.ask('tools/call', { name: 'up__echo' });
  at.setup.offers.update('up', commonKey('legacy'), { ...EMPTY_OFFER, revision: '2025-11-25' });
  at.setup.refresher.bringUpToDate(at.group);
  admitted.resolve();
  await assert.rejects(calling, { code: 'unknown-tool' });
  assert.deepEqual(at.log, []);
});

test('a denied tool is unknown to its client, and each denial is reported once', async () => {
  await using at = await trial({}, { access: ACCESS });
  const refusals: unknown[] = [];
  const names = ['up__delete', 'up__delete', 'up__echo', 'up__none'];
  for (const name of names) {
    const asking = at.ask('tools/call', { name, arguments: { loud: true } });
    await asking.catch((thrown: GatewayError) => refusals.push([thrown.code, thrown.message]));
  }
  const unknown = (name: string) => ['unknown-tool', `Unknown tool: ${name}`];
  assert.deepEqual(refusals, names.map(unknown));
  assert.deepEqual(at.log, ['deny tools/call', 'deny tools/call', 'deny tools/call']);
});

test('an allowed call is reported before it is made, even if it then fails', async () => {
  const failure = new GatewayError('upstream-lost', {});
  const seen: string[] = [];
  await using at = await trial(
    {
      call: () => {
        seen.push(...at.log);
        return Promise.reject(failure);
      },
    },
    { access: ACCESS },
  );
  await assert.rejects(at.ask('tools/call', { name: 'up__echo' }), failure);
  assert.deepEqual([seen, at.log], [['allow tools/call'], ['allow tools/call']]);
});

test('instructions say why there are no tools, except while an upstream only starts', async () => {
  let fails = false;
  const start = () => (fails ? Promise.reject(new Error('does not start')) : Promise.resolve());
  await using at = await trial({}, {}, { lists: {}, start });
  const { dispatcher, group, setup } = at;
  const text = () => String(JSON.parse(dispatcher.instructionsOf(group.catalog) ?? 'null'));
  const list = (...tools: readonly object[]) => {
    const named = { tools: tools.map((tool) => RawObject.of(tool)), instructions: 'Say "hello".' };
    setup.offers.update('up', commonKey('legacy'), { ...EMPTY_OFFER, revision: '2025-11-25', ...named });
    setup.refresher.bringUpToDate(group);
  };
  assert.equal(dispatcher.instructionsOf(group.catalog), undefined);
  list();
  assert.match(text(), /Say "hello"\./);
  fails = true;
  await setup.refresher.refreshAtStart(setup.upstream('up'));
  assert.match(text(), /^This server has no tools at the moment: upstream "up" is down/);
  list(ECHO);
  assert.match(text(), /Say "hello"\./);
});
