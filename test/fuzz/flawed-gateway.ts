/**
 * A small gateway with one defect, for the test of the oracles: `node test/fuzz/flawed-gateway.ts FLAW UPSTREAM_URL AUDIT_FILE`. It forwards
 * `tools/call` of the session `good`, refuses arguments with `deny: true`, and records calls. The last line of its output is its port.
 */
import { appendFileSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { membersOf } from './spy.ts';

const BUSY_MS = 150; // subject
const LEAKED_NUMBERS = 60_000;

const [flaw = '', upstream = '', auditFile = ''] = process.argv.slice(2);
const leaked: number[][] = [];
let lastNonce = '';

async function bodyOf(request: IncomingMessage): Promise<string> {
  let body = '';
  request.setEncoding('utf8');
  for await (const chunk of request) body += String(chunk);
  return body;
}

function misbehave(isMarked: boolean): void {
  if (flaw === 'alive' && isMarked) process.exit(3);
  if (flaw === 'rejections') void Promise.reject(new Error('nobody handles it'));
  if (flaw === 'memory') leaked.push(Array.from({ length: LEAKED_NUMBERS }, (_, i) => i + 0.5));
  if (flaw !== 'delay' || !isMarked) return;
  const before = process.threadCpuUsage();
  const usedMs = () => {
    const { user, system } = process.threadCpuUsage(before);
    return (user + system) / 1_000;
  };
  while (usedMs() < BUSY_MS);
}

async function forward(id: unknown, args: object): Promise<object> {
  const params = { name: 'echo', arguments: flaw === 'operation' ? { ...args, more: 1 } : args };
  const message = { jsonrpc: '2.0', id: 99, method: 'tools/call', params };
  const response = await fetch(upstream, { method: 'POST', body: JSON.stringify(message) });
  return { jsonrpc: '2.0', id, result: membersOf(await response.json())['result'] };
}

async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { id: sentId, params } = membersOf(JSON.parse(await bodyOf(request)));
  const args = membersOf(membersOf(params)['arguments']);
  const nonce = String(args['nonce']);
  const isMark = nonce.startsWith('mark');
  if (!isMark) misbehave(args['marked'] === true);
  const id = flaw === 'id' && !isMark ? 8 : sentId;
  const repeated = flaw === 'header' ? { 'x-base': String(request.headers['x-forwarded-host']) } : {};
  const send = (status: number, value: object) =>
    response.writeHead(status, { 'content-type': 'application/json', ...repeated }).end(JSON.stringify(value));
  const refuse = (status: number) => {
    const error = { code: -32001, message: 'refused', data: { executed: 'no' } };
    send(status, { jsonrpc: '2.0', id, error });
  };
  if (flaw === 'silent' && !isMark) return;
  if (request.headers['mcp-session-id'] !== 'good' && flaw !== 'forged') return refuse(404);
  if (args['deny'] === true && flaw !== 'denied') {
    if (flaw === 'rejected') await forward(id, { ...args, deny: undefined });
    return refuse(200);
  }
  const recorded = flaw === 'audit' && !isMark ? { ...args, marked: 'other' } : args;
  const record = { kind: 'request', method: 'tools/call', decision: 'allowed', upstream: 'leg', upstreamName: 'echo' };
  appendFileSync(auditFile, `${JSON.stringify({ ...record, arguments: recorded })}\n`);
  const result = flaw === 'answered' ? { jsonrpc: '2.0', id, result: { content: [] } } : await forward(id, args);
  const answered = flaw === 'foreign' ? { ...result, other: lastNonce } : result;
  if (!isMark) lastNonce = nonce;
  if (flaw === 'framing' && !isMark) {
    response.writeHead(200, { 'content-type': 'application/json', 'content-length': 10_000 });
    response.write('{', () => response.destroy());
    return;
  }
  send(flaw === 'status' && !isMark ? 500 : 200, answered);
}

const server = createServer((request, response) => {
  answer(request, response).catch(() => response.destroy());
});
server.listen(0, '127.0.0.1', () => {
  const address = server.address();
  console.log(`port ${address === null || typeof address === 'string' ? 0 : address.port}`);
});
