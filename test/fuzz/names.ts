import type { Dice } from './dice.ts';
import { carried } from './messages.ts';
import type { Category } from './input.ts';

const SCHEMES = [
  'file://',
  'leg+file://',
  'mod+file://',
  'FILE://',
  'file:',
  'file:\\\\',
  'leg+FILE://',
  'http://',
  'leg+',
  'nope+file://',
  '',
];
const HOSTS = ['', '', '', 'localhost', 'x', '127.0.0.1', 'user@', ':80'];
const STEPS = [
  '/pub',
  '/secret',
  '/Secret',
  '/..',
  '/.',
  '//',
  '/%2e%2e',
  '/%252e%252e',
  '\\..',
  '/s%65cret',
  '%2fsecret',
  '/..%2fsecret',
  '/..;/secret',
  '/pub/../secret',
  '/\u0000',
  '/\ud800',
  '/é',
  '/{path}',
  '/a b',
  '?../secret',
  '#/../secret',
  '/ｓecret',
];
const TYPES = [
  'resources/read',
  'resources/read',
  'resources/read',
  'prompts/get',
  'completion/complete',
  'tools/call',
];

function paramsOf(dice: Dice, method: string, nonce: string): object {
  const start = dice.once(2) ? dice.one(['leg+file://', 'mod+file://']) : `${dice.one(SCHEMES)}${dice.one(HOSTS)}`;
  const uri = `${start}${dice.once(2) ? '/pub' : ''}${dice.some(STEPS, 1 + dice.below(4))}${dice.once(2) ? `/${nonce}` : ''}`;
  const name = `${dice.one(['leg__', 'mod__', '__', 'Leg__', 'leg_'])}${dice.one(['greet', 'echo', 'hidden', 'Hidden', '', 'greet ', 'x'.repeat(100)])}`;
  switch (method) {
    case 'resources/read':
      return { uri };
    case 'completion/complete': {
      const ref = dice.once(2) ? { type: 'ref/resource', uri } : { type: 'ref/prompt', name };
      return { ref, argument: { name: 'path', value: nonce } };
    }
    default:
      return { name, arguments: { nonce } };
  }
}

/** Requests with URIs and names that can be read in several ways. */
export const NAMED: Category = {
  name: 'names',
  inputs: 400,
  make: (dice, nonce, target) => {
    const isModern = dice.once(2);
    const method = dice.one(TYPES);
    const _meta = {
      'io.modelcontextprotocol/protocolVersion': '2026-07-28',
      'io.modelcontextprotocol/clientInfo': { name: 'fuzz', version: '1' },
      'io.modelcontextprotocol/clientCapabilities': {},
    };
    const params = { ...paramsOf(dice, method, nonce), ...(isModern ? { _meta } : {}) };
    return carried(
      dice,
      nonce,
      target,
      isModern,
      Buffer.from(JSON.stringify({ jsonrpc: '2.0', id: 7, method, params })),
    );
  },
};
