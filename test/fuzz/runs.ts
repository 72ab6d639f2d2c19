import type { Dice } from './dice.ts';
import type { Category } from './input.ts';
import { carried } from './messages.ts';
import { ID, LENGTH } from './raw-answers.ts';
import { callOf } from './upstream-bytes.ts';

const PIECES = [
  '\u0301',
  '\u0316',
  '\u0301\u0316',
  'ﾞ',
  'ﷺ',
  '\u202a',
  '\u2066',
  '\u2069',
  '\u202c',
  '\u200b',
  '?',
  '#',
  '/',
  '/..',
  '../',
  '@',
  ':',
  '%25',
  ' ',
  '\t',
  '\n',
  '[',
  '{',
  '}',
  '"',
  '\\',
  '0',
  '-',
  'A',
  'cc.',
  '<',
  '😀',
  '\ud800',
];
const SIZES = [1_000, 8_000, 40_000];

/** Returns a text of two long runs, on which a search that begins again at each character takes seconds. */
export function runText(dice: Dice, mostChars: number): string {
  const chars = Math.min(mostChars, dice.one(SIZES)) / 2;
  const run = () => {
    const piece = dice.one(PIECES);
    return piece.repeat(Math.floor(chars / piece.length));
  };
  return `${dice.one(['', 'a'])}${run()}${run()}${dice.one(['', '1', 'x'])}`;
}

/** A longer URI has no canonical form. */
const URI_CHARS = 7_000;
/** Longer arguments are cut in the audit log. */
const ARGUMENT_CHARS = 2_000;

function requestOf(dice: Dice, nonce: string): object {
  const run = runText(dice, Infinity);
  const argument = runText(dice, ARGUMENT_CHARS);
  const uri = `${dice.one(['leg', 'mod'])}+${dice.one(['file:///pub/', 'https://', 'file://'])}${runText(dice, URI_CHARS)}`;
  const call = { name: 'leg__echo', arguments: { nonce } };
  const [method, params] = dice.one<readonly [string, object]>([
    ['tools/call', { ...call, name: `leg__echo${run}` }],
    ['tools/call', { ...call, [run]: 1 }],
    ['tools/call', { ...call, [run.slice(0, 20)]: 1 }],
    ['tools/call', { ...call, arguments: { nonce, [argument]: 1 } }],
    ['tools/call', { ...call, arguments: { nonce, [run.slice(0, 1_000)]: 1 } }],
    ['tools/call', { ...call, arguments: { nonce, v: argument } }],
    ['tools/call', { ...call, _meta: { progressToken: run, traceparent: run, 'io.linkspan/idempotencyKey': run } }],
    ['resources/read', { uri }],
    ['resources/read', { uri }],
    ['resources/subscribe', { uri }],
    ['prompts/get', { name: `leg__greet${run}`, arguments: { [argument]: nonce } }],
    ['completion/complete', { ref: { type: 'ref/resource', uri }, argument: { name: run, value: run } }],
    ['tools/list', { cursor: run }],
    ['logging/setLevel', { level: run }],
    ['initialize', { protocolVersion: run, capabilities: { [run]: {} }, clientInfo: { name: run, version: run } }],
    [run, call],
  ]);
  return { jsonrpc: '2.0', id: dice.once(10) ? run : 7, method, params };
}

function answerOf(dice: Dice, nonce: string): Buffer {
  const run = runText(dice, Infinity);
  const answer = dice.one<object>([
    { result: { content: [{ type: 'text', text: `${nonce}${run}` }], structuredContent: { [run]: run } } },
    { result: { content: [{ type: 'resource_link', name: nonce, uri: run }], _meta: { [run]: run } } },
    { error: { code: -32_603, message: `${nonce}${run}`, data: { [run]: run } } },
  ]);
  const body = JSON.stringify({ jsonrpc: '2.0', id: 0, ...answer }).replace('"id":0', `"id":${ID}`);
  return Buffer.from(`HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: ${LENGTH}\r\n\r\n${body}`);
}

/** Long runs of one character in the texts of clients and upstreams. The oracle `delay` finds work that is quadratic in them. */
export const RUNS: Category = {
  name: 'runs',
  inputs: 300,
  make: (dice, nonce, target) =>
    dice.once(4)
      ? callOf(dice, nonce, target, 'web', answerOf(dice, nonce))
      : carried(dice, nonce, target, false, Buffer.from(JSON.stringify(requestOf(dice, nonce)))),
};
