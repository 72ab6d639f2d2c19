import assert from 'node:assert/strict';
import { test } from 'node:test';
import { publishedText, toolTextFor } from '../../src/catalog/publish.ts';
import { viewsOf } from '../../src/catalog/view.ts';
import { configWith } from '../downstream/edge.ts';
import { UPSTREAM } from '../support/core.ts';
import { usedBytes } from '../support/used-bytes.ts';
import { tool } from './fixtures.ts';

const MIB = 1_048_576;

/** Returns the upstreams of all endpoints of a config with these ids. */
function upstreamsOf(...ids: readonly string[]) {
  const upstreams = ids.map((id) => ({ ...UPSTREAM, id, title: id, prefix: `${id}__` }));
  return [...viewsOf(configWith({ upstreams })).values()].flatMap((view) => view.upstreams);
}

test('upstreams that a reload has not changed are the same objects', () => {
  const before = upstreamsOf('a', 'b');
  const after = upstreamsOf('a', 'c');
  const own = (upstreams: typeof before) => upstreams.filter(({ id }) => id === 'a');
  assert.equal(own(before).length, 2);
  for (const [index, upstream] of own(after).entries()) assert.equal(upstream, own(before)[index]);
});

test('texts of removed upstreams are not kept for another with the same tools', async () => {
  const shared = tool('big', { description: 'x'.repeat(MIB) });
  const publish = (id: string) => {
    for (const upstream of upstreamsOf('kept', id)) {
      const name = `${upstream.prefix}big`;
      publishedText('tool', upstream, shared, name);
      toolTextFor('2024-11-05', upstream, shared, name, false);
    }
  };
  publish('first');
  const before = usedBytes();
  for (let number = 0; number < 40; number++) {
    publish(`upstream${number}`);
    // A weak reference keeps its value until the end of the turn in which it was made.
    await new Promise((resolve) => setImmediate(resolve));
  }
  const grown = usedBytes() - before;
  assert.ok(grown < 8 * MIB, `${grown} bytes`);
  assert.equal(shared.string('name'), 'big');
});
