import type { Dice } from './dice.ts';
import { type Category, type Input, postBytes, shownBytes, type Target } from './input.ts';
import { membersOf, parsed } from './spy.ts';

/** A member of an object, as texts, so that both can be wrong. */
type Member = readonly [name: string, value: string];

const ENVELOPE =
  '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"fuzz","version":"1"},' +
  '"io.modelcontextprotocol/clientCapabilities":{}}';

const IDS = [
  '1',
  '"a"',
  '0',
  '-1',
  '1.5',
  '1e3',
  '1e400',
  '-0',
  '9007199254740993',
  '12345678901234567890',
  'null',
  'true',
  '[]',
  '{}',
  '""',
  '"\\u0000"',
  '"\\ud800"',
  '"é😀"',
  `"${'x'.repeat(2_000)}"`,
];
const METHODS = [
  'tools/call',
  'tools/call ',
  'Tools/Call',
  'tools\\/call',
  'tools/c\\u0061ll',
  'tools/list',
  'resources/read',
  'prompts/get',
  'completion/complete',
  'ping',
  'notifications/initialized',
  'notifications/cancelled',
  'initialize',
  'server/discover',
  'rpc.discover',
  '__proto__',
  '',
  'x'.repeat(500),
];
const NAMES = [
  'leg__echo',
  'mod__echo',
  'leg__hidden',
  'mod__hidden',
  'leg__Hidden',
  'leg__echo ',
  'leg__echo\\u0000',
  'leg__ech\\u006f',
  'LEG__ECHO',
  'echo',
  '__proto__',
  'constructor',
  'leg__',
  '__echo',
  'leg__echo__echo',
  '../leg__echo',
  'leg__\\uff45cho',
];
const VALUES = [
  'null',
  'true',
  '0',
  '-0',
  '1e999',
  '12345678901234567890.123',
  '"\\ud83d"',
  '"\\u0000\\u001f"',
  '[]',
  '{}',
  '[[[[]]]]',
  '{"a":{"a":1,"b":[1,2,{"c":null}]}}',
  '{"__proto__":{"deny":false}}',
  '{"constructor":{"prototype":{"x":1}}}',
  '"</script><!--"',
  '"\\u2028\\u2029"',
  '1E+2',
];
/** Names of members that a reader may take for `deny`, which the access policy reads. */
const DENY = ['deny', 'Deny', 'DENY', 'd\\u0065ny', 'deny ', 'deny\\u0000', '\\uff44eny', 'DENY', 'deny.', 'denı'];

function objectText(members: readonly Member[]): string {
  return `{${members.map(([name, value]) => `"${name}":${value}`).join(',')}}`;
}

/** Returns the members in an order and with changes that dice choose. */
function changed(dice: Dice, members: readonly Member[]): readonly Member[] {
  const list = [...members];
  const at = dice.below(list.length);
  const [name, value] = list[at] ?? ['', ''];
  switch (dice.below(10)) {
    case 0:
      list.splice(at, 1);
      break;
    case 1:
      list.push([name, value]);
      break;
    case 2:
      list.push([name, dice.one(VALUES)]);
      break;
    case 3:
      list.unshift([name, dice.one(VALUES)]);
      break;
    case 4:
      list[at] = [name, dice.one(VALUES)];
      break;
    case 5:
      list[at] = [name.toUpperCase(), value];
      break;
    case 6:
      list.push([name.replace(/^./, (first) => first.toUpperCase()), dice.one(VALUES)]);
      break;
    case 7:
      list[at] = [name.replace(/^./, (first) => `\\u${first.charCodeAt(0).toString(16).padStart(4, '0')}`), value];
      break;
    case 8:
      list.push([dice.one(['__proto__', 'constructor', 'toString', '', 'a b', '\\ud800']), dice.one(VALUES)]);
      break;
    default:
      list.reverse();
  }
  return list;
}

/** Changes the text of a whole message. */
function brokenText(dice: Dice, text: string): string {
  const at = dice.below(text.length);
  switch (dice.below(16)) {
    case 0:
      return text.slice(0, at);
    case 1:
      return `${text.slice(0, at)}${dice.one(['\u0000', '\u001f', '\u00a0', '\f', '\ufeff', '\\', '"', '}', ']', ',', ':', '//'])}${text.slice(at)}`;
    case 2:
      return `\ufeff${text}`;
    case 3:
      return `${text}${dice.one([' ', '\n', '\u00a0', 'x', '{}', text])}`;
    case 4:
      return `[${text}]`;
    case 5:
      return `[${text},${text}]`;
    case 6:
      return '[]';
    case 7:
      return text.replaceAll('"', "'");
    case 8:
      return text.replace('}', ',}');
    case 9:
      return text.replace('{', '{/* c */');
    case 10:
      return `${'['.repeat(10_000)}${']'.repeat(10_000)}`;
    case 11:
      return dice.one(['', ' ', 'null', '1', '"a"', 'true', 'NaN', 'undefined', '{']);
    case 12:
      return text.replaceAll(':', ' : ').replaceAll(',', '\r\n,\t');
    case 13:
      return text.replace('{', `{"x":${'['.repeat(70)}${']'.repeat(70)},`);
    case 14:
      return text.replace('{', `{"x":"${'y'.repeat(100_000)}",`);
    default:
      return text.replace('{', `{"x":{${Array.from({ length: 2_000 }, (_, i) => `"m${i}":1`).join(',')}},`);
  }
}

