import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { RawObject, rawItems } from '../../../src/json/json.ts';
import { type ExplainAnswer, explainAnswer } from '../../../src/operator/admin/answers.ts';
import { initialize, messagesOf, post, rpc } from '../../downstream/client.ts';
import { type HttpUpstream, legacyUpstream } from '../../support/http-upstream.ts';
import { type OpenGateway, openGateway } from '../../support/open-gateway.ts';
import { random } from '../../support/random.ts';
import { SEED } from '../../support/seed.ts';

/** Configs with about 230 cases each. */
const CONFIGS = Number(process.env['LINKSPAN_EXPLAIN_CONFIGS'] ?? 4);
const OPERATOR = 'operator-key-0123456789';
const KINDS = ['tool', 'prompt', 'resource'] as const;
const TOOL_GLOBS = ['*', 'get', 'set', 'delete_*', 'common', '?et'];
const BARE = [[], ['a'], ['b'], ['a', 'b']];
const RAN = 'it ran';

type Kind = (typeof KINDS)[number];
type Pick = ReturnType<typeof random>;

/** Returns an upstream with items of its own, and some that both have. */
function openUpstream(id: string): Promise<HttpUpstream> {
  const tool = (name: string, annotations: object = {}) => ({ name, inputSchema: { type: 'object' }, annotations });
  return legacyUpstream({
    capabilities: { tools: {}, prompts: {}, resources: {} },
    tools: [
      tool('get', { readOnlyHint: true }),
      tool('set'),
      tool('delete_all', { destructiveHint: true }),
      tool('common'),
    ],
    prompts: [{ name: 'ask' }, { name: 'common' }],
    resources: [
      { uri: `file:///${id}/a`, name: 'a' },
      { uri: 'file:///shared/x', name: 'x' },
    ],
    resourceTemplates: [{ uriTemplate: `file:///${id}/t/{n}`, name: 't' }],
    answers: {
      'tools/call': () => ({ content: [{ type: 'text', text: RAN }] }),
      'prompts/get': () => ({ messages: [{ role: 'user', content: { type: 'text', text: RAN } }] }),
      'resources/read': ({ params }) => ({ contents: [{ uri: String(params['uri']), text: RAN }] }),
    },
  });
}

function itemsIn(pick: Pick): Record<string, unknown> {
  const one = <T>(values: readonly T[]) => values[pick(values.length)];
  const conditions = [
    'args.n == 1',
    'tool.kind == "tool" && has(args.n)',
    '!tool.destructive',
    'principal.keyName == "ann"',
  ];
  return {
    ...(pick(2) === 0 ? { upstreams: [one(['a', 'b', '*'])] } : {}),
    ...(pick(3) === 0 ? { tools: [one(TOOL_GLOBS)] } : {}),
    ...(pick(4) === 0 ? { prompts: [one(['*', 'ask'])] } : {}),
    ...(pick(4) === 0 ? { resources: [one(['file:///a/*', 'file:///shared/*', '*'])] } : {}),
    ...(pick(5) === 0 ? { readOnly: true } : {}),
    ...(pick(4) === 0 ? { when: one(conditions) } : {}),
  };
}

function roleIn(pick: Pick): object {
  const items = itemsIn(pick);
  const role = Object.keys(items).length === 0 ? { upstreams: ['*'] } : items;
  return pick(2) === 0 ? role : { ...role, deny: [{ upstreams: ['*'], ...itemsIn(pick) }] };
}

/** Returns the settings of an upstream. */
function serverIn(pick: Pick, { url }: HttpUpstream, isBare: boolean) {
  const one = <T>(values: readonly T[]) => values[pick(values.length)];
  return {
    type: 'http',
    url,
    ...(isBare ? { prefix: '', rawUris: pick(2) === 0 } : {}),
    ...(pick(3) === 0 ? { includeTools: [one(TOOL_GLOBS), one(TOOL_GLOBS)] } : {}),
    ...(pick(3) === 0 ? { excludeTools: [one(['get', 'set', 'delete_*'])] } : {}),
  };
}

const keyOf = (name: string) => `key-of-${name}-0123456789`;
const entryOf = (name: string, key: string) => ({ name, sha256: hash('sha256', key) });

function gatewayIn(pick: Pick): Record<string, unknown> {
  const grants = [
    { roles: ['r'], anyone: true, ...(pick(4) === 0 ? { endpoints: ['/mcp'] } : {}) },
    { roles: ['s'], groups: ['g'] },
  ];
  const roles = { r: roleIn(pick), s: roleIn(pick) };
  return {
    auth: { apiKeys: [entryOf('ann', keyOf('ann')), { ...entryOf('bob', keyOf('bob')), groups: ['g'] }] },
    operatorKeys: [entryOf('ops', OPERATOR)],
    profiles: {
      p: {
        upstreams: [['a'], ['b'], ['a', 'b']][pick(3)],
        ...(pick(2) === 0 ? {} : { includeTools: [['*', '*get', '*set'][pick(3)]] }),
      },
    },
    ...(pick(6) === 0 ? {} : { access: { roles, grants } }),
  };
}

function* namesOf(): Iterable<readonly [Kind, string]> {
  for (const prefix of ['a__', 'b__', '']) {
    for (const name of ['get', 'set', 'delete_all', 'common', 'nope']) yield ['tool', `${prefix}${name}`];
    for (const name of ['ask', 'common', 'nope']) yield ['prompt', `${prefix}${name}`];
  }
  for (const prefix of ['a+', 'b+', '']) {
    for (const path of ['a/a', 'b/a', 'shared/x', 'a/t/1', 'z']) yield ['resource', `${prefix}file:///${path}`];
  }
}

