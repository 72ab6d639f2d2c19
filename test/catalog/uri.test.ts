import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../support/fast-check.ts';
import { unpublishUri, uriToClient } from '../../src/catalog/uri.ts';
import { bare, upstream } from './fixtures.ts';

const docs = upstream('docs');

const cases = [
  { raw: 'file:///a/b%20c', published: 'docs+file:///a/b%20c' },
  { raw: 'note:1', published: 'docs+note:1' },
  { raw: 'git+ssh://host/x', published: 'docs+git+ssh://host/x' },
  { raw: 'ui://card/main.html', published: 'ui://docs+card/main.html' },
  { raw: 'ui:///main', published: 'ui://docs+/main' },
  { raw: 'ui:card', published: 'docs+ui:card' },
  { raw: 'UI://card', published: 'docs+UI://card' },
  { raw: 'https://example.com/a', published: 'https://example.com/a' },
  { raw: 'HTTP://example.com', published: 'HTTP://example.com' },
  { raw: 'https+x://example.com', published: 'docs+https+x://example.com' },
  { raw: '/just/a/path', published: '/just/a/path' },
  { raw: '', published: '' },
  { raw: 'file:///{path}', published: 'docs+file:///{path}' },
  { raw: 'ui://{name}', published: 'ui://docs+{name}' },
  { raw: '{+url}', published: '{+url}' },
];

for (const { raw, published } of cases) {
  // D5
  test(`"${raw}" of docs is published as "${published}"`, () => {
    assert.equal(uriToClient(docs, raw), published);
    assert.equal(unpublishUri(published)?.uri ?? published, raw);
  });
}

const ids = fc.stringMatching(/^[a-z][a-z0-9-]{0,8}$/);
const scheme = fc.stringMatching(/^[A-Za-z][A-Za-z0-9+.-]{0,8}$/);
/** URIs that already look published, as a spoofing upstream would write them, and ordinary ones. */
const uris = fc.oneof(
  fc.tuple(scheme, fc.string()).map(([name, rest]) => `${name}:${rest}`),
  fc.tuple(ids, scheme, fc.string()).map(([id, name, rest]) => `${id}+${name}:${rest}`),
  fc.tuple(ids, fc.string()).map(([id, rest]) => `ui://${id}+${rest}`),
  fc.string(),
);

// SEC-35
test('unpublishing a published URI returns the URI and its upstream', () => {
  fc.assert(
    fc.property(ids, uris, (id, uri) => {
      const published = uriToClient(upstream(id), uri);
      if (published !== uri) assert.deepEqual(unpublishUri(published), { id, uri });
      else assert.equal(unpublishUri(published), undefined);
    }),
    { numRuns: 2000 },
  );
});

// SEC-35
test('no two upstreams publish the same URI, except web URIs and texts without scheme', () => {
  fc.assert(
    fc.property(ids, ids, uris, uris, (a, b, first, second) => {
      const published = uriToClient(upstream(a), first);
      fc.pre(a !== b && published !== first);
      assert.notEqual(published, uriToClient(upstream(b), second));
    }),
    { numRuns: 2000 },
  );
});

test('an upstream with raw URIs keeps every URI', () => {
  fc.assert(
    fc.property(ids, uris, (id, uri) => {
      assert.equal(uriToClient(bare(id), uri), uri);
    }),
  );
});
