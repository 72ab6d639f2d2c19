import { createHmac } from 'node:crypto';
import { exportSPKI, importJWK, type JWTPayload, UnsecuredJWT } from 'jose';
import { type Claims, ENDPOINT, signingKey, type TestIssuer } from './issuer.ts';

interface BadToken {
  readonly name: string;
  readonly make: (issuer: TestIssuer) => Promise<string> | string;
}

type Header = Readonly<Record<string, unknown>>;

export const KEY = await signingKey('RS256', 'main');
const FOREIGN = await signingKey('RS256', 'main');
const OTHER_KID = await signingKey('RS256', 'elsewhere');
const EC = await signingKey('ES256', 'ec');
const PS = await signingKey('PS512', 'ps');
export const KEYS = [KEY.jwk, EC.jwk, PS.jwk];

function nowS(): number {
  return Math.floor(Date.now() / 1_000);
}

function part(value: unknown): string {
  return Buffer.from(typeof value === 'string' ? value : JSON.stringify(value)).toString('base64url');
}

function goodClaims(issuer: TestIssuer): JWTPayload {
  return { iss: issuer.issuer, aud: ENDPOINT, sub: 'alice', exp: nowS() + 600 };
}

function claims(name: string, make: () => Claims): BadToken {
  return { name, make: (issuer) => issuer.token(make()) };
}

function header(name: string, value: Header): BadToken {
  return { name: `header: ${name}`, make: (issuer) => issuer.token({}, value) };
}

/** Returns a token with these three parts. */
function raw(name: string, parts: (good: readonly [string, string, string]) => readonly string[]): BadToken {
  return {
    name,
    make: async (issuer) => {
      const [head = '', body = '', signature = ''] = (await issuer.token()).split('.');
      return parts([head, body, signature]).join('.');
    },
  };
}

function hmac(alg: string, name: string, secret: () => Promise<string> | string): BadToken {
  return {
    name: `${alg} with ${name} as the secret`,
    make: async (issuer) => {
      const text = `${part({ alg, kid: 'main', typ: 'JWT' })}.${part(goodClaims(issuer))}`;
      const digest = createHmac(`sha${alg.slice(2)}`, await secret()).update(text);
      return `${text}.${digest.digest('base64url')}`;
    },
  };
}

async function publicPem(): Promise<string> {
  const key = await importJWK({ ...KEY.jwk, ext: true }, 'RS256');
  if (key instanceof Uint8Array) throw new TypeError('not a public key');
  return exportSPKI(key);
}

const AUDIENCES: readonly unknown[] = [
  'https://gw.example.com',
  'https://gw.example.com/',
  `${ENDPOINT}/`,
  `${ENDPOINT}/files`,
  `${ENDPOINT}?x=1`,
  ENDPOINT.toUpperCase(),
  ENDPOINT.replace('https', 'http'),
  ENDPOINT.slice(0, -1),
  ` ${ENDPOINT}`,
  'https://other.example.com/mcp',
  '*',
  '',
  [],
  ['https://other.example.com/mcp'],
  [[ENDPOINT]],
  { 0: ENDPOINT },
  true,
  null,
];

const ISSUERS: readonly unknown[] = [
  'https://issuer.example.com/',
  'https://issuer.example.com/realm',
  'http://issuer.example.com',
  'HTTPS://issuer.example.com',
  'issuer.example.com',
  'https://issuer.example.com.evil.example',
  'https://evil.example',
  '__proto__',
  'constructor',
  '',
  7,
  null,
  ['https://issuer.example.com'],
];

const SUBJECTS: readonly unknown[] = ['', 0, 7, null, true, ['alice'], { name: 'alice' }];

const CLIENTS: readonly unknown[] = [7, null, true, ['a'], { id: 'a' }];

