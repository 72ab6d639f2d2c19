import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { test } from 'node:test';
import { LIMITS } from '../../src/limits.ts';
import {
  answeredHeaders,
  type ForwardedHead,
  ForwardedHeadParser,
  forwardedHeaders,
  forwardedText,
  senderText,
} from '../../src/replicas/forwarded-head.ts';
import { RecentCalls } from '../../src/replicas/recent-calls.ts';

const SENDER = {
  to: 'member',
  principal: {
    key: 'k',
    person: 'p',
    label: 'ü',
    scopes: ['a', 'b'],
    issuer: 'i',
    subject: 's',
    clientId: 'c',
    claims: { n: 1 },
  },
  view: 'files',
};
const FORWARDED = {
  call: randomUUID(),
  kind: 'http',
  method: 'POST',
  target: '/mcp/files',
  headers: ['accept', '*/*'],
} as const;
const HEAD: ForwardedHead = { ...SENDER, ...FORWARDED };

test('a head is read as it was written', () => {
  const parser = new ForwardedHeadParser();
  const read = (head: ForwardedHead) => parser.parse(senderText(head), forwardedText(head));
  assert.deepEqual(read(HEAD), HEAD);
  const brief = { ...HEAD, principal: { key: 'k', label: 'l', scopes: [] } };
  assert.deepEqual(read(brief)?.principal, brief.principal);
  assert.deepEqual(read({ ...HEAD, view: 'other' })?.view, 'other');
  assert.equal(read({ ...HEAD, hops: 2 })?.hops, 2);
  assert.equal(read({ ...HEAD, token: 'for an exchange' })?.token, 'for an exchange');
  assert.equal(read({ ...HEAD, hops: 3 }), undefined, 'it was passed on too often');
  assert.deepEqual(read(HEAD), HEAD, 'a sender that was read before');
});

test('a sender with many claims is kept as a short one is, and not without bound', () => {
  const parser = new ForwardedHeadParser();
  const read = (chars: number, n = 0) => {
    const claims = { groups: 'x'.repeat(chars), n };
    return parser.parse(senderText({ ...SENDER, principal: { ...SENDER.principal, claims } }), forwardedText(HEAD));
  };
  const first = read(20_000)?.principal;
  assert.ok(first !== undefined && first.claims?.['groups'] !== undefined);
  assert.equal(read(20_000)?.principal, first);
  assert.notEqual(read(5_000_000)?.principal, undefined);
  assert.notEqual(read(5_000_000)?.principal, read(5_000_000)?.principal);
  assert.equal(read(20_000)?.principal, first);
  for (let n = 1; n <= 205; n++) read(20_000, n);
  assert.notEqual(read(20_000)?.principal, first);
});

test('a head of another version, or without a member, is refused', () => {
  const parser = new ForwardedHeadParser();
  const parts: readonly Readonly<Record<string, unknown>>[] = [{ v: 1, ...SENDER }, FORWARDED];
  const [sender = '', forwarded = ''] = parts.map((part) => JSON.stringify(part));
  assert.ok(parser.parse(sender, forwarded) !== undefined);
  const bad = (part: Readonly<Record<string, unknown>>) => [
    ...Object.keys(part).map((key) => ({ ...part, [key]: undefined })),
    { ...part, more: 1 },
    [],
    null,
    'x',
  ];
  for (const [at, part] of parts.entries()) {
    const others = [...bad(part), at === 0 ? { ...part, v: 2 } : { ...part, call: 'x' }];
    for (const text of [...others.map((other) => JSON.stringify(other)), '%', '']) {
      const texts = at === 0 ? ([text, forwarded] as const) : ([sender, text] as const);
      assert.equal(parser.parse(...texts), undefined, text);
    }
  }
});

// SEC-13
test('credentials, cookies and addresses of a client are not passed on', () => {
  const kept = [
    'Content-Type',
    'application/json',
    'mcp-session-id',
    'x',
    'Mcp-Param-Region',
    'eu',
    'last-event-id',
    '1',
    'traceparent',
    't',
    'TraceState',
    's',
  ];
  const left = [
    'authorization',
    'Bearer canary',
    'Cookie',
    'canary',
    'x-forwarded-for',
    '1.2.3.4',
    'host',
    'h',
    'linkspan-envelope',
    'x',
  ];
  assert.deepEqual(forwardedHeaders([...left, ...kept]), kept);
  const answer = ['content-type', 'text/event-stream', 'retry-after', '1'];
  assert.deepEqual(answeredHeaders([...answer, 'set-cookie', 'canary', 'date', 'now', 'connection', 'close']), answer);
});

test('a call is remembered for 30 s at least', () => {
  const recent = new RecentCalls(() => assert.fail('there are few'));
  assert.equal(recent.add('one', 1), true);
  assert.equal(recent.add('one', 29_999), false);
  assert.equal(recent.add('one', 30_000), false);
  assert.equal(recent.add('two', 59_999), true);
  assert.equal(recent.add('one', 60_001), true);
  assert.equal(recent.add('two', 60_002), false);
  assert.equal(recent.add('two', 500_000), true);
});

test('limit recentCalls: the older half is forgotten, and no call is refused', () => {
  let reached = 0;
  const recent = new RecentCalls(() => reached++);
  const half = LIMITS.recentCalls / 2;
  for (let n = 0; n < 2 * half; n++) assert.equal(recent.add(`${n}`, 1), true);
  assert.equal(reached, 0);
  assert.equal(recent.add('0', 1), true);
  assert.equal(reached, 1);
  assert.equal(recent.add(`${half}`, 1), false);
});
