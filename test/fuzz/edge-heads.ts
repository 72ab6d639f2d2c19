import type { Dice } from './dice.ts';
import { type Category, type Input, shownBytes, type Target } from './input.ts';

const METHODS = ['GET', 'GET', 'GET', 'POST', 'POST', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'PROPFIND'];
const ORIGINS = [
  'null',
  'http://evil.example',
  'http://127.0.0.1',
  'https://127.0.0.1:1',
  'file://',
  '',
  'http://a\tb',
  '*',
];
const BODIES = [
  '',
  '{}',
  '[]',
  'null',
  '{"as":',
  '{"as":{"key":"\\u0000"},"view":"","kind":"tool","name":"leg__echo"}',
  '{"as":{"claims":{"__proto__":{"a":1}}},"kind":"tool","name":"leg__echo","args":{"a":[[[[[[]]]]]]}}',
  '{"as":{"groups":["x"]},"kind":"resource","name":"file:///secret/a"}',
  '{"as":{},"view":"nope","kind":"prompt","name":"<script>"}',
  `{"as":{},"kind":"tool","name":"${'x'.repeat(70_000)}"}`,
  '['.repeat(20_000),
  '\u{FEFF}{}',
];
const CONTENT_TYPES = ['application/json', 'application/json; charset=utf-16', 'text/plain', 'multipart/form-data', ''];
const STEPS = [
  '..',
  '.',
  '%2e%2e',
  '%2f',
  '',
  '%00',
  '\\',
  ';a',
  'é',
  '%',
  '%zz',
  '*',
  'x'.repeat(3_000),
  '__proto__',
  'openapi.json',
];
/** Paths of the operator's port that change nothing, also with valid credentials. */
const OPERATOR_PATHS = [
  '/livez',
  '/readyz',
  '/metrics',
  '/status',
  '/admin/v1/status',
  '/admin/v1/upstreams',
  '/admin/v1/catalog',
  '/admin/v1/catalog?view=nope&era=never',
  '/admin/v1/explain',
  '/admin/v1/clients',
  '/admin/v1/openapi.json',
];
/** Paths that need credentials. They are asked for without valid ones. */
const GUARDED_PATHS = [
  '/admin/v1/config/reload',
  '/admin/v1/drain',
  '/admin/v1/keys/rotate',
  '/admin/v1/upstreams/leg/disable',
];
const METADATA_PATHS = [
  '/.well-known/oauth-protected-resource',
  '/.well-known/oauth-protected-resource/mcp',
  '/.well-known/oauth-protected-resource/mcp/leg',
  '/.well-known/oauth-protected-resource/mcp/nope',
  '/.well-known/oauth-protected-resource/sse/leg',
  '/.well-known/openid-configuration',
  '/.well-known/jwks.json',
  '/mcp',
  '/mcp/leg',
  '/sse',
];

interface Edge {
  readonly port: number;
  readonly paths: readonly string[];
  readonly authorization: readonly string[];
}

/** Returns one request. The host names in it have the nonce, so that an answer which repeats them is seen. */
function inputOf(dice: Dice, nonce: string, { port, paths, authorization }: Edge): Input {
  const method = dice.one(METHODS);
  const base = dice.one(paths);
  const path = dice.once(3) ? `${base}/${dice.some(STEPS, 1)}${dice.once(2) ? `/${dice.one(STEPS)}` : ''}` : base;
  const evil = `${nonce}.example`;
  const hosts = [
    `127.0.0.1:${port}`,
    `127.0.0.1:${port}`,
    `127.0.0.1:${port}`,
    evil,
    `${evil}:${port}`,
    'localhost.',
    '',
    '[::1]',
    '127.0.0.1@x',
  ];
  const lines = [`host: ${dice.one(hosts)}`, 'connection: close'];
  if (dice.once(3)) lines.push(`origin: ${dice.once(2) ? `https://${evil}` : dice.one(ORIGINS)}`);
  if (dice.once(3)) lines.push(`x-forwarded-host: ${evil}`, 'x-forwarded-proto: https');
  if (dice.once(4)) lines.push(`forwarded: for=${evil};host=${evil};proto=https`);
  if (dice.once(5)) lines.push('accept: text/html');
  if (dice.once(2)) lines.push(`authorization: ${dice.one(authorization)}`);
  if (dice.once(15)) lines.push(`authorization: ${dice.one(authorization)}`);
  const body = Buffer.from(['GET', 'HEAD', 'OPTIONS'].includes(method) ? '' : dice.one(BODIES));
  const type = dice.one(CONTENT_TYPES);
  if (body.length > 0) lines.push(`content-length: ${body.length}`, ...(type === '' ? [] : [`content-type: ${type}`]));
  const head = Buffer.from(`${method} ${path} HTTP/1.1\r\n${lines.join('\r\n')}\r\n\r\n`, 'utf8');
  const wire = Buffer.concat([head, body]);
  return { nonce, shown: shownBytes(wire), wire, message: body, port, isForged: true };
}

/** Values of `Authorization` that no client has. */
function badAuthorization({ token, key }: Target): readonly string[] {
  return [
    'Bearer',
    'Bearer ',
    `bearer  ${key}x`,
    `Bearer ${key} ${key}`,
    `Bearer ${key},`,
    `Basic ${Buffer.from(`:${key}`).toString('base64')}`,
    `Bearer ${token({ alg: 'none' }, {})}`,
    `Bearer ${token({}, { iss: 'https://evil.example' })}`,
    `Bearer ${token({}, { exp: 1 })}`,
    `Bearer ${'a.'.repeat(5_000)}`,
    'DPoP abc',
    'Bearer \u00e9',
    `Bearer ${'x'.repeat(10_000)}`,
  ];
}

/** Requests for the metadata of OAuth, and for challenges: odd paths, hosts, proxies and credentials. */
export const OAUTH: Category = {
  name: 'oauth',
  inputs: 300,
  make: (dice, nonce, target) => {
    const { port } = target;
    return inputOf(dice, nonce, { port, paths: METADATA_PATHS, authorization: badAuthorization(target) });
  },
};

/** Requests to the operator's port: with valid credentials only for what changes nothing. */
export const OPERATOR: Category = {
  name: 'operator',
  inputs: 300,
  make: (dice, nonce, target) => {
    const isValid = dice.once(2);
    const paths = isValid ? OPERATOR_PATHS : [...OPERATOR_PATHS, ...GUARDED_PATHS];
    const authorization = isValid ? [`Bearer ${target.operatorKey}`] : badAuthorization(target);
    return inputOf(dice, nonce, { port: target.operatorPort, paths, authorization });
  },
};