function times(): BadToken[] {
  const table: readonly (readonly [string, () => Claims])[] = [
    ['expired 31 s ago', () => ({ exp: nowS() - 31 })],
    ['expired an hour ago', () => ({ exp: nowS() - 3_600 })],
    ['expired in 1970', () => ({ exp: 0 })],
    ['negative exp', () => ({ exp: -1 })],
    ['exp as text', () => ({ exp: String(nowS() + 600) })],
    ['exp null', () => ({ exp: null })],
    ['exp true', () => ({ exp: true })],
    ['exp as a list', () => ({ exp: [nowS() + 600] })],
    ['exp as a date', () => ({ exp: new Date(Date.now() + 600_000).toISOString() })],
    ['no exp', () => ({ exp: undefined })],
    ['not before 32 s from now', () => ({ nbf: nowS() + 32 })],
    ['not before tomorrow', () => ({ nbf: nowS() + 86_400 })],
    ['nbf as text', () => ({ nbf: String(nowS() - 60) })],
    ['nbf null', () => ({ nbf: null })],
    ['iat as text', () => ({ iat: 'now' })],
  ];
  return table.map(([name, make]) => claims(name, make));
}

const TYPES = [
  'JOSE',
  'ID',
  'logout+jwt',
  'dpop+jwt',
  'secevent+jwt',
  'at+jwt2',
  'text/jwt',
  'application/json',
  '',
  ' JWT',
];

const CRITS: readonly Header[] = [
  { crit: ['urn:x'], 'urn:x': true },
  { crit: ['b64'], b64: true },
  { crit: ['exp'], exp: 1 },
  { crit: ['alg'] },
];

const FLIPS = [0, 1, 2, 10, 100, 200, 300, 340];

