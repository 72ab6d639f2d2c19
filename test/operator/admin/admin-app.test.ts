import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { createServer, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { test } from 'node:test';
import { getRequestListener } from '@hono/node-server';
import { pino } from 'pino';
import { ApiKeys } from '../../../src/auth/api-key.ts';
import { LIMITS } from '../../../src/limits.ts';
import { createAdminApp } from '../../../src/operator/admin/admin-app.ts';
import type { AdminPort } from '../../../src/operator/admin/admin-port.ts';
import { listenLocally } from '../../support/local-port.ts';
import { waitUntil } from '../../support/wait-until.ts';

const TIMEOUT = { timeout: 120_000 };
const AUTHORIZATION = 'Bearer key-of-ops';

/** Returns the admin API in front of a gateway that has no other operations than `answers`, with the lines of its log and the limits that it has reached. */
function adminApp(answers: Partial<AdminPort> = {}) {
  const lines: string[] = [];
  const limits: string[] = [];
  const operations: string[] = [];
  const app = createAdminApp({
    port: new Proxy(Object.create(null), {
      get: (_, name) =>
        Object.entries(answers).find(([known]) => known === name)?.[1] ?? assert.fail('the gateway was asked'),
    }),
    operators: () => new ApiKeys([{ name: 'ops', sha256: hash('sha256', 'key-of-ops') }]),
    version: '0',
    log: pino({ level: 'info' }, { write: (line: string) => void lines.push(line) }),
    onRefused: () => assert.fail('the operator was refused'),
    onOperation: (_operator, operation) => void operations.push(operation),
    onLimit: (limit) => void limits.push(limit),
  });
  return { app, lines, limits, operations };
}

function callOf(args: string): string {
  return `{"tool":"t","arguments":${args}}`;
}

const refused = [
  {
    name: 'nested too deeply',
    body: callOf('{"a":'.repeat(100_000) + '1' + '}'.repeat(100_000)),
    says: /nested too deeply/,
    limits: ['jsonDepth'],
  },
  {
    name: 'with too many members',
    body: callOf(`{${Array.from({ length: LIMITS.clientObjectMembers + 1 }, (_, i) => `"${i}":1`).join()}}`),
    says: /members/,
    limits: ['clientObjectMembers'],
  },
  { name: 'with a repeated member', body: callOf('{"a":1,"a":2}'), says: /twice|duplicate|repeated/, limits: [] },
  { name: 'with a changed number', body: callOf('{"id":12345678901234567890}'), says: /send it as text/, limits: [] },
  { name: 'that is cut', body: '{"tool":"t"', says: /at offset 11/, limits: [] },
  { name: 'that is no object', body: '[]', says: /expected an object/, limits: [] },
];

for (const { name, body, says, limits } of refused) {
  // N-75
  test(`a body ${name} is refused with 400 and no line of the log`, TIMEOUT, async () => {
    const admin = adminApp();
    const headers = { Authorization: AUTHORIZATION, 'Content-Type': 'application/json' };
    const response = await admin.app.request('/call', { method: 'POST', headers, body });
    const text = await response.text();
    assert.equal(response.status, 400, text);
    assert.match(text, says);
    assert.deepEqual([admin.lines, admin.operations, admin.limits], [[], [], limits]);
  });
}

test('explain accepts the payload of a token with an integer of 20 digits', TIMEOUT, async () => {
  const asked: unknown[] = [];
  const explained = { principal: 'a', view: '', kind: 'tool', name: 't', effect: 'unknown', isListed: false } as const;
  const { app, lines, operations } = adminApp({
    explain: ({ as }) => {
      asked.push(as);
      return { ...explained, reasons: [] };
    },
  });
  const headers = { Authorization: AUTHORIZATION, 'Content-Type': 'application/json' };
  const body = '{"as":{"sub":"ada","tenant":12345678901234567890},"kind":"tool","name":"t"}';
  const response = await app.request('/explain', { method: 'POST', headers, body });
  assert.equal(response.status, 200, await response.text());
  // The claim of a token is read as the same number.
  assert.deepEqual(asked, [{ sub: 'ada', tenant: Number('12345678901234567890') }]);
  assert.deepEqual([lines, operations], [[], []], 'nothing is changed');
});

test('explain refuses arguments that would be explained as null', TIMEOUT, async () => {
  const { app } = adminApp({ explain: () => assert.fail('it was explained') });
  const headers = { Authorization: AUTHORIZATION, 'Content-Type': 'application/json' };
  const body = '{"as":{"sub":"ada"},"kind":"tool","name":"t","args":{"id":1e400}}';
  const response = await app.request('/explain', { method: 'POST', headers, body });
  assert.equal(response.status, 400);
  assert.match(await response.text(), /has the number 1e400, which is too large/);
});

// N-75
test('an operator who leaves before the end of the body makes no line of the log', TIMEOUT, async () => {
  const { app, lines, operations } = adminApp();
  const handling = Promise.withResolvers<Response>();
  const listener = getRequestListener((request) => {
    const response = Promise.resolve(app.fetch(request));
    response.then(handling.resolve, handling.reject);
    return response;
  });
  const received = Promise.withResolvers<IncomingMessage>();
  const server = createServer((request, response) => {
    received.resolve(request);
    void listener(request, response);
  });
  const to = await listenLocally(server);
  try {
    const socket = connect(to, '127.0.0.1');
    socket.write(
      `POST /call HTTP/1.1\r\nHost: localhost\r\nAuthorization: ${AUTHORIZATION}\r\n` +
        'Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{"tool":',
    );
    const request = await received.promise;
    await waitUntil(() => request.readableDidRead && request.readableLength === 0);
    socket.destroy();
    await handling.promise;
    assert.deepEqual([lines, operations], [[], []]);
  } finally {
    server.close();
  }
});

test('HEAD of the log follows nothing', TIMEOUT, async () => {
  let followers = 0;
  const followLog = () => {
    followers++;
    return () => followers--;
  };
  const { app } = adminApp({ recentLog: () => ['{"n":1}\n'], followLog });
  const headers = { Authorization: AUTHORIZATION };
  const response = await app.request('/log?follow=true', { method: 'HEAD', headers });
  assert.deepEqual([response.status, await response.text(), followers], [200, '', 0]);
  const followed = await app.request('/log?follow=true', { headers });
  assert.equal(followers, 1);
  await followed.body?.cancel();
  assert.equal(followers, 0);
});

const unserved = [
  { method: 'GET', path: '/x/config/diff', status: 404, allow: null },
  { method: 'GET', path: '/upstreams/a/b/restart', status: 404, allow: null },
  { method: 'POST', path: '/config/diff', status: 405, allow: 'GET' },
  { method: 'GET', path: '/upstreams/a/restart', status: 405, allow: 'POST' },
  { method: 'POST', path: '/log-level', status: 405, allow: 'GET, PUT' },
  { method: 'POST', path: '/log', status: 405, allow: 'GET' },
];

for (const { method, path, status, allow } of unserved) {
  test(`${method} ${path} of the admin API is refused with ${status}`, TIMEOUT, async () => {
    const { app } = adminApp();
    const response = await app.request(path, { method, headers: { Authorization: AUTHORIZATION } });
    assert.deepEqual([response.status, response.headers.get('allow')], [status, allow]);
  });
}
