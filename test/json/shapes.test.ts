import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type KeyShape, ShapeTree } from '../../src/json/shapes.ts';

test('objects with the same names in the same order have one shape', () => {
  const { root } = new ShapeTree();
  assert.deepEqual(root.names, []);
  const shape = root.follow('name')?.follow('args');
  assert.deepEqual(shape?.names, ['name', 'args']);
  assert.equal(shape?.name, 'args');
  assert.equal(shape?.chars, '"args":'.length);
  assert.equal(root.follow('name')?.follow('args'), shape);
  assert.notEqual(root.follow('args')?.follow('name'), shape);
});

test('nextAt finds the two latest followers where their name stands in the text', () => {
  const { root } = new ShapeTree();
  const [a, b, c] = ['a', 'b', 'c'].map((name) => root.follow(name));
  assert.equal(root.nextAt('{"c":1}', 1), c);
  assert.equal(root.nextAt('{"b":1}', 1), b);
  assert.equal(root.nextAt('{"c":1}', 1), c);
  assert.notEqual(root.nextAt('{"a":1}', 1), a, 'the third latest is not kept at hand');
  assert.notEqual(root.nextAt('{"bb":1}', 1)?.name, 'b');
  assert.notEqual(root.nextAt('{"c" :1}', 1)?.name, 'c');
});

test('objects with many members or long names have no shape', () => {
  const { root } = new ShapeTree();
  assert.equal(root.follow('x'.repeat(65)), undefined);
  let shape: KeyShape | undefined = root;
  for (let n = 0; n < 12; n++) shape = shape?.follow(`m${n}`);
  assert.equal(shape?.names.length, 12);
  assert.equal(shape?.follow('m12'), undefined);
});

test('a peer that invents names makes the tree start anew', () => {
  const tree = new ShapeTree();
  const { root } = tree;
  for (let n = 0; n < 499; n++) tree.root.follow(`m${n}`);
  assert.equal(tree.root, root);
  tree.root.follow('one more');
  assert.notEqual(tree.root, root);
});
