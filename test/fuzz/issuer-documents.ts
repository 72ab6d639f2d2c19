import type { Dice } from './dice.ts';
import { ECHO } from './issuer-carriers.ts';

/** A member of a JSON object: its name, and its value as JSON text. A list of them can have equal names. */
type Member = readonly [name: string, text: string];

/** A JSON document of an issuer. */
export interface IssuerDocument {
  readonly text: string;
  /** True if a client has to understand it. */
  readonly isRight: boolean;
}

const json = (value: unknown) => JSON.stringify(value);
const deep = (levels: number) => `${'['.repeat(levels)}${']'.repeat(levels)}`;

function objectText(members: readonly Member[]): string {
  return `{${members.map(([name, text]) => `${json(name)}:${text}`).join()}}`;
}

const ODD = [
  'null',
  'true',
  '0',
  '-1',
  '1e400',
  '""',
  '"x"',
  '[]',
  '{}',
  '{"toString":"x","valueOf":1}',
  '"a\\r\\nx-injected: 1"',
  '"a b\\u0000"',
  '"\\ud800é😀"',
  deep(100),
  deep(50_000),
  json('x'.repeat(100_000)),
  json('x'.repeat(300_000)),
];

/** Returns members with something wrong. @param odd further values of them. */
function mutated(dice: Dice, members: readonly Member[], odd: readonly string[]): string {
  const changed = [...members];
  const at = dice.below(changed.length);
  const [name, text] = changed[at] ?? ['x', '1'];
  const value = dice.one([...ODD, ...odd, ...odd]);
  switch (dice.below(10)) {
    case 0:
      changed.splice(at, 1);
      break;
    case 1:
      changed.push([name, value]);
      break;
    case 2:
      changed.unshift([name, value]);
      break;
    case 3:
      changed.push([dice.one(['__proto__', 'constructor', 'toString']), `{"polluted":true,${json(name)}:${value}}`]);
      break;
    case 4:
      changed[at] = [name.toUpperCase(), text];
      break;
    case 5:
      changed.push([
        dice.one(['more', 'act', 'error']),
        dice.one([deep(100_000), json('x'.repeat(250_000)), `{"a":${deep(20_000)}}`]),
      ]);
      break;
    case 6:
      return dice.one([`[${objectText(members)}]`, `\ufeff${objectText(members)}`, `${objectText(members)}x`]);
    case 7:
      return dice.one([
        '',
        'null',
        '[]',
        '"x"',
        '<html>',
        deep(100_000),
        objectText(members).slice(0, -dice.below(40)),
      ]);
    default:
      changed[at] = [name, value];
  }
  return objectText(changed);
}

function documentOf(dice: Dice, isWrong: boolean, members: readonly Member[], odd: readonly string[]): IssuerDocument {
  return isWrong ? { text: mutated(dice, members, odd), isRight: false } : { text: objectText(members), isRight: true };
}

/** Returns the metadata of an issuer. @param others URLs that nothing may be requested from. */
export function metadataDocument(
  dice: Dice,
  isWrong: boolean,
  issuer: string,
  others: readonly string[],
): IssuerDocument {
  const members: readonly Member[] = [
    ['issuer', json(issuer)],
    ['token_endpoint', json(`${issuer}/token`)],
    ['jwks_uri', json(`${issuer}/jwks`)],
  ];
  const issuers = [`${issuer}/`, issuer.toUpperCase(), new URL(issuer).origin, 'https://other.example.com', [issuer]];
  const { host } = new URL(others[0] ?? issuer);
  const endpoints = [...others, `//${host}/token`, `${new URL(issuer).origin}@${host}/`, '/token', `${issuer}/other`];
  const odd = dice.once(3) ? issuers : endpoints;
  return documentOf(dice, isWrong, members, odd.map(json));
}

/** Returns the response of a token endpoint. `ECHO` in it becomes the secrets of the request. */
export function tokenDocument(dice: Dice, isWrong: boolean, token: string): IssuerDocument {
  const members: readonly Member[] = [
    ['access_token', json(token)],
    ['token_type', '"Bearer"'],
    ['expires_in', '600'],
    ['scope', '"a b"'],
  ];
  if (isWrong && dice.once(3)) {
    const error = dice.one(['invalid_client', 'invalid_scope', 'server_error', ECHO]);
    const text = objectText([
      ['error', json(error)],
      ['error_description', json(`SAID ${dice.one(['no', ECHO])}`)],
      ...(dice.once(2) ? members : []),
    ]);
    return { text, isRight: false };
  }
  return documentOf(dice, isWrong, members, ['"bearer"', '"DPoP"', '"3600"', '1e300', '["a"]', json(ECHO)]);
}

/** Returns a JWK Set. A right one may have odd keys beside the right key, which stays usable. @param key the right key as JSON. */
export function jwksDocument(dice: Dice, isWrong: boolean, key: string): IssuerDocument {
  const odd = [
    '{"kty":"oct","k":"AAAA","alg":"HS256","kid":"oct"}',
    '{"kty":"EC","crv":"P-256","x":"AA","y":"AA","kid":"one","alg":"ES256"}',
    '{"kty":"EC","crv":"P-9","x":"AA","y":"AA","kid":"two"}',
    '{"kty":"RSA","n":"AQ","e":"AQ","kid":"one","alg":"RS256"}',
    '{"kty":"OKP","crv":"Ed25519","x":"","kid":"ed"}',
    '{"kty":"RSA","kid":5,"use":{},"key_ops":"verify"}',
    '{"kty":"EC","__proto__":{"polluted":true},"kid":"__proto__"}',
    '{"kty":"none"}',
    'null',
    '5',
    '[]',
  ];
  const extra = Array.from({ length: dice.one([0, 1, 3, 500]) }, () => dice.one(odd));
  const keys = dice.once(2) ? [key, ...extra] : [...extra, key];
  return documentOf(dice, isWrong, [['keys', `[${keys.join()}]`]], [...odd, `{"0":${key}}`, `[[${key}]]`]);
}

/** Returns the answer about an active token. */
export function introspectionDocument(
  dice: Dice,
  isWrong: boolean,
  claims: Readonly<Record<string, unknown>>,
): IssuerDocument {
  const members = Object.entries({ active: true, ...claims }).map(([name, value]): Member => [name, json(value)]);
  const act = `{"act":${deep(50_000)}}`;
  return documentOf(dice, isWrong, members, ['false', '"true"', '1', '"https://other.example.com"', '["x"]', act]);
}
