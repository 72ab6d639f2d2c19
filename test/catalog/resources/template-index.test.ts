import assert from 'node:assert/strict';
import { test } from 'node:test';
import * as fc from '../../support/fast-check.ts';
import { TemplateIndex } from '../../../src/catalog/resources/template-index.ts';
import { parseTemplate } from '../../../src/catalog/resources/template.ts';
import { LIMITS } from '../../../src/limits.ts';
import { bare, catalogOf, template, view } from '../fixtures.ts';

// N-22
test('the index finds the same upstreams as a scan of all templates', () => {
  const pattern = fc
    .array(fc.constantFrom('a', 'b', '/', '{x}', '{+x}'), { maxLength: 6 })
    .map((parts) => `x:${parts.join('')}`);
  const listed = fc.array(fc.record({ upstream: fc.constantFrom('a', 'b', 'c'), template: pattern }), {
    maxLength: 12,
  });
  const uri = fc.array(fc.constantFrom('a', 'b', '/', 'c'), { maxLength: 8 }).map((parts) => `x:${parts.join('')}`);
  fc.assert(
    fc.property(listed, uri, (templates, text) => {
      const expected = templates.filter((one) => {
        return new TemplateIndex([one]).find(text).size === 1;
      });
      const found = new TemplateIndex(templates).find(text);
      assert.deepEqual([...found].toSorted(), [...new Set(expected.map(({ upstream }) => upstream))].toSorted());
    }),
    { numRuns: 2_000 },
  );
});

/** Templates of one upstream that each need many steps for a URI made against them, and never match it. */
function hostile(count: number): readonly { readonly upstream: string; readonly template: string }[] {
  return Array.from({ length: count }, (_, i) => ({
    upstream: 'hostile',
    template: `x:${'{/a}{b}'.repeat(15)}${'/'.repeat(i % 3)}!`,
  }));
}

const AGAINST = `x:${'a/'.repeat(1_020)}!`;

// N-22
test('limit templateMatchSteps: an upstream beyond it does not match, others do', () => {
  const reached: string[] = [];
  const templates = [...hostile(500), { upstream: 'honest', template: 'x:{+all}!' }];
  const found = new TemplateIndex(templates, (limit) => reached.push(limit)).find(AGAINST);
  assert.deepEqual([...found], ['honest']);
  assert.deepEqual(reached, ['templateMatchSteps']);
});

// N-22
test('limit templateUriBytes: longer URIs and templates do not match', () => {
  const longest = `x:${'a'.repeat(LIMITS.templateUriBytes - 2)}`;
  const index = new TemplateIndex([{ upstream: 'a', template: 'x:{+all}' }]);
  assert.deepEqual([...index.find(longest)], ['a']);
  assert.deepEqual([...index.find(`${longest}a`)], []);
  // Two bytes in UTF-8.
  assert.deepEqual([...index.find(`${longest.slice(0, -1)}é`)], []);
  assert.notEqual(parseTemplate(longest), undefined);
  assert.equal(parseTemplate(`${longest}a`), undefined);
});

// SEC-33
test('an index of what is withheld matches also what it cannot match in time', () => {
  const reached: string[] = [];
  const withheld = new TemplateIndex(hostile(500), (limit) => reached.push(limit), true);
  assert.equal(withheld.find(AGAINST).size, 1);
  assert.deepEqual(reached, ['templateMatchSteps']);
  const ended = new TemplateIndex([{ upstream: 'a', template: 'x:{+all}!' }], (limit) => reached.push(limit), true);
  assert.equal(ended.find('x:a').size, 0);
  assert.equal(ended.find(`x:${'a'.repeat(LIMITS.templateUriBytes)}`).size, 1);
  assert.equal(ended.find(`y:${'a'.repeat(LIMITS.templateUriBytes)}`).size, 0);
});

// N-22
test('limit templatesPerUpstream: the first are listed, and one record counts the rest', () => {
  const templates = Array.from({ length: LIMITS.templatesPerUpstream + 5 }, (_, i) => template(`x:${i}/{y}`));
  const catalog = catalogOf(view([bare('a')]), { a: { templates } });
  assert.equal(catalog.resources.templateTexts.length, LIMITS.templatesPerUpstream);
  assert.deepEqual(catalog.quarantined, [
    {
      upstream: 'a',
      kind: 'template',
      name: `#${LIMITS.templatesPerUpstream + 1}`,
      why: 'and 4 more are beyond the 1000 templates that one upstream may have',
      limit: 'templatesPerUpstream',
    },
  ]);
});

// N-22
test('limit templateExpressions: a template with more of them matches no URI', () => {
  const reached: string[] = [];
  const templateOf = (count: number) => `x:${'{a}/'.repeat(count)}`;
  const templates = [LIMITS.templateExpressions, LIMITS.templateExpressions + 1].map((count) => ({
    upstream: String(count),
    template: templateOf(count),
  }));
  const index = new TemplateIndex(templates, (limit) => reached.push(limit));
  assert.deepEqual(reached, ['templateExpressions']);
  assert.deepEqual([...index.find(`x:${'v/'.repeat(LIMITS.templateExpressions)}`)], [templates[0]?.upstream]);
  assert.deepEqual([...index.find(`x:${'v/'.repeat(LIMITS.templateExpressions + 1)}`)], []);
});