const LISTS = {
  tool: ['tools/list', 'tools', 'name'],
  prompt: ['prompts/list', 'prompts', 'name'],
  resource: ['resources/list', 'resources', 'uri'],
} as const;

/** A client of an endpoint that lists and uses items; one that may not enter the endpoint gets nothing. */
class ListingClient {
  readonly #url: string;
  readonly #headers: Readonly<Record<string, string>>;
  #session: string | undefined;
  #lastId = 0;

  constructor({ url }: OpenGateway, who: string, view: string) {
    this.#url = view === '' ? url : `${url}/${view}`;
    this.#headers = { authorization: `Bearer ${keyOf(who)}` };
  }

  async open(): Promise<void> {
    const { status } = await post(this.#url, rpc(1, 'ping'), 'none', this.#headers);
    // A hidden endpoint answers 404 too, as an unknown session does.
    this.#session = await initialize(this.#url, undefined, this.#headers).catch((thrown: unknown) => {
      if (status === 404) return undefined;
      throw thrown;
    });
  }

  async list(kind: Kind): Promise<readonly unknown[]> {
    if (this.#session === undefined) return [];
    const [method, member, key] = LISTS[kind];
    const answer = messagesOf(await post(this.#url, rpc(++this.#lastId, method), this.#session, this.#headers)).at(-1);
    const items = RawObject.of({ ...Object(answer?.result) }).raw(member) ?? '[]';
    return rawItems(items).map((item) => RawObject.parse(item).string(key));
  }

  /** Returns whether an upstream has answered. */
  async use(kind: Kind, name: string, args: object): Promise<boolean> {
    if (this.#session === undefined) return false;
    const id = ++this.#lastId;
    const sent = {
      tool: rpc(id, 'tools/call', { name, arguments: args }),
      prompt: rpc(id, 'prompts/get', { name, arguments: args }),
      resource: rpc(id, 'resources/read', { uri: name }),
    }[kind];
    return (await post(this.#url, sent, this.#session, this.#headers)).text.includes(RAN);
  }
}

async function explained({ operatorUrl }: OpenGateway, question: object): Promise<ExplainAnswer> {
  const response = await fetch(`${operatorUrl}/admin/v1/explain`, {
    method: 'POST',
    headers: { authorization: `Bearer ${OPERATOR}`, 'content-type': 'application/json' },
    body: JSON.stringify(question),
  });
  assert.equal(response.status, 200, JSON.stringify(question));
  return explainAnswer.parse(await response.json());
}

/** Compares every name at an endpoint. Returns the disagreements. */
async function disagreements(gateway: OpenGateway, who: string, view: string, pick: Pick, seen: Map<string, number>) {
  const client = new ListingClient(gateway, who, view);
  await client.open();
  const [tool, prompt, resource] = await Promise.all(KINDS.map((kind) => client.list(kind)));
  const listed = { tool, prompt, resource };
  const cases = [...namesOf()].map(([kind, name]) => {
    const args = kind === 'tool' ? ([{}, { n: 1 }, { n: 2 }][pick(3)] ?? {}) : {};
    return { kind, name, args };
  });
  const faults = cases.map(async ({ kind, name, args }) => {
    const [ran, said] = await Promise.all([
      client.use(kind, name, args),
      explained(gateway, { as: { key: who }, view, kind, name, args }),
    ]);
    seen.set(said.effect, (seen.get(said.effect) ?? 0) + 1);
    const isInList = listed[kind]?.includes(name) === true;
    // By its own URI a listed resource may be read too.
    const isAlike = said.isListed === isInList || (kind === 'resource' && said.isListed);
    if ((said.effect === 'allow') === ran && isAlike) return [];
    const why = said.reasons.flatMap(({ about, text }) => (about === 'rule' ? [] : [text])).join(' | ');
    const facts = `${ran ? 'ran' : 'did not run'}, ${isInList ? '' : 'not '}in the list`;
    const answer = `${said.effect}, ${said.isListed ? '' : 'not '}listed`;
    return [`${who} /mcp/${view} ${kind} ${name} ${JSON.stringify(args)}: ${facts}; explain: ${answer}: ${why}`];
  });
  return (await Promise.all(faults)).flat();
}

// P-002
test(`explain agrees with the answers that clients get (SEED=${SEED})`, { timeout: CONFIGS * 30_000 }, async (t) => {
  const pick = random(SEED);
  await using a = await openUpstream('a');
  await using b = await openUpstream('b');
  const seen = new Map<string, number>();
  for (let config = 0; config < CONFIGS; config++) {
    const bare = BARE[config % BARE.length] ?? [];
    const servers = { a: serverIn(pick, a, bare.includes('a')), b: serverIn(pick, b, bare.includes('b')) };
    const own = gatewayIn(pick);
    await using gateway = await openGateway(servers, { logLevel: 'error', ...own });
    for (const who of ['ann', 'bob']) {
      for (const view of ['', 'p', 'a']) {
        const faults = await disagreements(gateway, who, view, pick, seen);
        assert.deepEqual(faults, [], `SEED=${SEED} config ${config}: ${JSON.stringify([servers, own])}`);
      }
    }
  }
  t.diagnostic(`SEED=${SEED}: ${JSON.stringify(Object.fromEntries(seen))}`);
  for (const effect of ['allow', 'deny', 'unknown']) assert.ok((seen.get(effect) ?? 0) > 20, effect);
});
