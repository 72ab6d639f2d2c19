import assert from 'node:assert/strict';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, suite, test } from 'node:test';
import { connect, type EitherClient, type Result, SDKS, textOf } from '../support/either-sdk.ts';
import type { RunningGateway } from '../support/gateway.ts';
import { startReferenceGateway } from '../support/reference-servers.ts';

const TIMEOUT = { timeout: 120_000 };

const TOOLS: Readonly<Record<string, readonly string[]>> = {
  everything: [
    'echo',
    'get-annotated-message',
    'get-env',
    'get-resource-links',
    'get-resource-reference',
    'get-structured-content',
    'get-sum',
    'get-tiny-image',
    'gzip-file-as-resource',
    'toggle-simulated-logging',
    'toggle-subscriber-updates',
    'trigger-long-running-operation',
    'simulate-research-query',
  ],
  filesystem: [
    'read_file',
    'read_text_file',
    'read_media_file',
    'read_multiple_files',
    'write_file',
    'edit_file',
    'create_directory',
    'list_directory',
    'list_directory_with_sizes',
    'directory_tree',
    'move_file',
    'search_files',
    'get_file_info',
    'list_allowed_directories',
  ],
  memory: [
    'create_entities',
    'create_relations',
    'add_observations',
    'delete_entities',
    'delete_observations',
    'delete_relations',
    'read_graph',
    'search_nodes',
    'open_nodes',
  ],
  'sequential-thinking': ['sequentialthinking'],
};
const MERGED = Object.entries(TOOLS).flatMap(([id, names]) => names.map((name) => `${id}__${name}`));

const DOCUMENTS = ['architecture', 'extension', 'features', 'how-it-works', 'instructions', 'startup', 'structure'];
const RESOURCES = [
  ...DOCUMENTS.map((name) => `everything+demo://resource/static/document/${name}.md`),
  'memory+memory://knowledge-graph',
];

let reference: Awaited<ReturnType<typeof startReferenceGateway>>;
let gateway: RunningGateway;
let dir = '';

const PROFILES = {
  reading: {
    upstreams: ['filesystem', 'everything'],
    includeTools: ['filesystem__read_*', 'everything__echo'],
    excludeTools: ['*_media_*'],
    renames: { everything__echo: 'say' },
  },
};

before(async () => {
  reference = await startReferenceGateway(undefined, { profiles: PROFILES });
  ({ gateway, dir } = reference);
});

after(async () => {
  await reference[Symbol.asyncDispose]();
});

function linksOf({ content }: Result): readonly string[] {
  return content.flatMap(({ type, uri }) => (type === 'resource_link' && uri !== undefined ? [uri] : []));
}

const names = (items: readonly { readonly name: string }[]): readonly string[] => items.map(({ name }) => name);

