/**
 * Malformed list items, read by the Python SDKs 1.x and 2.x. Part of `npm test`, which installs them. `npm run
 * check` reads the
 * same items with the TypeScript SDKs only, in `test/catalog/items/`.
 */
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { listTexts } from '../../src/catalog/catalog.ts';
import { LATEST_MODERN, type Revision } from '../../src/protocol/revisions.ts';
import { allTogether, catalogWith, GOOD_KEYS, malformedItems } from '../catalog/items/malformed.ts';
import { pythonWith } from './install/python.ts';

const READER = fileURLToPath(new URL('clients/read_lists.py', import.meta.url));

const METHODS = {
  tool: ['tools/list', 'tools'],
  prompt: ['prompts/list', 'prompts'],
  resource: ['resources/list', 'resources'],
  template: ['resources/templates/list', 'resourceTemplates'],
} as const;

interface Case {
  readonly what: string;
  readonly keys: readonly string[];
  readonly revision: string;
  readonly method: string;
  readonly message: string;
}

function* cases(): Generator<Case> {
  // The revisions between them have the same lists as one of these.
  const revisions: readonly Revision[] = ['2024-11-05', '2025-11-25', LATEST_MODERN];
  for (const revision of revisions) {
    for (const kind of ['tool', 'prompt', 'resource', 'template'] as const) {
      const [method, list] = METHODS[kind];
      const single = malformedItems(kind).map(({ what, item }) => ({ what, items: [item] }));
      for (const { what, items } of [...single, { what: 'all', items: allTogether(kind) }]) {
        for (const upstreamRevision of ['2025-11-25', LATEST_MODERN] as const) {
          const texts = listTexts(catalogWith(kind, items, upstreamRevision), list, revision);
          const complete =
            revision === LATEST_MODERN ? ',"resultType":"complete","ttlMs":0,"cacheScope":"private"' : '';
          const message = `{"jsonrpc":"2.0","id":1,"result":{"${list}":[${texts.join(',')}]${complete}}}`;
          yield { what: `${kind} of ${upstreamRevision}: ${what}`, keys: GOOD_KEYS[kind], revision, method, message };
        }
      }
    }
  }
}

for (const set of ['mcp1', 'mcp2'] as const) {
  // N-02
  test(`one malformed item costs the Python SDK of ${set} no other item`, async () => {
    const reader = spawn(await pythonWith(set), ['-B', READER], { stdio: ['pipe', 'pipe', 'inherit'] });
    const ended = once(reader, 'exit');
    try {
      const answers = createInterface({ input: reader.stdout })[Symbol.asyncIterator]();
      for (const { what, keys, ...question } of cases()) {
        reader.stdin.write(`${JSON.stringify(question)}\n`);
        const { value } = await answers.next();
        const answer: unknown = JSON.parse(String(value));
        const listed: readonly unknown[] =
          typeof answer === 'object' && answer !== null && 'keys' in answer && Array.isArray(answer.keys)
            ? answer.keys
            : [];
        // The SDK 1.x does not support 2026-07-28.
        if (String(value) === '{"unknown": true}') continue;
        for (const key of keys) assert.ok(listed.includes(key), `${question.revision} ${what}: ${String(value)}`);
      }
    } finally {
      reader.stdin.destroy();
      await ended;
    }
  });
}
