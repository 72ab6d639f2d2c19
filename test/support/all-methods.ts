import assert from 'node:assert/strict';
import { getEvents, initialize, messagesOf, post, rpc, send } from '../downstream/client.ts';
import { modernEvents, modernPost } from './modern-wire.ts';
import { type Members, membersOf } from './members.ts';

type Headers = Readonly<Record<string, string>>;

const NOTIFICATIONS: readonly (readonly [string, Members])[] = [
  ['notifications/cancelled', { requestId: 1 }],
  ['notifications/progress', { progressToken: 1, progress: 1 }],
  ['notifications/roots/list_changed', {}],
];

/** Sends the requests of a session, with all methods that a client can send. @returns the session id. */
export async function useAsSession(url: string, client: Headers): Promise<string> {
  const session = await initialize(url, '2025-11-25', client);
  await post(url, JSON.stringify({ jsonrpc: '2.0', method: 'notifications/initialized' }), session, client);
  const stream = await getEvents(url, session, client);
  const uri = 'demo://resource/static/document/architecture.md';
  const requests: readonly (readonly [string, Members])[] = [
    ['ping', {}],
    ['tools/list', {}],
    ['tools/call', { name: 'echo', arguments: { message: 'hi' } }],
    ['prompts/get', { name: 'simple-prompt' }],
    ['resources/read', { uri }],
    ['resources/subscribe', { uri }],
    ['resources/unsubscribe', { uri }],
    ['logging/setLevel', { level: 'error' }],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'E' } },
    ],
  ];
  for (const [at, [method, params]] of requests.entries()) {
    const got = await post(url, rpc(at + 1, method, params), session, client);
    assert.equal(membersOf(messagesOf(got).at(-1))['error'], undefined, `${method}: ${got.text}`);
  }
  // Their answers depend on the server.
  for (const method of ['tasks/list', 'tasks/get', 'tasks/cancel', 'roots/none'])
    await post(url, rpc(method, method, { taskId: 'none' }), session, client);
  for (const [method, params] of NOTIFICATIONS)
    await post(url, JSON.stringify({ jsonrpc: '2.0', method, params }), session, client);
  stream.close();
  await send(url, { method: 'DELETE', headers: { 'mcp-session-id': session, ...client } });
  return session;
}

/** Sends the requests of a client of 2026-07-28. */
export async function useAsModern(url: string, client: Headers): Promise<void> {
  const listen = await modernEvents(
    url,
    'subscriptions/listen',
    { notifications: { toolsListChanged: true } },
    { headers: client },
  );
  const requests: readonly (readonly [string, Members])[] = [
    ['server/discover', {}],
    ['tools/list', {}],
    ['tools/call', { name: 'echo', arguments: { message: 'hi' } }],
    ['prompts/get', { name: 'simple-prompt' }],
    ['resources/read', { uri: 'demo://resource/static/document/architecture.md' }],
    [
      'completion/complete',
      { ref: { type: 'ref/prompt', name: 'completable-prompt' }, argument: { name: 'department', value: 'E' } },
    ],
  ];
  for (const [method, params] of requests) {
    const got = await modernPost(url, method, params, { headers: client });
    assert.equal(membersOf(messagesOf(got).at(-1))['error'], undefined, `${method}: ${got.text}`);
  }
  listen.close();
}

/** The requests that an upstream gets from {@link useAsSession} and {@link useAsModern}, by transport. */
export const EXPECTED_REQUESTS = {
  legacy: [
    'POST initialize',
    'POST notifications/initialized',
    'POST tools/list',
    'POST tools/call',
    'POST prompts/get',
    'POST resources/read',
    'POST resources/subscribe',
    'POST resources/unsubscribe',
    'POST logging/setLevel',
    'POST completion/complete',
    'GET',
    'DELETE',
  ],
  modern: [
    'POST server/discover',
    'POST tools/list',
    'POST tools/call',
    'POST prompts/get',
    'POST resources/read',
    'POST completion/complete',
    'POST subscriptions/listen',
  ],
  sse: [
    'GET',
    'POST initialize',
    'POST tools/list',
    'POST tools/call',
    'POST resources/read',
    'POST completion/complete',
  ],
} as const;

/** The settings of an upstream for a transport. */
export const TRANSPORTS = {
  legacy: { era: 'legacy' },
  modern: { era: 'modern' },
  sse: { type: 'sse' },
} as const satisfies Record<keyof typeof EXPECTED_REQUESTS, Members>;