for (const sdk of SDKS) {
  suite(sdk, () => {
    let client: EitherClient;
    before(async () => {
      client = await connect(sdk, gateway.endpoint());
    });
    after(async () => {
      await client[Symbol.asyncDispose]();
    });

    // M-001
    test('one list holds every tool of all four servers, in the order of the config', TIMEOUT, async () => {
      assert.equal(client.revision, '2025-11-25');
      assert.deepEqual(names(await client.tools()), MERGED);
      // The first client of a new gateway gets its instructions before the servers are up (N-04).
      await using later = await connect(sdk, gateway.endpoint());
      assert.match(later.instructions, /^## everything\n/);
      assert.deepEqual(Object.keys(later.capabilities).sort(), [
        'completions',
        'logging',
        'prompts',
        'resources',
        'tasks',
        'tools',
      ]);
      await client.ping();
    });

    test('a call reaches each of the four servers', TIMEOUT, async () => {
      await client.tools();
      assert.equal(textOf(await client.call('everything__echo', { message: 'héllo\n"' })), 'Echo: héllo\n"');
      const { structuredContent } = await client.call('everything__get-structured-content', { location: 'Chicago' });
      assert.deepEqual(structuredContent, { temperature: 36, conditions: 'Light rain / drizzle', humidity: 82 });

      const path = join(dir, `${sdk}.txt`);
      await client.call('filesystem__write_file', { path, content: 'kept' });
      assert.equal(await readFile(path, 'utf8'), 'kept');
      assert.equal(textOf(await client.call('filesystem__read_text_file', { path })), 'kept');

      const entity = { name: sdk, entityType: 'client', observations: ['was here'] };
      await client.call('memory__create_entities', { entities: [entity] });
      assert.match(textOf(await client.call('memory__open_nodes', { names: [sdk] })), /was here/);

      const thought = { thought: 'a', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
      assert.match(textOf(await client.call('sequential-thinking__sequentialthinking', thought)), /"thoughtNumber": 1/);
    });

    test('a failure that a tool reports is a result with its exact text', TIMEOUT, async () => {
      const result = await client.call('filesystem__read_text_file', { path: '/etc/passwd' });
      assert.equal(result.isError, true);
      assert.match(textOf(result), /^Access denied - path outside allowed directories/);
    });

    // M-006
    test('an unknown tool is refused, and the error names it', TIMEOUT, async () => {
      await assert.rejects(client.call('echo', { message: 'x' }), { code: -32602, message: /Unknown tool: echo/ });
    });

    test('resources of all servers are listed, and read by their listed URIs', TIMEOUT, async () => {
      assert.deepEqual(
        (await client.resources()).map(({ uri }) => uri),
        RESOURCES,
      );
      const uri = 'everything+demo://resource/static/document/features.md';
      const [document] = await client.read(uri);
      assert.equal(document?.uri, uri);
      assert.match(document.text ?? '', /Features/);
      const [graph] = await client.read('memory+memory://knowledge-graph');
      assert.ok(Array.isArray(JSON.parse(graph?.text ?? '').entities));
    });

    test('a URI made from a listed template is read', TIMEOUT, async () => {
      const templates = (await client.templates()).map(({ uriTemplate }) => uriTemplate);
      assert.deepEqual(
        templates,
        ['text', 'blob'].map((kind) => `everything+demo://resource/dynamic/${kind}/{resourceId}`),
      );
      const uri = templates[0]?.replace('{resourceId}', '7') ?? '';
      const [content] = await client.read(uri);
      assert.equal(content?.uri, uri);
      assert.match(content.text ?? '', /^Resource 7:/);
    });

    // M-007
    test('an unknown resource is an error that names it', TIMEOUT, async () => {
      await assert.rejects(client.read('nowhere://x'), (thrown: { code?: unknown; message?: unknown }) => {
        assert.ok(thrown.code === -32002 || thrown.code === -32602, String(thrown.code));
        assert.match(String(thrown.message), /nowhere:\/\/x/);
        return true;
      });
    });

    // M-016
    test(`links in results can be read through the gateway at their server`, TIMEOUT, async () => {
      const links = linksOf(await client.call('everything__get-resource-links', { count: 2 }));
      assert.equal(links.length, 2);
      for (const link of links) {
        assert.match(link, /^everything\+demo:\/\//);
        assert.equal((await client.read(link))[0]?.uri, link);
      }
      const args = { resourceType: 'Text', resourceId: 3 };
      const { content } = await client.call('everything__get-resource-reference', args);
      const embedded = content.find(({ type }) => type === 'resource')?.resource?.uri ?? '';
      assert.match((await client.read(embedded))[0]?.text ?? '', /^Resource 3:/);

      const messages = await client.prompt('everything__resource-prompt', { resourceType: 'Text', resourceId: '4' });
      assert.match(JSON.stringify(messages), /"uri":"everything\+demo:\/\/resource\/dynamic\/text\/4"/);
    });

    test('prompts get their arguments, and an unknown prompt is refused', TIMEOUT, async () => {
      assert.deepEqual(
        names(await client.prompts()),
        ['simple', 'args', 'completable', 'resource'].map((name) => `everything__${name}-prompt`),
      );
      const messages = await client.prompt('everything__args-prompt', { city: 'Kyiv', state: 'UA' });
      assert.deepEqual(messages[0]?.content, { type: 'text', text: "What's weather in Kyiv, UA?" });
      await assert.rejects(client.prompt('args-prompt', {}), { code: -32602, message: /Unknown prompt: args-prompt/ });
    });

    // M-017
    test('arguments of prompts and of resource templates are completed', TIMEOUT, async () => {
      const ref = { type: 'ref/prompt', name: 'everything__completable-prompt' } as const;
      const department = { name: 'department', value: 'S' };
      assert.deepEqual(await client.complete({ ref, argument: department }), ['Sales', 'Support']);
      const context = { arguments: { department: 'Sales' } };
      assert.deepEqual(await client.complete({ ref, argument: { name: 'name', value: 'D' }, context }), ['David']);

      const uri = 'everything+demo://resource/dynamic/text/{resourceId}';
      const argument = { name: 'resourceId', value: '12' };
      assert.deepEqual(await client.complete({ ref: { type: 'ref/resource', uri }, argument }), ['12']);
    });

    test('the endpoint of one server renames nothing', TIMEOUT, async () => {
      await using alone = await connect(sdk, gateway.endpoint('everything'));
      assert.deepEqual(names(await alone.tools()), TOOLS['everything']);
      assert.equal(textOf(await alone.call('echo', { message: 'x' })), 'Echo: x');
      const [link] = linksOf(await alone.call('get-resource-links', { count: 1 }));
      assert.equal(link, 'demo://resource/dynamic/blob/1');
      assert.equal((await alone.read(link))[0]?.uri, link);
      // A tool that is not listed is passed on, because the server itself must refuse it.
      const unknown = await alone.call('everything__echo', { message: 'x' });
      assert.match(textOf(unknown), /Tool everything__echo not found/);
    });

    test(`a profile lists its selection under its names, and refuses calls of the rest`, TIMEOUT, async () => {
      await using reader = await connect(sdk, gateway.endpoint('reading'));
      const reads = ['read_file', 'read_text_file', 'read_multiple_files'].map((name) => `filesystem__${name}`);
      assert.deepEqual(names(await reader.tools()), [...reads, 'say']);
      assert.equal(textOf(await reader.call('say', { message: 'x' })), 'Echo: x');
      const path = join(dir, 'profile.txt');
      await writeFile(path, 'seen');
      assert.equal(textOf(await reader.call('filesystem__read_text_file', { path })), 'seen');
      for (const hidden of ['everything__echo', 'filesystem__write_file', 'filesystem__read_media_file']) {
        await assert.rejects(reader.call(hidden, { path, message: 'x' }), { code: -32602 });
      }
    });
  });
}
