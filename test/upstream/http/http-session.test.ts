import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cookies } from '../../../src/upstream/http/cookies.ts';
import { HttpSession } from '../../../src/upstream/http/http-session.ts';

const TARGET = { kind: 'http', url: 'http://up.example:81/mcp?a=1', headers: { 'X-Key': 'k' } } as const;

const headersOf = (head: { readonly headers: readonly string[] }): string[] =>
  Array.from({ length: head.headers.length / 2 }, (_, n) => `${head.headers[2 * n]}: ${head.headers[2 * n + 1]}`);

test('requests go to the path of the URL with the configured headers', () => {
  const session = new HttpSession(TARGET, 'linkspan/1', new Cookies(TARGET.url));
  const { head, body } = session.post('{}', 10);
  assert.deepEqual([head.method, head.path, body], ['POST', '/mcp?a=1', '{}']);
  assert.match(head.text, /^POST \/mcp\?a=1 HTTP\/1\.1\r\nhost: up\.example:81\r\n/i);
  assert.ok(headersOf(head).includes('x-key: k'));
  assert.ok(headersOf(head).includes('user-agent: linkspan/1'));
});

test('the session id and the revision are in all requests once they are known', () => {
  const session = new HttpSession(TARGET, 'linkspan/1', new Cookies(TARGET.url));
  const position = { lastEventId: 'e-7', retryMs: undefined };
  assert.equal(session.id, undefined);
  assert.ok(!headersOf(session.get(position).head).some((line) => line.startsWith('mcp-')));
  session.setId('s-1');
  session.setRevision('2025-06-18');
  assert.equal(session.id, 's-1');
  for (const { head } of [session.post('{}', 0), session.get(position), session.delete()]) {
    assert.ok(headersOf(head).includes('mcp-session-id: s-1'), head.method);
    assert.ok(headersOf(head).includes('mcp-protocol-version: 2025-06-18'), head.method);
  }
  assert.ok(headersOf(session.get(position).head).includes('last-event-id: e-7'));
});

test('a revision without the header MCP-Protocol-Version is not in it', () => {
  const session = new HttpSession(TARGET, 'linkspan/1', new Cookies(TARGET.url));
  session.setRevision('2025-03-26');
  assert.ok(!headersOf(session.post('{}', 0).head).some((line) => line.startsWith('mcp-protocol-version')));
});

test('cookies of the upstream follow those of the config in one header', () => {
  const target = { ...TARGET, headers: { 'X-Of': 'cookie', Cookie: 'own=1' } };
  const session = new HttpSession(target, 'linkspan/1', new Cookies(target.url));
  assert.ok(headersOf(session.post('{}', 0).head).includes('cookie: own=1'));
  session.keepCookies({ 'set-cookie': 'node=a; path=/' });
  session.keepCookies({ 'set-cookie': ['b=2', 'other=3; Path=/elsewhere'] });
  for (const { head } of [
    session.post('{}', 0),
    session.get({ lastEventId: '', retryMs: undefined }),
    session.delete(),
  ])
    assert.deepEqual(
      headersOf(head).filter((line) => line.startsWith('cookie')),
      ['cookie: own=1; node=a; b=2'],
    );
});