/** Changes bytes, so that the text may not be UTF-8 any more. */
function brokenBytes(dice: Dice, bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes);
  const at = dice.below(Math.max(1, copy.length));
  const wrong = dice.one([
    Buffer.from([0xff]),
    Buffer.from([0xc0, 0x80]),
    Buffer.from([0xed, 0xa0, 0x80]),
    Buffer.from([0xf8]),
    Buffer.from([0xe2, 0x82]),
  ]);
  if (dice.once(2) && copy.length > 0) {
    copy[at] = dice.below(256);
    return copy;
  }
  return Buffer.concat([copy.subarray(0, at), wrong, copy.subarray(at)]);
}

function argumentsText(dice: Dice, nonce: string): string {
  let members: readonly Member[] = [['nonce', `"${nonce}"`]];
  if (dice.once(3)) members = [...members, [dice.one(DENY), dice.one(['true', 'false', '"true"', '1', 'null'])]];
  if (dice.once(6)) members = [...members, [dice.one(DENY), 'true']];
  if (dice.once(4)) members = [...members, ['v', dice.one(VALUES)]];
  if (dice.once(6)) members = changed(dice, members);
  return objectText(members);
}

function messageOf(dice: Dice, nonce: string, isModern: boolean): Buffer {
  let params: readonly Member[] = [
    ['name', `"${dice.once(3) ? dice.one(NAMES) : dice.one(['leg__echo', 'mod__echo'])}"`],
    ['arguments', argumentsText(dice, nonce)],
    ...(isModern ? [['_meta', ENVELOPE] as const] : []),
  ];
  if (dice.once(4)) params = changed(dice, params);
  let members: readonly Member[] = [
    ['jsonrpc', dice.once(20) ? dice.one(['"1.0"', '2.0', 'null', '"2.0 "']) : '"2.0"'],
    ['id', dice.once(3) ? dice.one(IDS) : '7'],
    ['method', `"${dice.once(5) ? dice.one(METHODS) : 'tools/call'}"`],
    ['params', dice.once(25) ? dice.one(VALUES) : objectText(params)],
  ];
  if (dice.once(5)) members = changed(dice, members);
  let text = objectText(members);
  if (dice.once(6)) text = brokenText(dice, text);
  const bytes = Buffer.from(text);
  return dice.once(12) ? brokenBytes(dice, bytes) : bytes;
}

/** Returns the headers that repeat a modern message, as a client that reads it with `JSON.parse` writes them. */
function modernHeaders(dice: Dice, message: Buffer): readonly string[] {
  const read = membersOf(parsed(message.toString('utf8')));
  const params = membersOf(read['params']);
  const text = (value: unknown) => (typeof value === 'string' && /^[\x20-\x7e]*$/.test(value) ? value : 'x');
  const method = dice.once(25) ? dice.one(['tools/list', 'TOOLS/CALL', '']) : text(read['method']);
  const name = dice.once(25) ? dice.one(['leg__other', 'leg__echo', '']) : text(params['name'] ?? params['uri'] ?? '');
  const version = dice.once(25) ? dice.one(['2025-11-25', '2026-07-29', '', 'x']) : '2026-07-28';
  return [`mcp-protocol-version: ${version}`, `mcp-method: ${method}`, `mcp-name: ${name}`];
}

/** Returns the input that carries a message of one era. */
export function carried(dice: Dice, nonce: string, target: Target, isModern: boolean, message: Buffer): Input {
  const headers = isModern
    ? modernHeaders(dice, message)
    : [`mcp-session-id: ${target.session}`, 'mcp-protocol-version: 2025-11-25'];
  const shown = `${isModern ? 'modern' : 'legacy'} ${shownBytes(message)}`;
  return { nonce, shown, wire: postBytes(target, headers, message), message };
}

/** JSON-RPC messages with wrong members, names, ids, types, encodings and spellings. */
export const MESSAGES: Category = {
  name: 'messages',
  inputs: 900,
  make: (dice, nonce, target) => {
    const isModern = dice.once(2);
    return carried(dice, nonce, target, isModern, messageOf(dice, nonce, isModern));
  },
};
