import assert from 'node:assert/strict';
import { mkdir } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { pathToFileURL } from 'node:url';
import { connect, type EitherClient, type Human, type Sdk, SDKS, textOf } from '../support/either-sdk.ts';
import type { RunningGateway } from '../support/gateway.ts';
import { startReferenceGateway } from '../support/reference-servers.ts';

const TIMEOUT = { timeout: 120_000 };

let reference: Awaited<ReturnType<typeof startReferenceGateway>>;
let gateway: RunningGateway;

before(async () => {
  reference = await startReferenceGateway(['everything', 'filesystem']);
  ({ gateway } = reference);
});

after(async () => {
  await reference[Symbol.asyncDispose]();
});

/** Tools that server-everything has only for clients with certain capabilities. */
const CONDITIONAL = {
  roots: ['get-roots-list'],
  elicitation: ['trigger-elicitation-request', 'trigger-url-elicitation'],
  sampling: ['trigger-sampling-request'],
} as const;

function human(name: string): Human {
  return {
    sampling: (prompt) => `${name} was asked ${prompt}`,
    elicitation: () => ({ name }),
    roots: [],
  };
}

function only(all: Human, key: keyof Human): Human {
  return { [key]: all[key] };
}

async function conditionalOf(client: EitherClient): Promise<readonly string[]> {
  const known = Object.values(CONDITIONAL).flat();
  const tools = (await client.tools()).map(({ name }) => name);
  return known.filter((name) => tools.includes(`everything__${name}`));
}

/** Returns a folder for the root of one client. */
async function rootOf(name: string) {
  const path = join(reference.dir, name);
  await mkdir(path, { recursive: true });
  return { path, root: { uri: pathToFileURL(path).href, name } };
}

/** Servers request the roots at a time of their choice, so that the first calls may be answered before. */
async function allowed(client: EitherClient, path: string): Promise<string> {
  for (;;) {
    const text = textOf(await client.call('filesystem__list_allowed_directories'));
    if (text.includes(path)) return text;
  }
}

suite('a client that can be asked', { concurrency: 1 }, () => {
  for (const sdk of SDKS) {
    suite(sdk, () => {
      const messages: string[] = [];
      let asked: EitherClient;
      before(async () => {
        const elicitation = (message: string) => {
          messages.push(message);
          return { name: 'Ada', check: true };
        };
        asked = await connect(sdk, gateway.endpoint(), { human: { elicitation } });
      });
      after(async () => {
        await asked[Symbol.asyncDispose]();
      });

      //
      test('each client sees the tools for its capabilities, and can call no other', TIMEOUT, async () => {
        const everyone = human('x');
        for (const key of ['roots', 'elicitation', 'sampling'] as const) {
          await using client = await connect(sdk, gateway.endpoint(), { human: only(everyone, key) });
          assert.deepEqual(await conditionalOf(client), CONDITIONAL[key]);
        }
        await using plain = await connect(sdk, gateway.endpoint());
        assert.deepEqual(await conditionalOf(plain), []);
        await assert.rejects(plain.call('everything__trigger-sampling-request', { prompt: 'x' }), { code: -32602 });
      });

      // S-007
      test('a form names the server that asks, and its answer reaches that server', TIMEOUT, async () => {
        const text = textOf(await asked.call('everything__trigger-elicitation-request'));
        assert.match(text, /User provided the requested information/);
        assert.match(text, /Name: Ada/);
        assert.equal(messages.length, 1);
        assert.match(messages[0] ?? '', /^\[everything\] /);
      });

      test('a URL elicitation reaches the client, and its consent reaches the server', TIMEOUT, async () => {
        const args = { url: 'https://example.com/consent' };
        const text = textOf(await asked.call('everything__trigger-url-elicitation', args));
        assert.match(text, /User completed the URL elicitation flow/);
      });

      test('a call that needs a URL opened fails with the URL, and works when it is repeated', TIMEOUT, async () => {
        const args = { url: 'https://example.com/consent', errorPath: true };
        await assert.rejects(asked.call('everything__trigger-url-elicitation', args), (thrown: object) => {
          assert.ok('code' in thrown && thrown.code === -32042);
          assert.match(JSON.stringify(thrown), /"elicitationId":"everything:/);
          return true;
        });
        const text = textOf(await asked.call('everything__trigger-url-elicitation', args));
        assert.match(text, /User completed the URL elicitation flow/);
      });

      test('questions of simultaneous calls each reach the client of their call', TIMEOUT, async () => {
        const names = ['Ada', 'Bob', 'Eve'];
        const clients = await Promise.all(
          names.map((name) => connect(sdk, gateway.endpoint(), { human: only(human(name), 'sampling') })),
        );
        try {
          const calls = clients.flatMap((client, n) =>
            [1, 2, 3].map(async (turn) => {
              const prompt = `${names[n]}-${turn}`;
              const text = textOf(await client.call('everything__trigger-sampling-request', { prompt }));
              assert.match(text, new RegExp(`${names[n]} was asked .*context: ${prompt}`));
            }),
          );
          await Promise.all(calls);
        } finally {
          await Promise.all(clients.map((client) => client[Symbol.asyncDispose]()));
        }
      });

      test('the roots of a client apply to its own sessions at the servers, and to no other', TIMEOUT, async () => {
        const [a, b] = await Promise.all([rootOf(`${sdk} a`), rootOf(`${sdk} b`)]);
        await using one = await connect(sdk, gateway.endpoint(), { human: { roots: [a.root] } });
        await using two = await connect(sdk, gateway.endpoint(), { human: { roots: [b.root] } });
        const [ofOne, ofTwo] = await Promise.all([allowed(one, a.path), allowed(two, b.path)]);
        assert.ok(!ofOne.includes(b.path), ofOne);
        assert.ok(!ofTwo.includes(a.path), ofTwo);
        assert.match(textOf(await one.call('everything__get-roots-list')), new RegExp(`1\\. ${sdk} a\n`));
      });

      test('changed roots are requested again', TIMEOUT, async () => {
        const [before, later] = await Promise.all([rootOf(`${sdk} before`), rootOf(`${sdk} later`)]);
        const roots = [before.root];
        await using client = await connect(sdk, gateway.endpoint(), { human: { roots } });
        await allowed(client, before.path);
        roots[0] = later.root;
        await client.rootsChanged();
        const text = await allowed(client, later.path);
        assert.ok(!text.includes(before.path), text);
      });
    });
  }
});

test('two SDKs with different features share the gateway, each with its own list', TIMEOUT, async () => {
  const open = (sdk: Sdk, key: keyof Human) => connect(sdk, gateway.endpoint(), { human: only(human(sdk), key) });
  await using sampler = await open('SDK v1', 'sampling');
  await using elicited = await open('SDK v2', 'elicitation');
  assert.deepEqual(await conditionalOf(sampler), CONDITIONAL.sampling);
  assert.deepEqual(await conditionalOf(elicited), CONDITIONAL.elicitation);
  const [sampled, filled] = await Promise.all([
    sampler.call('everything__trigger-sampling-request', { prompt: 'why' }),
    elicited.call('everything__trigger-elicitation-request'),
  ]);
  assert.match(textOf(sampled), /SDK v1 was asked .*why/);
  assert.match(textOf(filled), /Name: SDK v2/);
});
