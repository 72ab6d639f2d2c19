import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { signingKey, TestIssuer } from '../../auth/issuer.ts';
import type { GatewayFile } from '../gateway.ts';
import { modernUpstream, type HttpUpstream, type Served } from '../http-upstream.ts';
import { Actor } from './actors.ts';
import type { Handle, HandleKind, Upstreams } from './handle-kind.ts';
import { SpyUpstream } from './spy-upstream.ts';

const PUBLIC_URL = 'https://gw.example.com';
const OTHER_ISSUER = 'https://other.example.com';
const AUDIENCES = ['/mcp', '/sse', '/messages'].map((path) => `${PUBLIC_URL}${path}`);
const KEYS = { key: 'key-of-alice-0123456789abcdef', robot: 'key-of-a-robot-0123456789abcdef' };
/** More than fit on one page of a list. */
const MANY = 1_100;
const SEALED = /eyJ[\w-]+\.\.[\w-]+\.[\w-]+\.[\w-]+/g;
const TIMES = { createdAt: '2026-01-01T00:00:00Z', lastUpdatedAt: '2026-01-01T00:00:00Z' };

/** A gateway with one upstream of each era, and five principals. Two have the same subject, and one has it as the name of its key. */
export class HandleTrial implements AsyncDisposable {
  readonly upstreams: Upstreams;
  /** Purposes of the sealed texts that actors have got. */
  readonly purposes = new Set<string>();
  readonly #issuers: readonly TestIssuer[];
  readonly #many: HttpUpstream;
  #actors: readonly Actor[] = [];
  #credentials: readonly string[] = [];
  #anonymous: Actor | undefined;

  private constructor(upstreams: Upstreams, many: HttpUpstream, issuers: readonly TestIssuer[]) {
    this.upstreams = upstreams;
    this.#many = many;
    this.#issuers = issuers;
  }

  static async start(): Promise<HandleTrial> {
    const issuers = await Promise.all([1, 2].map(async () => TestIssuer.start(await signingKey('ES256', 'main'))));
    const many = await modernUpstream({
      tools: Array.from({ length: MANY }, (_, n) => ({ name: `t${n}`, inputSchema: { type: 'object' } })),
    });
    return new HandleTrial({ leg: await SpyUpstream.start(), mod: await askingUpstream() }, many, issuers);
  }

