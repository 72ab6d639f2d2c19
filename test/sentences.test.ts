import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

const SRC = fileURLToPath(new URL('../src', import.meta.url));

/** A longer sentence is read twice. */
const MAX_WORDS = 24;

/** Comments, regular expressions and texts of a source, from left to right. */
const TOKEN =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|(?<=[=(,:;!&|?{}[]\s*)\/(?:[^/\\\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*|'(?:[^'\\\n]|\\.)*'|"(?:[^"\\\n]|\\.)*"|`(?:[^`\\]|\\.)*`/g;

/** Returns the docstrings of a source, and its texts; texts that are added up are one. A text of several lines is a program or a form. */
function textsOf(source: string): { readonly docs: readonly string[]; readonly messages: readonly string[] } {
  const docs: string[] = [];
  const messages: string[] = [];
  let end = -1;
  for (const { 0: token, index } of source.matchAll(TOKEN)) {
    if (token.startsWith('/**')) docs.push(token.slice(3, -2).replace(/^\s*\* ?/gm, ''));
    if (!/^['"`]/.test(token)) continue;
    const text = token.slice(1, -1).replace(/\$\{[^}]*\}/g, 'X');
    const isSameText = end !== -1 && /^\s*\+\s*$/.test(source.slice(end, index));
    if (isSameText) messages.push(`${messages.pop() ?? ''}${text}`);
    else messages.push(text);
    end = index + token.length;
  }
  return { docs, messages: messages.filter((text) => !text.includes('\n')).flatMap((text) => text.split('\\n')) };
}

/** Returns the paragraphs, list items and tags of a docstring. Lines of tables are none. */
function blocksOf(doc: string): string[] {
  return doc
    .replace(/ (?=@(?:param|throws|returns)\b)/g, '\n')
    .split(/\n(?=@|[-*|] |\d+\. )|\n\s*\n|\n(?=.*\S {2,}\S)/)
    .filter((block) => !/^\s*(?:@see|\|)|\S {2,}\S/.test(block))
    .map((block) => block.replace(/^\s*@(?:param \S+|throws(?: \{\w+\})?|returns)/, '').replaceAll('\n', ' '));
}

function longSentencesIn(text: string): string[] {
  const plain = text.replace(/\{@link\s+[^}]*\}|`[^`]*`/g, 'X');
  const sentences = plain.split(/(?<=[.?!]["')]?)\s+(?=[A-Z"'({<\d[])/);
  return sentences.filter(
    (sentence) => sentence.split(/\s+/).filter((word) => /[\p{L}\d]/u.test(word)).length > MAX_WORDS,
  );
}

test(`a sentence in a docstring or a message has at most ${MAX_WORDS} words`, () => {
  const long: string[] = [];
  let count = 0;
  for (const file of globSync('**/*.ts', { cwd: SRC })) {
    const { docs, messages } = textsOf(readFileSync(join(SRC, file), 'utf8'));
    const texts = [...docs.flatMap(blocksOf), ...messages];
    count += texts.length;
    long.push(...texts.flatMap(longSentencesIn).map((sentence) => `src/${file}: ${sentence.trim()}`));
  }
  assert.ok(count > 10_000, `${count} texts`);
  assert.deepEqual(long, []);
});

test('long sentences are found in docstrings, in their tags and in messages', () => {
  const words = (count: number) => Array.from({ length: count }, (_, n) => `w${n}`).join(' ');
  const longIn = (source: string) => {
    const { docs, messages } = textsOf(source);
    return [...docs.flatMap(blocksOf), ...messages].flatMap(longSentencesIn).length;
  };
  assert.equal(longIn(`/** Short. ${words(25)}. */`), 1);
  assert.equal(longIn(`/**\n * ${words(12)}\n * ${words(13)}.\n */`), 1);
  assert.equal(longIn(`/** Short. @throws {Error} ${words(25)} */`), 1);
  assert.equal(longIn(`/**\n * ${words(12)}.\n *\n * - ${words(13)}.\n */`), 0);
  assert.equal(longIn(`const quote = /['"]/; const text = '${words(12)} ' + \n \`\${a} ${words(12)}\`;`), 1);
  assert.equal(longIn(`const text = '${words(24)}. ' + '${words(24)}';`), 1);
  assert.equal(longIn(`const text = '${words(12)}. W${words(12)}'; // ${words(25)}`), 0);
});
