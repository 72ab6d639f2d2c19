import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { loadText, problemsOf } from '../support/config-file.ts';

const page = readFileSync(join(import.meta.dirname, '../../docs/policy.md'), 'utf8');
const UPSTREAMS = ['github', 'jira', 'crm', 'payroll', 'wiki', 'files'];
const SERVERS = `\nmcpServers:\n${UPSTREAMS.map((id) => `  ${id}: { command: x }\n`).join('')}`;

// P-012
test('the example of an external decision is valid, and its question is JSON', async () => {
  const [, text = '', question = ''] =
    /## An external decision\n[^]*?```yaml\n([^]*?)```[^]*?```json\n([^]*?)```/.exec(page) ?? [];
  const { access } = (await loadText(text + SERVERS, { env: { PDP_TOKEN: 'x' } })).config;
  assert.deepEqual([access?.external?.upstreams, access?.external?.arguments], [['github'], true]);
  assert.deepEqual(Object.keys(JSON.parse(question)), ['subject', 'action', 'resource', 'context']);
});

const examples = [...page.matchAll(/### (\d\. [^\n]+)\n[^]*?```yaml\n([^]*?)```/g)];

test('docs/policy.md has five worked examples', () => assert.equal(examples.length, 5));

for (const [, title = '', text = ''] of examples) {
  test(`example ${title} is valid`, async () => {
    const { access } = (await loadText(text + SERVERS)).config;
    assert.ok((access?.grants.length ?? 0) > 0);
  });

  const expectations = [...text.matchAll(/expect: (\w+)/g)];
  test(`each test of example ${title.slice(0, 40)} can fail`, async () => {
    assert.ok(expectations.length >= 3);
    for (const { index, 0: whole, 1: expected } of expectations) {
      const wrong = expected === 'allow' ? 'expect: hidden' : 'expect: allow';
      const problems = await problemsOf(text.slice(0, index) + wrong + text.slice(index + whole.length) + SERVERS);
      assert.equal(problems.length, 1, problems.join('\n'));
      assert.match(problems[0] ?? '', /config\.yaml:\d+:\d+ gateway\.access\.tests\[\d+\]: this test expects/);
    }
  });
}
