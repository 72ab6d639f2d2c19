import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ClientAddresses, networkOf } from '../../../src/downstream/admission/client-address.ts';

const PROXIES = ['10.0.0.0/8', '192.0.2.7/32', 'fd00::/8'];
const CLIENT = '203.0.113.9';

const CASES: readonly (readonly [what: string, peer: string, forwarded: string | undefined, expected: string])[] = [
  ['a client without a proxy', CLIENT, undefined, CLIENT],
  ['a client that names another address', CLIENT, '198.51.100.1', CLIENT],
  ['a trusted proxy', '10.1.2.3', CLIENT, CLIENT],
  ['a proxy that names nobody', '10.1.2.3', undefined, '10.1.2.3'],
  ['a client that lies to a proxy', '10.1.2.3', `198.51.100.1, ${CLIENT}`, CLIENT],
  ['two proxies', '10.1.2.3', `198.51.100.1,${CLIENT}, 192.0.2.7`, CLIENT],
  ['proxies alone', '10.1.2.3', '10.9.9.9, 10.8.8.8', '10.9.9.9'],
  ['an IPv4 proxy at an IPv6 socket', '::ffff:10.1.2.3', CLIENT, CLIENT],
  ['an IPv4 client in IPv6', '10.1.2.3', `::ffff:${CLIENT}`, CLIENT],
  ['an IPv6 proxy and client', 'fd00::1', '2001:db8::5', '2001:db8::5'],
  ['addresses with ports', '10.1.2.3', '[2001:db8::5]:443, 10.4.4.4:8080', '2001:db8::5'],
  ['a text', '10.1.2.3', `${CLIENT}, unknown`, '10.1.2.3'],
  ['a text before a proxy', '10.1.2.3', `${CLIENT}, "evil", 192.0.2.7`, '192.0.2.7'],
  ['an empty header', '10.1.2.3', '', '10.1.2.3'],
  ['more addresses than there are proxies', '10.1.2.3', `${CLIENT}, ${'10.4.4.4, '.repeat(99)}10.5.5.5`, '10.4.4.4'],
];

const requestOf = (remoteAddress: string, forwarded: string | undefined) => ({
  socket: { remoteAddress },
  headers: forwarded === undefined ? {} : { 'x-forwarded-for': forwarded },
});

for (const [what, peer, forwarded, expected] of CASES) {
  test(`the address of a client behind ${what}`, () => {
    assert.equal(new ClientAddresses(PROXIES).of(requestOf(peer, forwarded)), expected);
  });
}

test('without trusted proxies the address is that of the connection', () => {
  assert.equal(new ClientAddresses([]).of(requestOf('10.1.2.3', CLIENT)), '10.1.2.3');
  assert.equal(new ClientAddresses([]).of({ socket: {}, headers: {} }), '');
});

test('clients of one IPv6 network count as one', () => {
  assert.equal(networkOf('2001:db8:1:2:3::4'), networkOf('2001:db8:1:2::'));
  assert.notEqual(networkOf('2001:db8:1:2::'), networkOf('2001:db8:1:3::'));
  assert.equal(networkOf('::ffff:192.0.2.1'), '::ffff:192.0.2.1');
});
