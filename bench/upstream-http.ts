/**
 * The upstream of the HTTP scenarios: Streamable HTTP of the given revision on raw sockets, so that it is never the
 * bottleneck. `GET /counts` returns the number of connections and sessions. The tool `sse` is answered with one
 * event, `progress` with two, everything else with JSON.
 */
import { createServer, type Socket } from 'node:net';
import { type Answer, answerTo } from './answers.ts';
import { HttpMessages } from './http-messages.ts';
import { serve } from './loopback.ts';

/** Up to this size, one copy is cheaper than a write of two parts. */
const COPIED_BYTES = 16_384;

const SESSION = /\r\nmcp-session-id: *\S/i;

const speaks = process.argv[2] === '2026-07-28' ? '2026-07-28' : '2025-11-25';

let sessions = 0;
let connections = 0;
let open = 0;

function send(socket: Socket, head: string, tail: Buffer): void {
  if (tail.length <= COPIED_BYTES) {
    const whole = Buffer.allocUnsafe(head.length + tail.length);
    whole.write(head, 'latin1');
    tail.copy(whole, head.length);
    socket.write(whole);
    return;
  }
  socket.cork();
  socket.write(head, 'latin1');
  socket.write(tail);
  socket.uncork();
}

function sendStatus(socket: Socket, status: string): void {
  socket.write(`HTTP/1.1 ${status}\r\ncontent-length: 0\r\n\r\n`, 'latin1');
}

function sendAnswer(socket: Socket, answer: Answer): void {
  const { head, tail } = answer;
  if (answer.asEvent === true) {
    const before = answer.before === undefined ? '' : `event: message\ndata: ${answer.before}\n\n`;
    const event = `${before}event: message\ndata: ${head}${tail.toString()}\n\n`;
    const headers = 'content-type: text/event-stream\r\ncache-control: no-cache\r\ntransfer-encoding: chunked';
    const chunk = `${Buffer.byteLength(event).toString(16)}\r\n${event}\r\n0\r\n\r\n`;
    socket.write(`HTTP/1.1 200 OK\r\n${headers}\r\n\r\n${chunk}`);
    return;
  }
  const session = answer.opens === true ? `\r\nmcp-session-id: bench-${++sessions}` : '';
  const length = Buffer.byteLength(head) + tail.length;
  send(
    socket,
    `HTTP/1.1 200 OK\r\ncontent-type: application/json${session}\r\ncontent-length: ${length}\r\n\r\n${head}`,
    tail,
  );
}

function take(socket: Socket, head: string, body: Buffer): void {
  if (head.startsWith('GET /counts ')) {
    const counts = JSON.stringify({ connections, open, initializes: sessions });
    socket.write(`HTTP/1.1 200 OK\r\ncontent-length: ${counts.length}\r\n\r\n${counts}`, 'latin1');
    return;
  }
  if (!head.startsWith('POST ')) {
    sendStatus(socket, head.startsWith('DELETE ') ? '200 OK' : '405 Method Not Allowed');
    return;
  }
  let answer;
  try {
    answer = answerTo(body.toString(), speaks);
  } catch {
    sendStatus(socket, '400 Bad Request');
    return;
  }
  if (speaks === '2025-11-25' && answer?.opens !== true && !SESSION.test(head)) sendStatus(socket, '400 Bad Request');
  else if (answer === undefined) sendStatus(socket, '202 Accepted');
  else sendAnswer(socket, answer);
}

const server = createServer({ noDelay: true }, (socket) => {
  connections++;
  open++;
  socket.on('close', () => open--);
  const messages = new HttpMessages((head, body) => take(socket, head, body));
  socket.on('data', (chunk: Buffer) => messages.push(chunk));
  // The other side may be killed during a write.
  socket.on('error', () => socket.destroy());
});
await serve(server);
