import assert from 'node:assert/strict';
import { hash } from 'node:crypto';
import { test } from 'node:test';
import { ApiKeys } from '../../../src/auth/api-key.ts';
import { admitOperator } from '../../../src/operator/admin/access.ts';

const KEY = 'k'.repeat(43);
const operators = new ApiKeys([{ name: 'ops', sha256: hash('sha256', KEY) }]);
const HOST = '127.0.0.1:3001';

const requests = [
  { what: 'the key of an operator', authorization: `Bearer ${KEY}`, outcome: 'ops' },
  { what: 'a lower-case scheme', authorization: `bearer ${KEY}`, outcome: 'ops' },
  { what: 'a page of the port itself', authorization: `Bearer ${KEY}`, origin: `http://${HOST}`, outcome: 'ops' },
  { what: 'a link that a user typed', authorization: `Bearer ${KEY}`, secFetchSite: 'none', outcome: 'ops' },
  { what: 'no key', authorization: undefined, outcome: 'unauthorized' },
  { what: 'an empty key', authorization: 'Bearer ', outcome: 'invalid-request' },
  { what: 'another key', authorization: `Bearer ${'x'.repeat(43)}`, outcome: 'unauthorized' },
  { what: 'the beginning of a key', authorization: `Bearer ${KEY.slice(0, 42)}`, outcome: 'unauthorized' },
  { what: 'another scheme', authorization: `Basic ${KEY}`, outcome: 'unauthorized' },
  { what: 'two keys', authorization: `Bearer ${KEY}, Bearer ${KEY}`, outcome: 'invalid-request' },
  {
    what: 'a page of another origin',
    authorization: `Bearer ${KEY}`,
    origin: 'http://evil.example',
    outcome: 'forbidden',
  },
  {
    what: 'a page of another port',
    authorization: `Bearer ${KEY}`,
    origin: 'http://127.0.0.1:3000',
    outcome: 'forbidden',
  },
  { what: 'an opaque origin', authorization: `Bearer ${KEY}`, origin: 'null', outcome: 'forbidden' },
  { what: 'a page of another site', authorization: `Bearer ${KEY}`, secFetchSite: 'cross-site', outcome: 'forbidden' },
  { what: 'a page of a sister site', authorization: `Bearer ${KEY}`, secFetchSite: 'same-site', outcome: 'forbidden' },
];

for (const { what, outcome, authorization, origin, secFetchSite } of requests) {
  test(`a request to the admin API with ${what} is ${outcome === 'ops' ? 'admitted' : `refused: ${outcome}`}`, () => {
    const headers = { authorization, host: HOST, origin, 'sec-fetch-site': secFetchSite };
    const access = admitOperator({ get: (name) => new Map(Object.entries(headers)).get(name) ?? null }, operators);
    assert.equal(access.kind === 'operator' ? access.name : access.error, outcome);
    assert.doesNotMatch(JSON.stringify(access), new RegExp(KEY));
  });
}
