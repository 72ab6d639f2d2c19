import assert from 'node:assert/strict';
import { test } from 'node:test';
import { LeftOut, repairObject } from '../../../src/catalog/items/repair.ts';
import type { ObjectShape, Shape } from '../../../src/catalog/items/shapes.ts';
import { RawObject } from '../../../src/json/json.ts';

const TEXT: Shape = { kind: 'scalar', accepts: (value) => typeof value === 'string' };
const FLAG: Shape = { kind: 'scalar', accepts: (value) => typeof value === 'boolean' };

const SHAPE: ObjectShape = {
  kind: 'object',
  members: new Map<string, Shape>([
    ['name', TEXT],
    ['size', { kind: 'scalar', accepts: Number.isSafeInteger }],
    ['tags', { kind: 'list', of: TEXT }],
    ['by', { kind: 'map', of: FLAG }],
  ]),
  required: ['name'],
  defaults: new Map([['by', '{}']]),
};

const cases = [
  { is: 'a valid object', text: '{"name":"a","by":{}}', repaired: '{"name":"a","by":{}}', paths: [] },
  {
    is: 'a member of no shape',
    text: '{"name":"a","by":{},"x":[1.0]}',
    repaired: '{"name":"a","by":{},"x":[1.0]}',
    paths: [],
  },
  { is: 'a wrong member', text: '{"name":"a","size":1.5,"by":{}}', repaired: '{"name":"a","by":{}}', paths: ['size'] },
  {
    is: 'a wrong item of a list',
    text: '{"name":"a","tags":["x",1],"by":{}}',
    repaired: '{"name":"a","tags":["x"],"by":{}}',
    paths: ['tags[1]'],
  },
  {
    is: 'a wrong value of a map',
    text: '{"name":"a","by":{"x":1,"y":true}}',
    repaired: '{"name":"a","by":{"y":true}}',
    paths: ['by.x'],
  },
  { is: 'an absent member with a default', text: '{"name":"a"}', repaired: '{"name":"a","by":{}}', paths: [] },
  { is: 'a wrong required member', text: '{"name":1,"by":{}}', repaired: undefined, paths: ['name'] },
  { is: 'no required member', text: '{"by":{}}', repaired: undefined, paths: [] },
] as const;

for (const { is, text, repaired, paths } of cases) {
  // N-02
  test(`${is}: the repair leaves out ${paths.length === 0 ? 'nothing' : paths.join(', ')}`, () => {
    const leftOut = new LeftOut();
    assert.equal(repairObject(SHAPE, RawObject.parse(text), '', leftOut)?.toString(), repaired);
    assert.deepEqual(leftOut.paths, paths);
  });
}

// N-02
test('LeftOut records the first 20 paths', () => {
  const leftOut = new LeftOut();
  for (let n = 0; n < 30; n++) leftOut.add(`tags[${n}]`);
  assert.deepEqual(
    leftOut.paths,
    Array.from({ length: 20 }, (_, n) => `tags[${n}]`),
  );
});
