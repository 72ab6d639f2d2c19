import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Catalog } from '../../../src/catalog/catalog.ts';
import type { ItemKind } from '../../../src/catalog/items/kind.ts';
import { RawObject } from '../../../src/json/json.ts';
import { LEGACY_REVISIONS, LATEST_MODERN, type Revision } from '../../../src/protocol/revisions.ts';
import { connectSdk1Over, connectSdk2Over } from '../../support/sdk-client.ts';
import { tool, listOf } from '../fixtures.ts';
import { ListServer } from './list-server.ts';
import { allTogether, catalogWith, GOOD_KEYS, malformedItems, wholeItem } from './malformed.ts';

interface Lister extends AsyncDisposable {
  readonly server: ListServer;
  /** The names of the items that the client lists. */
  list(kind: ItemKind): Promise<readonly string[]>;
}

type Lists = {
  listTools(): Promise<{ tools: readonly { name: string }[] }>;
  listPrompts(): Promise<{ prompts: readonly { name: string }[] }>;
  listResources(): Promise<{ resources: readonly { uri: string }[] }>;
  listResourceTemplates(): Promise<{ resourceTemplates: readonly { uriTemplate: string }[] }>;
};

async function keys(client: Lists, kind: ItemKind): Promise<readonly string[]> {
  if (kind === 'tool') return (await client.listTools()).tools.map(({ name }) => name);
  if (kind === 'prompt') return (await client.listPrompts()).prompts.map(({ name }) => name);
  if (kind === 'resource') return (await client.listResources()).resources.map(({ uri }) => uri);
  return (await client.listResourceTemplates()).resourceTemplates.map(({ uriTemplate }) => uriTemplate);
}

async function sdk1(revision: Revision, catalog: Catalog): Promise<Lister> {
  const server = new ListServer(revision, catalog);
  const connected = await connectSdk1Over(server.transport(), {});
  return {
    server,
    list: (kind) => keys(connected.client, kind),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

async function sdk2(revision: Revision, catalog: Catalog): Promise<Lister> {
  const server = new ListServer(revision, catalog);
  const mode = revision === LATEST_MODERN ? { pin: LATEST_MODERN } : 'legacy';
  const connected = await connectSdk2Over(server.transport(), {}, mode);
  return {
    server,
    list: (kind) => keys(connected.client, kind),
    [Symbol.asyncDispose]: () => connected[Symbol.asyncDispose](),
  };
}

/** The gate takes the oldest and the latest revision with sessions. */
const REVISIONS = process.env['LINKSPAN_FULL'] === '1' ? LEGACY_REVISIONS : (['2024-11-05', '2025-11-25'] as const);

const CLIENTS: readonly { name: string; revision: Revision; connect: typeof sdk1 }[] = [
  ...REVISIONS.map((revision) => ({ name: 'SDK v1', revision, connect: sdk1 })),
  ...REVISIONS.map((revision) => ({ name: 'SDK v2', revision, connect: sdk2 })),
  { name: 'SDK v2', revision: LATEST_MODERN, connect: sdk2 },
];

for (const upstreamRevision of ['2025-11-25', LATEST_MODERN] as const) {
  for (const { name, revision, connect } of CLIENTS) {
    for (const kind of ['tool', 'prompt', 'resource', 'template'] as const) {
      // N-02
      test(`one bad ${kind} of ${upstreamRevision} does not affect others: ${name} at ${revision}`, async () => {
        const cases = malformedItems(kind);
        await using lister = await connect(revision, catalogWith(kind, [], upstreamRevision));
        for (const { what, item } of cases) {
          lister.server.catalog = catalogWith(kind, [item], upstreamRevision);
          const listed = await lister.list(kind).catch((thrown: unknown) => assert.fail(`${what}: ${String(thrown)}`));
          for (const key of GOOD_KEYS[kind]) assert.ok(listed.includes(key), `${what}: ${listed.join()}`);
        }
        // All of them in one list: none spoils it together with another either.
        lister.server.catalog = catalogWith(kind, allTogether(kind), upstreamRevision);
        const listed = await lister.list(kind);
        for (const key of GOOD_KEYS[kind]) assert.ok(listed.includes(key));
        assert.ok(listed.length > cases.length / 2);
      });
    }
  }
}

for (const kind of ['tool', 'prompt', 'resource', 'template'] as const) {
  // N-02
  test(`a ${kind} with every member of its kind is published unchanged`, () => {
    const catalog = catalogWith(kind, [wholeItem(kind)], '2025-11-25');
    assert.equal(listOf(catalog, LIST_NAMES[kind])[1], wholeItem(kind).toString());
    assert.deepEqual(catalog.repaired, []);
  });
}

const LIST_NAMES = { tool: 'tools', prompt: 'prompts', resource: 'resources', template: 'resourceTemplates' } as const;

/** Members without which an item cannot be listed. */
const REQUIRED: Readonly<Record<ItemKind, RegExp>> = {
  tool: /^(?:no )?(?:name|inputSchema|inputSchema\.type)(?: |$)/,
  prompt: /^(?:no )?name(?: |$)/,
  resource: /^(?:no )?(?:uri|name)(?: |$)/,
  template: /^(?:no )?(?:uriTemplate|name)(?: |$)/,
};

for (const kind of ['tool', 'prompt', 'resource', 'template'] as const) {
  // N-02
  test(`a ${kind} without a required member is quarantined, wrong others are left out`, () => {
    for (const { what, item } of malformedItems(kind)) {
      const { quarantined } = catalogWith(kind, [item], '2025-11-25');
      if (quarantined.length > 0) assert.match(what, REQUIRED[kind]);
    }
  });
}

// S-015
test('an icon whose URI has an unsafe scheme is left out', () => {
  const safe = ['https://a.example/i.png', 'http://127.0.0.1/i.png', 'DATA:image/png;base64,'];
  const unsafe = [
    'javascript:alert(1)',
    ' javascript:alert(1)',
    'file:///etc/passwd',
    'ftp://a/i',
    'ws://a',
    'app:i',
    'i',
  ];
  const icons = [...unsafe, ...safe].map((src) => ({ src }));
  const catalog = catalogWith('tool', [tool('drawn', { icons })], '2025-11-25');
  assert.deepEqual(
    RawObject.parse(listOf(catalog, 'tools')[1] ?? '').value('icons'),
    safe.map((src) => ({ src })),
  );
  assert.equal(catalog.repaired[0]?.leftOut.includes('icons[0].src'), true);
});

// N-02
test('members that are left out are recorded by their paths', () => {
  const bad = tool('bad', {
    title: null,
    outputSchema: { type: 'array' },
    annotations: { title: 5, readOnlyHint: true },
    icons: [{ src: 'data:,' }, {}, { src: 'data:,', sizes: '48x48' }],
  });
  const catalog = catalogWith('tool', [bad], '2025-11-25');
  assert.deepEqual(catalog.repaired, [
    {
      upstream: 'a',
      kind: 'tool',
      name: 'bad',
      leftOut: ['title', 'outputSchema', 'annotations.title', 'icons[1]', 'icons[2].sizes'],
      cleanedTexts: 0,
    },
  ]);
  assert.equal(
    listOf(catalog, 'tools')[1],
    '{"name":"bad","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true},' +
      '"icons":[{"src":"data:,"},{"src":"data:,"}]}',
  );
});