export const BAD_TOKENS: readonly BadToken[] = [
  // Algorithms.
  { name: 'alg none', make: (issuer) => new UnsecuredJWT(goodClaims(issuer)).encode() },
  ...['none', 'None', 'NONE', 'nOnE'].map((alg) =>
    raw(`alg ${alg} and a signature`, ([, b, s]) => [part({ alg }), b, s]),
  ),
  ...['none', 'RS256'].map((alg) => raw(`alg ${alg} and no signature`, ([, b]) => [part({ alg, kid: 'main' }), b, ''])),
  ...['HS256', 'HS384', 'HS512'].flatMap((alg) => [
    hmac(alg, 'the public key (PEM)', publicPem),
    hmac(alg, 'the public key (JWK)', () => JSON.stringify(KEY.jwk)),
    hmac(alg, 'the modulus', () => KEY.jwk.n ?? ''),
    hmac(alg, 'nothing', () => ''),
  ]),
  ...['', 'rs256', 'RS1', 'XX256', 'ES256', 'PS256', 'EdDSA', 'dir', 'RSA-OAEP'].map((alg) =>
    raw(`a good signature under the name of ${alg}`, ([, b, s]) => [part({ alg, kid: 'main' }), b, s]),
  ),
  ...[7, null, ['RS256'], {}].map((alg) =>
    raw(`alg ${JSON.stringify(alg)}`, ([, b, s]) => [part({ alg, kid: 'main' }), b, s]),
  ),
  { name: 'an algorithm that is not configured', make: (issuer) => issuer.token({}, {}, PS) },

  // Keys.
  { name: 'another key of the same id', make: (issuer) => issuer.token({}, {}, FOREIGN) },
  { name: 'a key nobody knows', make: (issuer) => issuer.token({}, {}, OTHER_KID) },
  { name: 'another key and no id', make: (issuer) => issuer.token({}, { kid: undefined }, FOREIGN) },
  header('a wrong kid', { kid: 'wrong' }),
  header('the kid of a key of another kind', { kid: 'ec' }),
  header('an empty kid', { kid: '' }),
  header('a kid that climbs', { kid: '../../../../dev/null' }),
  header('a kid with SQL', { kid: "' OR 1=1 --" }),
  header('a huge kid', { kid: 'k'.repeat(4_000) }),
  header('a kid that is a number', { kid: 7 }),
  header('a kid that is a list', { kid: ['main'] }),
  {
    name: 'a key that the token brings itself (jwk)',
    make: (issuer) => issuer.token({}, { jwk: FOREIGN.jwk }, FOREIGN),
  },
  {
    name: 'a key that the token points to (jku)',
    make: (issuer) => issuer.token({}, { jku: 'http://127.0.0.1:9/jwks' }, FOREIGN),
  },

  // Header.
  ...TYPES.map((typ) => header(`typ ${JSON.stringify(typ)}`, { typ })),
  header('a typ that is a list', { typ: ['JWT'] }),
  ...CRITS.map((value) => header(`crit ${JSON.stringify(value['crit'])}`, value)),
  ...[[], 'exp', null, {}].map((crit) =>
    raw(`crit ${JSON.stringify(crit)}`, ([, b, s]) => [part({ alg: 'RS256', kid: 'main', crit }), b, s]),
  ),

  // Claims.
  ...AUDIENCES.map((aud) => claims(`aud ${JSON.stringify(aud)}`, () => ({ aud }))),
  claims('no aud', () => ({ aud: undefined })),
  ...ISSUERS.map((iss) => claims(`iss ${JSON.stringify(iss)}`, () => ({ iss }))),
  claims('no iss', () => ({ iss: undefined })),
  ...SUBJECTS.map((sub) => claims(`sub ${JSON.stringify(sub)}`, () => ({ sub }))),
  claims('cnf: a key that its holder must prove', () => ({ cnf: { jkt: 'x' } })),
  claims('no sub', () => ({ sub: undefined })),
  claims('no sub, though a client', () => ({ sub: undefined, client_id: 'desk' })),
  ...CLIENTS.map((id) => claims(`client_id ${JSON.stringify(id)}`, () => ({ client_id: id }))),
  ...times(),

  // Form.
  raw('no header', ([, b, s]) => ['', b, s]),
  raw('no payload', ([h, , s]) => [h, '', s]),
  raw('no signature', ([h, b]) => [h, b, '']),
  raw('two parts', ([h, b]) => [h, b]),
  raw('one part', ([h]) => [h]),
  raw('four parts', ([h, b, s]) => [h, b, s, s]),
  raw('five parts', ([h, b, s]) => [h, b, s, h, b]),
  raw('header and payload swapped', ([h, b, s]) => [b, h, s]),
  raw('the payload of another token', ([h, , s]) => [h, part({ iss: 'x' }), s]),
  raw('a changed subject', ([h, b, s]) => [
    h,
    part(Buffer.from(b, 'base64url').toString().replace('alice', 'admin')),
    s,
  ]),
  raw('a payload that is not JSON', ([h, , s]) => [h, part('{iss'), s]),
  raw('a payload that is a list', ([h, , s]) => [h, part([]), s]),
  raw('a header that is not JSON', ([, b, s]) => [part('{alg'), b, s]),
  raw('a header that is a list', ([, b, s]) => [part([]), b, s]),
  raw('a header that is null', ([, b, s]) => [part('null'), b, s]),
  raw('padding', ([h, b, s]) => [h, b, `${s}==`]),
  raw('a huge signature', ([h, b, s]) => [h, b, s.repeat(20)]),
  raw('the last character missing', ([h, b, s]) => [h, b, s.slice(0, -1)]),
  raw('half the signature', ([h, b, s]) => [h, b, s.slice(0, s.length / 2)]),
  raw('a second header member that says more', ([, b, s]) => [part('{"alg":"RS256","alg":"none","kid":"main"}'), b, s]),
  ...FLIPS.map((at) =>
    raw(`character ${at} of the signature changed`, ([h, b, s]) => [
      h,
      b,
      `${s.slice(0, at)}${s[at] === 'A' ? 'B' : 'A'}${s.slice(at + 1)}`,
    ]),
  ),
  { name: 'a text that is no token', make: () => 'hunter2' },
  { name: 'one letter', make: () => 'x' },
  { name: 'dots', make: () => '..' },
  { name: 'null as text', make: () => 'null' },
  { name: 'fifteen thousand letters', make: () => 'x'.repeat(15_000) },
  { name: 'fifteen thousand letters in three parts', make: () => `${'x'.repeat(5_000)}.`.repeat(3).slice(0, -1) },
];
