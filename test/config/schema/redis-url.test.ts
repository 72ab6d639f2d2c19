import assert from 'node:assert/strict';
import { test } from 'node:test';
import { parseRedisUrl } from '../../../src/config/schema/redis-url.ts';

const BASE = { tls: false, master: '', username: undefined, password: undefined, database: 0 };

const VALID = [
  { url: 'redis://127.0.0.1', is: { ...BASE, kind: 'single', nodes: [{ host: '127.0.0.1', port: 6379 }] } },
  {
    url: 'rediss://user:p%40ss@redis.example:6380/3',
    is: {
      ...BASE,
      kind: 'single',
      tls: true,
      nodes: [{ host: 'redis.example', port: 6380 }],
      username: 'user',
      password: 'p@ss',
      database: 3,
    },
  },
  { url: 'redis://:p@[::1]:7/', is: { ...BASE, kind: 'single', nodes: [{ host: '::1', port: 7 }], password: 'p' } },
  {
    url: 'redis+sentinel://a,b:1/main/2',
    is: {
      ...BASE,
      kind: 'sentinel',
      nodes: [
        { host: 'a', port: 26_379 },
        { host: 'b', port: 1 },
      ],
      master: 'main',
      database: 2,
    },
  },
  {
    url: 'rediss+cluster://a:1,b',
    is: {
      ...BASE,
      kind: 'cluster',
      tls: true,
      nodes: [
        { host: 'a', port: 1 },
        { host: 'b', port: 6379 },
      ],
    },
  },
] as const;

for (const { url, is } of VALID) {
  test(`${url} is a URL of Redis`, () => assert.deepEqual(parseRedisUrl(url), is));
}

const INVALID = [
  '',
  'redis://',
  'http://127.0.0.1',
  'redis://a,b',
  'redis://a/x',
  'redis://a:99999',
  'redis://a?x=1',
  'redis://u:%zz@a',
  'redis+sentinel://a',
  'redis+sentinel:///main',
  'redis+cluster://a/1',
  'redis+other://a',
];

for (const url of INVALID) {
  test(`"${url}" is no URL of Redis`, () => assert.equal(parseRedisUrl(url), undefined));
}
