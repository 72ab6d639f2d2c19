import type { Catalog } from '../../../src/catalog/catalog.ts';
import { type ItemKind, KEY } from '../../../src/catalog/items/kind.ts';
import { RawObject } from '../../../src/json/json.ts';
import { bare, catalogOf, offer, resource, template, tool, view } from '../fixtures.ts';
import { isRecord } from '../../../src/json/record.ts';

/** One item that holds every member of its kind, each as it should be. */
const WHOLE: Readonly<Record<ItemKind, object>> = {
  tool: {
    name: 'subject',
    title: 'T',
    description: 'D',
    icons: [{ src: 'data:,', mimeType: 'image/png', sizes: ['48x48'], theme: 'dark' }],
    inputSchema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { a: { type: 'string', description: 'A' } },
      required: ['a'],
    },
    outputSchema: {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { b: { type: 'array', items: { $ref: '#/$defs/c' } } },
      required: ['b'],
      $defs: { c: { type: 'string', pattern: '^x', enum: ['x'] } },
    },
    annotations: { title: 'T', readOnlyHint: true, destructiveHint: false, idempotentHint: true, openWorldHint: false },
    execution: { taskSupport: 'optional' },
    _meta: { 'com.example/x': 1 },
  },
  prompt: {
    name: 'subject',
    title: 'T',
    description: 'D',
    icons: [{ src: 'data:,' }],
    arguments: [{ name: 'a', title: 'A', description: 'D', required: true }],
    _meta: { 'com.example/x': 1 },
  },
  resource: {
    uri: 'file:///subject',
    name: 'subject',
    title: 'T',
    description: 'D',
    mimeType: 'text/plain',
    size: 5,
    icons: [{ src: 'data:,' }],
    annotations: { audience: ['user'], priority: 0.5, lastModified: '2025-01-12T15:00:58Z' },
    _meta: { 'com.example/x': 1 },
  },
  template: {
    uriTemplate: 'file:///{subject}',
    name: 'subject',
    title: 'T',
    description: 'D',
    mimeType: 'text/plain',
    icons: [{ src: 'data:,' }],
    annotations: { audience: ['assistant'], priority: 1, lastModified: '2025-01-12T15:00:58.5+01:00' },
    _meta: { 'com.example/x': 1 },
  },
};

/** JSON texts of which at least some are wrong for any member. */
const VALUES = [
  'null',
  'true',
  'false',
  '5',
  '-1.5',
  '1e30',
  '"x"',
  '""',
  '"\\ud800"',
  '"("',
  '[]',
  '["x"]',
  '[5]',
  '[null]',
  '[{}]',
  '{}',
  '{"x":5}',
  '{"x":null}',
  '{"type":"array"}',
  '{"$ref":"#/nowhere"}',
  '{"$id":"https://x.example/same","type":"object"}',
];

export interface Malformed {
  readonly kind: ItemKind;
  /** The member that is wrong, and its value. */
  readonly what: string;
  readonly item: RawObject;
}

/** JSON texts of the value with each part of it, at any depth, replaced by each of the others or left out. */
function* variants(value: unknown, path: string): Generator<readonly [what: string, json: string]> {
  if (path !== '') for (const other of VALUES) yield [`${path} = ${other}`, other];
  if (Array.isArray(value)) {
    const items: readonly unknown[] = value;
    for (const [i, item] of items.entries()) {
      for (const [what, json] of variants(item, `${path}[${i}]`)) {
        yield [what, `[${items.map((one, at) => (at === i ? json : JSON.stringify(one))).join(',')}]`];
      }
    }
  } else if (isRecord(value)) {
    const members = Object.entries(value);
    for (const [name, member] of members) {
      const at = path === '' ? name : `${path}.${name}`;
      const others = members.filter(([other]) => other !== name);
      yield [`no ${at}`, JSON.stringify(Object.fromEntries(others))];
      for (const [what, json] of variants(member, at)) {
        const texts = members.map(([one, own]) => `"${one}":${one === name ? json : JSON.stringify(own)}`);
        yield [what, `{${texts.join(',')}}`];
      }
    }
  }
}

/** Every kind of item with every member wrong in every way. */
export function malformedItems(kind: ItemKind): readonly Malformed[] {
  return [...variants(WHOLE[kind], '')].map(([what, json]) => ({ kind, what, item: RawObject.parse(json) }));
}

/** The item with nothing wrong. */
export function wholeItem(kind: ItemKind): RawObject {
  return RawObject.of(WHOLE[kind]);
}

/** Items with nothing wrong, which stand around the others. */
const GOOD: Readonly<Record<ItemKind, readonly [RawObject, RawObject]>> = {
  tool: [tool('first'), tool('last', { outputSchema: { type: 'object' } })],
  prompt: [tool('first'), tool('last')],
  resource: [resource('file:///first'), resource('file:///last')],
  template: [template('file:///first/{x}'), template('file:///last/{x}')],
};

/** The keys of those. */
export const GOOD_KEYS: Readonly<Record<ItemKind, readonly string[]>> = {
  tool: ['first', 'last'],
  prompt: ['first', 'last'],
  resource: ['file:///first', 'file:///last'],
  template: ['file:///first/{x}', 'file:///last/{x}'],
};

const LIST = { tool: 'tools', prompt: 'prompts', resource: 'resources', template: 'templates' } as const;

/** The lists of one upstream with these items between good ones. */
export function catalogWith(kind: ItemKind, items: readonly RawObject[], upstreamRevision: string): Catalog {
  const [first, last] = GOOD[kind];
  const capabilities = RawObject.of({ tasks: { requests: { tools: { call: {} } } } });
  const listed = offer({ revision: upstreamRevision, capabilities, [LIST[kind]]: [first, ...items, last] });
  return catalogOf(view([bare('a', { isRemote: false })]), { a: listed });
}

/** Every malformed item of a kind in one list, each with its own key unless the key is malformed. */
export function allTogether(kind: ItemKind): readonly RawObject[] {
  const key = KEY[kind];
  return malformedItems(kind).map(({ what, item }, i) => {
    return what.includes(`${key} `) || what === `no ${key}` ? item : item.with(key, JSON.stringify(`x:${i}`));
  });
}
