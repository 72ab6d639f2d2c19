import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type IncomingMessage } from 'node:http';
import { connect } from 'node:net';
import { text } from 'node:stream/consumers';
import { test } from 'node:test';
import { readHeaders, readRawHeaders } from '../../../src/downstream/admission/headers.ts';

/** Sends this head to a server of Node. Returns the request as the server has parsed it. */
async function parseByNode(lines: readonly string[]): Promise<IncomingMessage> {
  const server = createServer((_incoming, outgoing) => outgoing.end());
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  try {
    const requested = once(server, 'request');
    const address = server.address();
    assert.ok(typeof address === 'object' && address !== null);
    const socket = connect(address.port, '127.0.0.1');
    socket.write(`${['GET / HTTP/1.1', ...lines, 'connection: close'].join('\r\n')}\r\n\r\n`);
    const [incoming] = await requested;
    await text(socket);
    return incoming;
  } finally {
    server.close();
  }
}

const USUAL = ['Host: gateway:3000', 'Content-Type: application/json', 'Accept: application/json, text/event-stream'];

const heads: Readonly<Record<string, readonly string[]>> = {
  'every header that is read': [
    ...USUAL,
    'ORIGIN: http://page',
    'sec-fetch-site: none',
    'content-encoding: identity',
    'content-length: 0',
    'mcp-session-id: abc',
    'MCP-Protocol-Version: 2025-11-25',
    'last-event-id: 7',
    'authorization: Bearer t',
  ],
  'none but the host': ['host: gateway'],
  'a repeated session id': [...USUAL, 'Mcp-Session-Id: a', 'mcp-session-id: b'],
  'a repeated authorization': [...USUAL, 'Authorization: Bearer a', 'Authorization: Bearer b'],
  'a repeated accept': [...USUAL, 'accept: text/html'],
  'a repeated origin': [...USUAL, 'origin: http://a', 'Origin: http://a'],
  'a repeated header of MCP': [...USUAL, 'Mcp-Name: a', 'mcp-name: b', 'Mcp-Param-X: a', 'Mcp-Param-X: b'],
  'another repeated header': [...USUAL, 'x-forwarded-for: a', 'x-forwarded-for: b'],
  'names that every object has': [...USUAL, '__proto__: a', 'constructor: b'],
};

for (const [has, lines] of Object.entries(heads)) {
  // SEC-15
  test(`a request with ${has} is read as from its raw headers`, async () => {
    const incoming = await parseByNode(lines);
    assert.deepEqual(readHeaders(incoming), readRawHeaders(incoming.rawHeaders));
  });
}

// SEC-15
test('a repeated header is read as several, or reported', async () => {
  const read = async (...lines: readonly string[]) => readHeaders(await parseByNode([...USUAL, ...lines]));
  const { authorization, repeated } = await read('Authorization: Bearer a', 'Authorization: Bearer b');
  assert.deepEqual([authorization, repeated], [['Bearer a', 'Bearer b'], undefined]);
  assert.equal((await read('Accept: text/html')).accept, 'application/json, text/event-stream,text/html');
  for (const name of ['origin', 'mcp-session-id', 'mcp-name', 'mcp-param-x']) {
    assert.equal((await read(`${name}: a`, `${name}: a`)).repeated, name);
  }
  assert.equal((await read('x-forwarded-for: a', 'x-forwarded-for: b')).repeated, undefined);
});
