import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { blocksOf, faultOf, indentedCommands } from './support/shell-blocks.ts';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const PAGES = globSync(['*.md', '{docs,deploy,bench}/**/*.md'], { cwd: ROOT });

for (const page of PAGES) {
  test(`${page}: commands are run`, () => {
    const text = readFileSync(join(ROOT, page), 'utf8');
    const faults = blocksOf(page, text).flatMap((block) => {
      const fault = faultOf(block);
      return fault === undefined ? [] : [`${page}:${block.line}: ${fault}`];
    });
    assert.deepEqual([...faults, ...indentedCommands(text)], []);
  });
}

const fences: readonly { readonly name: string; readonly text: string; readonly fault?: RegExp }[] = [
  { name: 'sh', text: '```sh\nnpm ci\n```' },
  { name: 'json', text: '```json\n{}\n```' },
  { name: 'a drawing', text: '```\na ─▶ b\n```' },
  { name: 'bash', text: '```bash\nls\n```', fault: /"bash" is not a language/ },
  { name: 'console', text: '~~~console\n$ ls\n~~~', fault: /"console"/ },
  { name: 'sh with another word', text: '```sh norun\nls\n```', fault: /"sh norun"/ },
  { name: 'commands without a language', text: '```\nnpm start\n```', fault: /has to be "sh"/ },
  {
    name: 'no-run without a reason',
    text: 'Needs it.\n\n```sh no-run\ndocker ps\n```\n\nMore.',
    fault: /does not say/,
  },
  {
    name: 'no-run far from its reason',
    text: 'Our tests do not run this: no engine.\n\nMore.\n\n```sh no-run\nls\n```',
    fault: /does not say/,
  },
  {
    name: 'no-run with the reason before',
    text: 'Our tests do not run this: they have no engine.\n\n```sh no-run\nls\n```',
  },
  {
    name: 'no-run with the reason after',
    text: '```sh no-run\nls\n```\n\n(Our tests do not run these: they have\nno engine.)',
  },
];

for (const { name, text, fault } of fences) {
  test(`a block of ${name} is ${fault === undefined ? 'accepted' : 'refused'}`, () => {
    const faults = blocksOf('page.md', text).map(faultOf);
    assert.equal(faults.length, 1);
    if (fault === undefined) assert.equal(faults[0], undefined);
    else assert.match(faults[0] ?? '', fault);
  });
}

test('a block in a list loses the indentation of its fence', () => {
  const [block] = blocksOf('page.md', '1. Do\n\n   ```sh\n   a \\\n     b\n   ```\n');
  assert.equal(block?.text, 'a \\\n  b');
});

test('commands in an indented block are found', () => {
  assert.deepEqual(indentedCommands('Run\n\n    npm start\n\n```sh\n    npm test\n```\n'), ['    npm start']);
});

test('a fence that is not closed is an error', () => {
  assert.throws(() => blocksOf('page.md', '```sh\nls\n'), /page\.md:1: the fence is not closed/);
});
