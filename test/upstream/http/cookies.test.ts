import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type LimitName, LIMITS } from '../../../src/limits.ts';
import { Cookies } from '../../../src/upstream/http/cookies.ts';

const NOW_MS = Date.UTC(2026, 0, 1);

interface Case {
  readonly title: string;
  readonly lines: readonly string[];
  readonly sent: string;
  /** Default: `http://up.example/api/mcp`. */
  readonly url?: string;
  /** The path of the later request. Default: that of the first one. */
  readonly path?: string;
}

const CASES: readonly Case[] = [
  { title: 'several cookies go back in one header', lines: ['a=1; Path=/', 'b="2"; HttpOnly'], sent: 'a=1; b="2"' },
  { title: 'a later cookie replaces that of its name', lines: ['a=1; Path=/', 'a=2; path=/'], sent: 'a=2' },
  { title: 'a value may be empty or have an equals sign', lines: ['a=', 'b=c=d'], sent: 'a=; b=c=d' },
  { title: 'text without a name is no cookie', lines: ['', '=1', 'a', ';a=1'], sent: '' },
  { title: 'a cookie with Max-Age 0 removes', lines: ['a=1', 'b=2', 'a=; Max-Age=0'], sent: 'b=2' },
  { title: 'a cookie of the past removes', lines: ['a=1', 'a=1; Expires=Thu, 01 Jan 1970 00:00:00 GMT'], sent: '' },
  {
    title: 'Max-Age counts more than Expires',
    lines: ['a=1; Max-Age=9; Expires=Thu, 01 Jan 1970 00:00:00 GMT'],
    sent: 'a=1',
  },
  { title: 'a date that cannot be read is ignored', lines: ['a=1; Expires=soon; Max-Age=long'], sent: 'a=1' },
  { title: 'a cookie without Path is for its folder', lines: ['a=1'], path: '/api/messages', sent: 'a=1' },
  { title: 'a cookie without Path is for no other folder', lines: ['a=1'], path: '/apis/messages', sent: '' },
  { title: 'a cookie for another path is not sent', lines: ['a=1; Path=/api/m'], sent: '' },
  { title: 'a cookie for a path above is sent', lines: ['a=1; Path=/api'], sent: 'a=1' },
  { title: 'a secure cookie is not sent in the clear', lines: ['a=1; Secure'], sent: '' },
  { title: 'a secure cookie is sent over TLS', lines: ['a=1; secure'], url: 'https://up.example/mcp', sent: 'a=1' },
];

for (const { title, lines, sent, url = 'http://up.example/api/mcp', path } of CASES) {
  test(title, () => {
    const { pathname } = new URL(url);
    const cookies = new Cookies(url);
    cookies.update(lines, pathname, NOW_MS);
    assert.equal(cookies.headerFor(path ?? pathname), sent);
  });
}

test('a cookie that is sent again changes nothing', () => {
  const cookies = new Cookies('http://up.example/mcp');
  assert.equal(cookies.update(['a=1'], '/mcp', NOW_MS), true);
  assert.equal(cookies.update(['a=1'], '/mcp', NOW_MS), false);
  assert.equal(cookies.update(['b=1; Max-Age=0'], '/mcp', NOW_MS), false);
});

test('limit upstreamCookieBytes: a cookie without room is not kept', () => {
  const reached: LimitName[] = [];
  const cookies = new Cookies('http://up.example/mcp', (limit) => reached.push(limit));
  const fits = `a=${'x'.repeat(LIMITS.upstreamCookieBytes - 'a=/'.length)}`;
  cookies.update([fits, 'b=1'], '/mcp', NOW_MS);
  assert.equal(cookies.headerFor('/mcp'), fits);
  assert.deepEqual(reached, ['upstreamCookieBytes']);
  cookies.update([`${fits}x`], '/mcp', NOW_MS);
  assert.equal(cookies.headerFor('/mcp'), fits, 'the former value stays');
  cookies.update(['a=1', 'b=1'], '/mcp', NOW_MS);
  assert.equal(cookies.headerFor('/mcp'), 'a=1; b=1');
  assert.equal(reached.length, 2);
});
