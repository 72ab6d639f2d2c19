import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, IncomingMessage } from 'node:http';
import { connect, Socket } from 'node:net';
import { test } from 'node:test';
import { readHeaders } from '../../../src/downstream/admission/headers.ts';
import { HeaderReusingRequest } from '../../../src/downstream/http/header-reusing-request.ts';
import { KnownHeaders } from '../../../src/downstream/http/known-headers.ts';

const PLAIN = ['Host: here', 'Accept: application/json, text/event-stream', 'Content-Type: application/json'];

const TIMEOUT = { timeout: 10_000 };

function request(lines: readonly string[], body = ''): string {
  return `POST /mcp HTTP/1.1\r\n${[...lines, `Content-Length: ${body.length}`].join('\r\n')}\r\n\r\n${body}`;
}

interface Seen {
  readonly isKnown: boolean;
  readonly headers: object;
  readonly isPlain: boolean;
  /** The headers that Node itself makes of the same request. */
  readonly expected: object;
}

/** Sends requests over one connection. Returns what the server received, and the status of each answer. */
async function converse(requests: readonly string[]): Promise<{ seen: readonly Seen[]; statuses: readonly number[] }> {
  const seen: Seen[] = [];
  const server = createServer({ IncomingMessage: HeaderReusingRequest }, (incoming, outgoing) => {
    const isKnown = incoming.head !== undefined;
    seen.push({
      isKnown,
      headers: { ...incoming.headers },
      isPlain: Object.getPrototypeOf(incoming.headers) === Object.prototype,
      expected: { ...Reflect.get(IncomingMessage.prototype, 'headers', incoming) },
    });
    if (!isKnown) incoming.head = KnownHeaders.of(incoming, readHeaders(incoming.rawHeaders));
    incoming.headers['put-there'] = 'by a handler';
    incoming.resume();
    outgoing.end('.');
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const address = server.address();
  assert.ok(typeof address === 'object' && address !== null);
  const socket = connect(address.port, '127.0.0.1');
  let text = '';
  const statuses = () => [...text.matchAll(/^HTTP\/1\.1 (\d{3})/gm)].map(([, status]) => Number(status));
  let answered = (): void => undefined;
  socket.setEncoding('latin1').on('data', (chunk: string) => {
    text += chunk;
    if (statuses().some((status) => status >= 200)) answered();
  });
  const all: number[] = [];
  for (const one of requests) {
    const { promise, resolve } = Promise.withResolvers<void>();
    answered = resolve;
    socket.write(one);
    await promise;
    all.push(...statuses());
    text = '';
  }
  socket.destroy();
  server.closeAllConnections();
  server.close();
  await once(server, 'close');
  return { seen, statuses: all };
}

test('a request similar to the previous one has the headers that Node would give', TIMEOUT, async () => {
  const modern = [...PLAIN, 'MCP-Protocol-Version: 2026-07-28', 'Mcp-Method: tools/call', 'Mcp-Name: one'];
  const other = [...modern.slice(0, -2), 'Mcp-Method: prompts/get', 'Mcp-Name: two'];
  const { seen } = await converse([
    request(modern),
    request(modern),
    request(other, '{"a":1}'),
    request([...modern, 'Mcp-Param-City: Oostende']),
    request([...modern, 'Mcp-Param-City: Gent']),
    request([...modern, 'Mcp-Param-City: Gent', 'Mcp-Param-City: Brugge']),
    request([...modern, 'X-Trace: 1', 'X-Trace: 2']),
    request([...modern, 'X-Trace: 1', 'X-Trace: 2']),
    request([...modern, 'X-Trace: 1', 'X-Trace: 3']),
  ]);
  assert.deepEqual(
    seen.map(({ isKnown }) => isKnown),
    [false, true, true, false, true, false, false, true, false],
  );
  for (const { headers, isPlain, expected } of seen) {
    assert.deepEqual(headers, expected);
    assert.ok(isPlain);
  }
});

test('changes to the headers of one request do not affect the next', TIMEOUT, async () => {
  const { seen } = await converse([request(PLAIN), request(PLAIN), request(PLAIN)]);
  assert.deepEqual(
    seen.map(({ isKnown }) => isKnown),
    [false, true, true],
  );
  for (const { headers } of seen) assert.ok(!Object.hasOwn(headers, 'put-there'));
});

test('Node still checks Host and Expect of each request', TIMEOUT, async () => {
  const { seen, statuses } = await converse([
    request(PLAIN),
    request([...PLAIN, 'Expect: 100-continue']),
    request([...PLAIN, 'Expect: 100-continue']),
    request([...PLAIN, 'Expect: the best']),
    request(PLAIN.slice(1)),
  ]);
  assert.deepEqual(statuses, [200, 100, 200, 100, 200, 417, 400]);
  assert.equal(seen.length, 3);
});

test('headers can be replaced, as in any IncomingMessage', () => {
  const incoming = new HeaderReusingRequest(new Socket());
  incoming.headers = { host: 'elsewhere' };
  assert.deepEqual(incoming.headers, { host: 'elsewhere' });
});
