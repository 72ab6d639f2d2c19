import type { Dice } from './dice.ts';
import { type Category, type Input, postBytes, shownBytes, type Target } from './input.ts';
import { ID, LENGTH, SIZE } from './raw-answers.ts';

const NUL = '\u0000';

/** Returns a response of an upstream, which may be none. `@ID@` stands for the id. */
function responseOf(dice: Dice, nonce: string): string {
  const content = `{"content":[{"type":"text","text":"${nonce}${dice.one(['', 'é😀', '\\u0000', '\\ud800', '\r'])}"}]}`;
  const right = `{"jsonrpc":"2.0","id":${ID},"result":${content}}`;
  if (dice.once(2)) return right;
  return dice.one([
    `{"jsonrpc":"2.0","id":${ID},"result":${content},"result":{}}`,
    `{"jsonrpc":"2.0","id":${ID},"id":1,"result":${content}}`,
    `{"jsonrpc":"2.0","id":999999,"result":${content}}`,
    `{"jsonrpc":"2.0","id":"${ID}","result":${content}}`,
    `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"no"}}`,
    `{"jsonrpc":"2.0","id":${ID},"error":{"code":"x"}}`,
    `{"jsonrpc":"2.0","id":${ID},"error":{"code":1e99,"message":1}}`,
    `{"jsonrpc":"2.0","id":${ID},"result":null}`,
    `{"jsonrpc":"2.0","id":${ID},"result":[]}`,
    `{"jsonrpc":"2.0","id":${ID}}`,
    `{"jsonrpc":"1.0","id":${ID},"result":${content}}`,
    `{"jsonrpc":"2.0","id":${ID},"result":{"content":${'['.repeat(70)}${']'.repeat(70)}}}`,
    `{"jsonrpc":"2.0","id":${ID},"result":{"__proto__":{"a":1},"content":[]}}`,
    `[${right}]`,
    `${right}${right}`,
    right.slice(0, dice.below(right.length)),
    '<html>502</html>',
    '',
    'null',
    `\ufeff${right}`,
    right.replaceAll(',', ',\n'),
  ]);
}

/** Returns a call whose upstream answers with bytes, cut anywhere, also inside a character. */
export function callOf(dice: Dice, nonce: string, target: Target, upstream: string, bytes: Buffer): Input {
  const cuts = Array.from({ length: dice.below(6) }, () => dice.below(1_000));
  const params = { name: `${upstream}__echo`, arguments: { nonce, bytes: bytes.toString('base64'), cuts } };
  const message = Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 7, method: 'tools/call', params }));
  const headers = [`mcp-session-id: ${target.session}`, 'mcp-protocol-version: 2025-11-25'];
  const shown = `${upstream} answers ${shownBytes(bytes)}`;
  return { nonce, shown, wire: postBytes(target, headers, message), message };
}

const EOLS = ['\n', '\r\n', '\r'];

function eventOf(dice: Dice, data: string): string {
  const eol = dice.one(EOLS);
  const lines = [
    ...(dice.once(3)
      ? [
          dice.one([
            ': comment',
            'id: 1',
            `id: ${NUL}`,
            'retry: 1',
            'retry: x',
            'event: other',
            'event: message',
            'x',
            ':',
          ]),
        ]
      : []),
    ...data.split('\n').map((line) => `${dice.one(['data: ', 'data:', 'data:  '])}${line}`),
  ];
  return `${lines.join(eol)}${eol}${eol}`;
}

function httpResponse(dice: Dice, nonce: string): string {
  const isEvents = dice.once(2);
  const text = responseOf(dice, nonce);
  let body = text;
  if (isEvents) {
    const other = '{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":"x"}}';
    body = `${dice.once(4) ? '\ufeff' : ''}${dice.once(3) ? eventOf(dice, other) : ''}${eventOf(dice, text)}`;
    if (dice.once(4)) body += eventOf(dice, text);
    if (dice.once(8)) body = body.trimEnd();
  }
  const type = isEvents ? 'text/event-stream' : 'application/json';
  const status = dice.once(6)
    ? dice.one([
        '200',
        '201 Created',
        '204 No Content',
        '500 Oops',
        '301 Moved',
        '100 Continue',
        '099 Odd',
        '401 Unauthorized',
        '999 x',
      ])
    : '200 OK';
  const head = [
    `HTTP/1.1 ${status}`,
    `content-type: ${dice.once(8) ? dice.one(['text/html', 'application/jsonx', '', 'application/json; charset=utf-16']) : type}`,
    ...(dice.once(6)
      ? [dice.one(['x: y', 'x:', 'content-length: 3', 'transfer-encoding: chunked', 'x', 'set-cookie: a', `x: ${NUL}`])]
      : []),
  ];
  if (dice.once(3)) {
    const chunks = dice.once(5) ? 'zz\r\n' : `${SIZE}\r\n${body}\r\n0\r\n\r\n`;
    return `${[...head, 'transfer-encoding: chunked'].join('\r\n')}\r\n\r\n${chunks}`;
  }
  const length = dice.once(10) ? dice.one(['1', '100000', '-1', '1e20', `${LENGTH}0`]) : LENGTH;
  const lengthLine = dice.once(4) ? 'connection: close' : `content-length: ${length}`;
  return `${[...head, lengthLine].join('\r\n')}\r\n\r\n${body}`;
}

/** Responses of an upstream over HTTP: heads, lengths, chunks, events and messages that are wrong or cut anywhere. */
export const UPSTREAM_HTTP: Category = {
  name: 'upstream http',
  inputs: 300,
  make: (dice, nonce, target) => callOf(dice, nonce, target, 'web', Buffer.from(httpResponse(dice, nonce))),
};

/**
 * Output of an upstream over stdio: lines cut anywhere, several in one write, and lines that are no messages. The last line answers, so that
 * no input waits for a timeout.
 */
export const UPSTREAM_STDIO: Category = {
  name: 'upstream stdio',
  inputs: 200,
  make: (dice, nonce, target) => {
    const right = `{"jsonrpc":"2.0","id":${ID},"result":{"content":[{"type":"text","text":"${nonce}é😀"}]}}`;
    const junk = [
      'log line',
      '',
      ' ',
      NUL,
      '{',
      '[]',
      'null',
      '\ufeff',
      '{"jsonrpc":"2.0"}',
      right.slice(0, 20),
      'é'.repeat(100),
    ];
    const before = Array.from({ length: dice.below(4) }, () => `${dice.one(junk)}${dice.one(['\n', '\r\n'])}`).join('');
    const text = dice.once(4) ? responseOf(dice, nonce).replaceAll('\n', ' ') : right;
    const bytes = Buffer.from(`${before}${text}\n${right}\n`);
    const broken = dice.once(6) ? Buffer.concat([Buffer.from([0xff, 0xc0, 0x0a]), bytes]) : bytes;
    return callOf(dice, nonce, target, 'pipe', broken);
  },
};
