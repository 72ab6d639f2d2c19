/**
 * Sends requests to a healthy upstream at an even pace over its own connections until it is stopped, then prints one
 * line
 * of JSON. A request with an error or without an answer is a failure.
 */
import { Check } from './check.ts';
import { Conversation } from './conversation.ts';
import { PROBED_ASK, PROBED_PREFIX } from './probing.ts';
import { percentile } from './percentile.ts';

const CONNECTIONS = 8;
const EVERY_MS = 10;

const tookMs: number[] = [];
let failures = 0;
const idle: Conversation[] = [];
const check = new Check(PROBED_ASK, PROBED_PREFIX);
const conversations = Array.from({ length: CONNECTIONS }, (_, index) => {
  return new Conversation({
    url: new URL(process.argv[2] ?? ''),
    askUrl: undefined,
    revision: '2025-11-25',
    ask: PROBED_ASK,
    toolPrefix: PROBED_PREFIX,
    check,
    index,
    count: CONNECTIONS,
    sessions: 1,
    onRefusal: (conversation) => {
      failures++;
      idle.push(conversation);
    },
    onAnswer: (conversation, ms) => {
      tookMs.push(ms);
      idle.push(conversation);
    },
    onFailure: () => failures++,
  });
});

function report(): void {
  const now = performance.now();
  // A missing answer counts with the time that it has waited.
  const waiting = conversations.flatMap((each) => each.waitingMs(now) ?? []);
  const sorted = Float64Array.from([...tookMs, ...waiting]).toSorted();
  const figures = {
    requests: sorted.length,
    p50Ms: percentile(sorted, 0.5),
    p99Ms: percentile(sorted, 0.99),
    maxMs: sorted.at(-1),
    failures,
  };
  process.stdout.write(`${JSON.stringify(figures)}\n`, () => process.exit(0));
}

process.once('SIGTERM', report);
await Promise.all(conversations.map((each) => each.open()));
idle.push(...conversations);
console.log(JSON.stringify({ msg: 'listening', url: 'probing' }));
setInterval(() => idle.shift()?.ask(), EVERY_MS);
