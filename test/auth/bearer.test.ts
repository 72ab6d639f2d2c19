import assert from 'node:assert/strict';
import { test } from 'node:test';
import { credentialsOf } from '../../src/auth/bearer.ts';

const CASES: readonly { headers: readonly string[]; kind: 'token' | 'none' | 'malformed'; token?: string }[] = [
  { headers: [], kind: 'none' },
  { headers: ['Bearer abc'], kind: 'token', token: 'abc' },
  { headers: ['bearer abc'], kind: 'token', token: 'abc' },
  { headers: ['BEARER   abc'], kind: 'token', token: 'abc' },
  { headers: ['Bearer a.b-c_d~e+f/g=='], kind: 'token', token: 'a.b-c_d~e+f/g==' },
  { headers: ['Basic YTpi'], kind: 'none' },
  { headers: ['Digest username="a", realm="b"'], kind: 'none' },
  { headers: ['Negotiate'], kind: 'none' },
  { headers: ['DPoP abc'], kind: 'none' },
  { headers: ['BearerX abc'], kind: 'none' },
  { headers: ['Bearer abc', 'Bearer abc'], kind: 'malformed' },
  { headers: ['Bearer abc', 'Basic YTpi'], kind: 'malformed' },
  { headers: ['Basic YTpi', 'Bearer abc'], kind: 'malformed' },
  { headers: [''], kind: 'malformed' },
  { headers: [' '], kind: 'malformed' },
  { headers: ['Bearer'], kind: 'malformed' },
  { headers: ['Bearer '], kind: 'malformed' },
  { headers: ['Bearer\tabc'], kind: 'malformed' },
  { headers: ['Bearer abc def'], kind: 'malformed' },
  { headers: ['Bearer abc, Bearer def'], kind: 'malformed' },
  { headers: ['Bearer abc,'], kind: 'malformed' },
  { headers: ['Bearer "abc"'], kind: 'malformed' },
  { headers: ['Bearer token=abc'], kind: 'malformed' },
  { headers: ['Bearer =abc'], kind: 'malformed' },
  { headers: ['Bearer ab\u00e9'], kind: 'malformed' },
  { headers: ['Bearer abc\n'], kind: 'malformed' },
  { headers: ['Bearer abc\u0000'], kind: 'malformed' },
];

for (const { headers, kind, token } of CASES) {
  // SEC-04
  test(`${JSON.stringify(headers)} is ${kind}`, () => {
    const credentials = credentialsOf(headers);
    assert.equal(credentials.kind, kind);
    if (credentials.kind === 'token') assert.equal(credentials.token, token);
  });
}
