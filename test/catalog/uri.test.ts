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

const disguised = [
  { raw: ' b+file:///x', published: 'docs+b+file:///x' },
  { raw: '\t\0 b+file:///x', published: 'docs+b+file:///x' },
  { raw: 'b\t+file:///x', published: 'docs+b+file:///x' },
  { raw: 'b+fi\r\nle:///x y', published: 'docs+b+file:///x y' },
  { raw: '\u00a0\ufeffb+file:///x', published: 'docs+b+file:///x' },
  { raw: '\n ui://b+card', published: 'ui://docs+b+card' },
  { raw: 'u\ti://b+card', published: 'ui://docs+b+card' },
  { raw: ' https://example.com/', published: ' https://example.com/' },
  { raw: ' /just/a\tpath', published: ' /just/a\tpath' },
];

for (const { raw, published } of disguised) {
  // SEC-35
  test(`${JSON.stringify(raw)} of docs is published as ${JSON.stringify(published)}`, () => {
    assert.equal(uriToClient(docs, raw), published);
    assert.equal(uriToClient(bare('docs'), raw), raw);
  });
}

const ids = fc.stringMatching(/^[a-z][a-z0-9-]{0,8}$/);
const scheme = fc.stringMatching(/^[A-Za-z][A-Za-z0-9+.-]{0,8}$/);
/** What readers of URLs leave out. */
const gaps = fc.stringMatching(/^[\t\n\r]{0,2}$/);
/** URIs that already look published, as a spoofing upstream would write them, and ordinary ones. */
const uris = fc.oneof(
  fc.tuple(scheme, fc.string()).map(([name, rest]) => `${name}:${rest}`),
  fc.tuple(ids, scheme, fc.string()).map(([id, name, rest]) => `${id}+${name}:${rest}`),
  fc.tuple(ids, fc.string()).map(([id, rest]) => `ui://${id}+${rest}`),
  fc.tuple(gaps, ids, gaps, scheme, gaps).map(([a, id, b, name, c]) => `${a}${id}${b}+${name}${c}:///x`),
  fc.tuple(gaps, gaps, ids).map(([a, b, id]) => `${a}u${b}i://${id}+x`),
  fc.string(),
);

// SEC-35
test('unpublishing a published URI returns the URI and its upstream', () => {
  fc.assert(
    fc.property(ids, uris, (id, uri) => {
      const published = uriToClient(upstream(id), uri);
      if (published !== uri) {
        // A text with gaps comes back without them: it is the URI that readers find in it.
        const own = unpublishUri(published);
        assert.equal(own?.id, id);
        if (own?.uri !== uri) assert.equal(URL.parse(own?.uri ?? '')?.href, URL.parse(uri)?.href);
      } else {
        assert.equal(unpublishUri(published), undefined);
        assert.equal(unpublishUri(URL.parse(published)?.href ?? ''), undefined);
      }
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
