import type { Dice } from './dice.ts';
import { type Category, type Input, postBytes, shownBytes, type Target } from './input.ts';

const MESSAGE = (nonce: string) =>
  Buffer.from(
    JSON.stringify({
      jsonrpc: '2.0',
      id: 7,
      method: 'tools/call',
      params: { name: 'leg__echo', arguments: { nonce } },
    }),
  );

const BASE64 = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_'.split('');

/** Changes a text of base64url characters, so that it decodes to other bytes. */
function changedText(dice: Dice, text: string): string {
  // The last characters of a part may have bits that decode to nothing.
  const at = dice.below(Math.max(1, text.length - 4));
  switch (dice.below(8)) {
    case 0:
      return text.slice(0, at);
    case 1:
      return `${text.slice(0, at)}${text.slice(at + 1)}`;
    case 2:
      return `${text}${dice.some(BASE64, 1 + dice.below(8))}`;
    case 3:
      return text.toUpperCase();
    case 4:
      return `${text}${text}`;
    case 5:
      return text.split('').toReversed().join('');
    case 6:
      return dice.some(BASE64, text.length);
    default: {
      const other = BASE64.filter((char) => char !== text[at]);
      return `${text.slice(0, at)}${dice.one(other)}${text.slice(at + 1)}`;
    }
  }
}

function withHeaders(nonce: string, target: Target, headers: readonly string[]): Input {
  const message = MESSAGE(nonce);
  const wire = postBytes(target, headers, message);
  return { nonce, shown: shownBytes(Buffer.from(headers.join(' | '))), wire, message, isForged: true };
}

/** Sealed values that the gateway has not issued: session ids, and `requestState`. */
export const SEALED: Category = {
  name: 'sealed values',
  inputs: 250,
  make: (dice, nonce, target) => {
    const forged = changedText(dice, target.session);
    if (dice.once(2)) {
      return withHeaders(nonce, target, [`mcp-session-id: ${forged}`, 'mcp-protocol-version: 2025-11-25']);
    }
    const state = JSON.stringify(dice.one([forged, target.session, '', 'x', '{}', 'null', '0'.repeat(5_000)]));
    const _meta =
      '{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"fuzz","version":"1"},' +
      '"io.modelcontextprotocol/clientCapabilities":{}}';
    const params = `{"name":"leg__echo","arguments":{"nonce":"${nonce}"},"requestState":${state},"inputResponses":{},"_meta":${_meta}}`;
    const message = Buffer.from(`{"jsonrpc":"2.0","id":7,"method":"tools/call","params":${params}}`);
    const headers = ['mcp-protocol-version: 2026-07-28', 'mcp-method: tools/call', 'mcp-name: leg__echo'];
    return { nonce, shown: shownBytes(message), wire: postBytes(target, headers, message), message, isForged: true };
  },
};

const HEADERS = [
  { alg: 'none' },
  { alg: 'None' },
  { alg: 'HS256' },
  { alg: 'RS256' },
  { alg: 'ES384' },
  { alg: '' },
  { alg: undefined },
  { kid: '../../etc/passwd' },
  { kid: 'two' },
  { kid: "' or 1=1" },
  { crit: ['exp'] },
  { crit: ['b64'], b64: false },
  { typ: 'JWS' },
  { jwk: { kty: 'oct', k: 'AAAA' }, kid: undefined, alg: 'HS256' },
  { jku: 'http://127.0.0.1:9/jwks', kid: 'evil' },
];
const HOUR_S = 3_600;
const now = () => Math.floor(Date.now() / 1_000);
const CLAIMS = [
  () => ({ exp: now() - HOUR_S }),
  () => ({ exp: undefined }),
  () => ({ exp: 'never' }),
  () => ({ exp: -1 }),
  () => ({ nbf: now() + HOUR_S }),
  () => ({ iss: 'https://issuer.example.com/' }),
  () => ({ iss: 'https://evil.example.com' }),
  () => ({ iss: ['https://issuer.example.com'] }),
  () => ({ iss: undefined }),
  () => ({ aud: 'https://gateway.example.com' }),
  () => ({ aud: [] }),
  () => ({ aud: undefined }),
  () => ({ aud: { toString: 'https://gateway.example.com/mcp' } }),
  () => ({ sub: undefined }),
  () => ({ sub: { a: 1 } }),
  () => ({ cnf: { jkt: 'x' } }),
];

/** Tokens that the issuer has not signed, or not for this gateway and this time. */
export const TOKENS: Category = {
  name: 'tokens',
  inputs: 200,
  make: (dice, nonce, target) => {
    const kind = dice.below(3);
    const token =
      kind === 0
        ? target.token(dice.one(HEADERS), {})
        : kind === 1
          ? target.token({}, dice.one(CLAIMS)())
          : changedToken(dice, target.token({}, {}));
    const headers = ['mcp-protocol-version: 2025-11-25', `mcp-session-id: ${target.session}`];
    return withHeaders(nonce, { ...target, key: token }, headers);
  },
};

function changedToken(dice: Dice, token: string): string {
  const parts = token.split('.');
  const at = dice.below(5);
  if (at >= parts.length) return dice.one([`${token}.`, `.${token}`, parts.slice(0, 2).join('.'), `${token}.x`, '..']);
  return parts.map((part, index) => (index === at ? changedText(dice, part) : part)).join('.');
}