  get config(): GatewayFile {
    const { leg, mod } = this.upstreams;
    const remote = (url: string) => ({ url, start: 'eager' });
    return {
      mcpServers: { leg: remote(leg.url), mod: remote(mod.url), many: remote(this.#many.url) },
      gateway: { publicUrl: PUBLIC_URL, auth: this.auth },
    };
  }

  /** The issuers and API keys of the five principals, as in a config file. */
  get auth() {
    const [one, two] = this.#issuers;
    const jwt = [
      { issuer: one?.issuer, jwksUrl: one?.jwksUrl },
      { issuer: OTHER_ISSUER, jwksUrl: two?.jwksUrl },
    ];
    const apiKeys = [
      { name: 'alice', sha256: hash('sha256', KEYS.key) },
      { name: 'robot', sha256: hash('sha256', KEYS.robot) },
    ];
    return { jwt, apiKeys };
  }

  /** The five principals, with open sessions. */
  get actors(): readonly Actor[] {
    return this.#actors;
  }

  /** The tokens and keys of the five principals. */
  get credentials(): readonly string[] {
    return this.#credentials;
  }

  /** Opens the sessions of all principals at these origins of the gateway. */
  async signIn(origins: readonly string[]): Promise<void> {
    const [one, two] = this.#issuers;
    assert.ok(one !== undefined && two !== undefined);
    // After the end of all tests of a file, on any machine.
    const exp = Math.floor(Date.now() / 1_000) + 3_600;
    const token = (issuer: TestIssuer, claims: object) => issuer.token({ aud: AUDIENCES, exp, ...claims });
    const credentials = {
      alice: await token(one, { sub: 'alice' }),
      bob: await token(one, { sub: 'bob' }),
      twin: await token(two, { sub: 'alice', iss: OTHER_ISSUER }),
      ...KEYS,
    };
    this.#credentials = Object.values(credentials);
    const seen = (text: string) => this.#notePurposes(text);
    this.#actors = Object.entries(credentials).map(
      ([name, secret]) => new Actor(name, { authorization: `Bearer ${secret}` }, origins, seen),
    );
    this.#anonymous = new Actor('nobody', {}, origins, seen);
    for (const actor of this.#actors) {
      await actor.open();
      this.#notePurposes(actor.session);
      const got = await actor.ask('tools/call', { name: 'leg__echo', arguments: { nonce: actor.nonce() } });
      assert.ok(got.text.includes(actor.mark), got.text);
    }
  }

  /** Lets each of the owners make a handle of this kind, and all other principals use it. */
  async try(kind: HandleKind, owners = this.#actors): Promise<void> {
    for (const owner of owners) {
      const handle = await kind.make(owner, this.upstreams);
      this.#notePurposes(handle.text);
      const others = [...this.#actors.filter((actor) => actor !== owner), this.#anonymous];
      for (const other of others) if (other !== undefined) await this.#misuse(kind, handle, owner, other);
      await handle.assertWorks();
    }
  }

  async #misuse(kind: HandleKind, handle: Handle, owner: Actor, other: Actor): Promise<void> {
    const what = `${kind.name} of ${owner.name}, used by ${other.name}`;
    assert.notEqual(handle.text, handle.unknown, what);
    const before = new Set(this.#caused());
    const foreign = await handle.use(other, handle.text);
    if (other !== this.#anonymous) await this.#settle(other);
    const caused = this.#caused().filter((body) => !before.has(body));
    const ownMethod = kind.calls === true ? /"tools\/call"/ : /"(?:resources\/subscribe|tasks\/get)"/;
    const isOwn = (body: string) => ownMethod.test(body) && (kind.calls ?? body.includes(other.mark));
    assert.deepEqual(
      caused.filter((body) => !isOwn(body) && !body.includes('barrier')),
      [],
      what,
    );
    assert.deepEqual(foreign, await handle.use(other, handle.unknown), `${what}: not as an unknown one`);
    if (other === this.#anonymous) for (const { status } of foreign) assert.equal(status, 401, what);
  }

  /** Makes a call of the actor, which arrives at the upstream after everything that the actor has sent before. */
  async #settle(actor: Actor): Promise<void> {
    for (const tool of ['leg__echo', 'mod__echo']) {
      const got = await actor.ask('tools/call', { name: tool, arguments: { nonce: 'barrier' } });
      assert.ok(got.text.includes('barrier'), got.text);
    }
  }

  /** Checks that no stream has brought a message of another principal. */
  assertNothingLeaked(): void {
    for (const { inbox, name } of this.#actors) {
      assert.ok(!inbox.isEnded, `the stream of ${name} has ended`);
      for (const { data } of inbox.seen) {
        for (const [, mark] of data.matchAll(/<([a-z]+)>/g)) assert.equal(mark, name, `${name} got ${data}`);
      }
    }
  }

  #caused(): readonly string[] {
    const { leg, mod } = this.upstreams;
    const own = /^(?:initialize|server\/discover|subscriptions\/listen|.*\/list)$/;
    return [...leg.caused, ...mod.received.items.filter(({ rpc }) => !own.test(rpc ?? '')).map(({ body }) => body)];
  }

  #notePurposes(text: string): void {
    for (const [sealed] of text.matchAll(SEALED)) {
      const header: unknown = JSON.parse(Buffer.from(sealed.split('.')[0] ?? '', 'base64url').toString());
      if (typeof header === 'object' && header !== null && 'typ' in header) this.purposes.add(String(header.typ));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await using stack = new AsyncDisposableStack();
    for (const issuer of this.#issuers) stack.use(issuer);
    for (const upstream of [this.upstreams.leg, this.upstreams.mod, this.#many]) stack.use(upstream);
    for (const actor of this.#actors) actor.close();
  }
}

/** A server of 2026-07-28. `ask` asks with a state of its own, `job` is a task, `echo` answers. */
async function askingUpstream(): Promise<HttpUpstream> {
  const task = (taskId: unknown) => ({ taskId, status: 'working', ...TIMES, ttlMs: 600_000, pollIntervalMs: 60_000 });
  const call = (served: Served): void => {
    const { params } = served;
    const args = params['arguments'];
    const nonce = typeof args === 'object' && args !== null && 'nonce' in args ? String(args.nonce) : '';
    if (params['name'] === 'job') return served.result({ ...task(`inner ${nonce}`), resultType: 'task' });
    if (params['name'] === 'echo' || params['requestState'] !== undefined) {
      return served.result({ content: [{ type: 'text', text: nonce }] });
    }
    const form = { message: 'Who?', requestedSchema: { type: 'object', properties: {} } };
    const inputRequests = { q: { method: 'elicitation/create', params: { mode: 'form', ...form } } };
    served.result({ resultType: 'input_required', inputRequests, requestState: `inner state ${nonce}` });
  };
  return await modernUpstream({
    capabilities: {
      tools: {},
      resources: { subscribe: true },
      extensions: { 'io.modelcontextprotocol/tasks': {} },
    },
    tools: ['echo', 'ask', 'job'].map((name) => ({ name, inputSchema: { type: 'object' } })),
    resourceTemplates: [{ uriTemplate: 'mod://{name}', name: 'all' }],
    request: (served) => {
      if (served.rpc === 'tools/call') call(served);
      else if (served.rpc === 'tasks/get') served.result(task(served.params['taskId']));
      else if (served.rpc?.startsWith('tasks/') === true) served.result({});
      else served.error(-32601, 'Method not found');
    },
  });
}
