import assert from 'node:assert/strict';
import { test } from 'node:test';
import { testCore } from '../../support/core.ts';
import { memoryUpstream } from '../../support/memory-upstream.ts';

const tools = Array.from({ length: 10_000 }, (_, n) => ({
  name: `tool${n}`,
  description: `Does the thing that has the number ${n}.`,
  inputSchema: {
    type: 'object',
    properties: {
      query: { type: 'string', description: 'Text to look for; qualifiers narrow it down.' },
      page: { type: 'integer', description: 'Page of the results, counted from 1.' },
    },
    required: ['query'],
  },
}));

/** Turns with less work are those that wait for something. */
const IDLE_US = 1_000;

/** The work of this thread in turns of the event loop, as CPU time in µs: that of other processes does not count. */
class TurnWork implements Disposable {
  #counter: NodeJS.Immediate;
  #before = process.threadCpuUsage();
  /** Of one turn. */
  longest = 0;
  /** Of all turns that are not idle. */
  total = 0;

  constructor() {
    this.#counter = setImmediate(this.#onTurn);
  }

  readonly #onTurn = (): void => {
    const { user, system } = process.threadCpuUsage(this.#before);
    this.#before = process.threadCpuUsage();
    this.longest = Math.max(this.longest, user + system);
    if (user + system > IDLE_US) this.total += user + system;
    this.#counter = setImmediate(this.#onTurn);
  };

  [Symbol.dispose](): void {
    clearImmediate(this.#counter);
  }
}

// N-93
test('no turn of the event loop has a large part of the first listing', { timeout: 120_000 }, async () => {
  using work = new TurnWork();
  await using gateway = await testCore({ up: { memory: memoryUpstream({ lists: { tools }, pageItems: 500 }) } });
  const client = await gateway.connect();
  const { tools: listed, nextCursor } = await client.result('tools/list');
  assert.ok(Array.isArray(listed) && listed.length === 1_000 && nextCursor !== undefined);
  assert.ok(work.longest < work.total / 4, `${work.longest} of ${work.total} µs`);
});
