import type { Dice } from './dice.ts';
import { type Category, shownBytes, type Target } from './input.ts';

const TARGETS = [
  '/mcp',
  '/mcp/',
  '//mcp',
  '/mcp?x=1',
  '/mcp#x',
  '/%6dcp',
  '/mcp/../mcp',
  '/MCP',
  '/mcp/leg',
  '*',
  '/mcp\\',
  '/mcp;x',
];
const METHODS = ['POST', 'post', 'GET', 'PUT', 'DELETE', 'OPTIONS', 'HEAD', 'TRACE', 'CONNECT', 'PRI', 'X', ''];
const VERSIONS = ['HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', 'HTTP/1.1 ', 'http/1.1', 'HTTP/0.9', ''];
const NEVER_SENT = [
  'content-length: 5',
  'content-length: 0',
  'content-length: +10',
  'content-length: 1e1',
  'content-length: -1',
];
const ODD = [
  'transfer-encoding: chunked',
  'transfer-encoding: identity',
  'transfer-encoding: chunked, chunked',
  'transfer-encoding: xchunked',
  'Transfer-Encoding : chunked',
  'transfer-encoding:\tchunked',
  ...NEVER_SENT,
  'host: evil.example',
  'host: 127.0.0.1, evil.example',
  'host:',
  'origin: http://evil.example',
  'origin: null',
  'content-type: text/plain',
  'content-type: application/json; charset=utf-16',
  'content-encoding: gzip',
  'accept: text/html',
  'expect: 100-continue',
  'expect: x',
  'upgrade: h2c',
  'connection: upgrade',
  'mcp-session-id: x',
  'mcp-session-id: ',
  'mcp-protocol-version: 1999-01-01',
  'last-event-id: x',
  'x: a\rb',
  'x: a\nb: c',
  ' folded: x',
  'x\u0000: y',
  'x y: z',
  ': empty',
  'no-colon',
  'x: \u0000',
  'x: é',
  'authorization: Bearer wrong',
  'authorization: Basic eDp5',
  'x-forwarded-for: 10.0.0.1',
  'x-http-method-override: DELETE',
  'trailer: authorization',
];

function chunked(dice: Dice, body: string): string {
  const size = body.length.toString(16);
  return dice.one([
    `${size}\r\n${body}\r\n0\r\n\r\n`,
    `${size};ext=1\r\n${body}\r\n0\r\nx: y\r\n\r\n`,
    `${size}\n${body}\n0\n\n`,
    `0x${size}\r\n${body}\r\n0\r\n\r\n`,
    `${size} \r\n${body}\r\n0\r\n\r\n`,
    `fffffffff\r\n${body}\r\n0\r\n\r\n`,
    `-1\r\n${body}\r\n0\r\n\r\n`,
  ]);
}

function wireOf(dice: Dice, { port, key, session }: Target, body: string): string {
  const method = dice.once(4) ? dice.one(METHODS) : 'POST';
  const path = dice.once(4) ? dice.one(TARGETS) : '/mcp';
  const version = dice.once(12) ? dice.one(VERSIONS) : 'HTTP/1.1';
  const lines = [
    `host: 127.0.0.1:${port}`,
    `authorization: Bearer ${key}`,
    'content-type: application/json',
    'accept: application/json, text/event-stream',
    `mcp-session-id: ${session}`,
    'mcp-protocol-version: 2025-11-25',
    'connection: close',
  ];
  const isChunked = dice.once(4);
  lines.push(isChunked ? 'transfer-encoding: chunked' : `content-length: ${body.length}`);
  for (let i = dice.below(3); i > 0; i--) lines.splice(dice.below(lines.length + 1), 0, dice.one(ODD));
  if (dice.once(8)) lines.splice(dice.below(lines.length), 1);
  if (dice.once(8)) lines.push(dice.one(lines));
  if (dice.once(20)) lines.push(`x: ${'y'.repeat(dice.one([8_000, 20_000, 70_000]))}`);
  if (dice.once(20)) lines.push(...Array.from({ length: 200 }, (_, i) => `x-${i}: y`));
  const end = dice.once(15) ? '\n' : '\r\n';
  const head = `${method} ${path} ${version}${end}${lines.join(end)}${end}${end}`;
  const wire = `${head}${isChunked ? chunked(dice, body) : body}`;
  return dice.once(15) ? wire.slice(0, dice.below(wire.length)) : wire;
}

/** Requests whose HTTP is wrong: heads that can be read in two ways, bodies of another length, methods, targets and sizes. */
export const HEADS: Category = {
  name: 'heads',
  inputs: 300,
  mayStall: true,
  make: (dice, nonce, target) => {
    const method = 'tools/call';
    const params = { name: 'leg__echo', arguments: { nonce } };
    const message = JSON.stringify({ jsonrpc: '2.0', id: 7, method, params });
    const wire = Buffer.from(wireOf(dice, target, message), 'latin1');
    return { nonce, shown: shownBytes(wire), wire, message: Buffer.from(message) };
  },
};
