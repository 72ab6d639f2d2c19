import assert from 'node:assert/strict';
import { test } from 'node:test';
import { isMetadataAddress, isMetadataName, publicAddressCheck } from '../../src/egress/public-address.ts';
import { METADATA_ADDRESSES, PUBLIC_ADDRESSES, REFUSED_ADDRESSES } from './ssrf-corpus.ts';

const nowhere = publicAddressCheck([]);

// SEC-31
test('no address of the corpus that is not public is accepted', () => {
  assert.ok(REFUSED_ADDRESSES.length >= 55);
  const accepted = REFUSED_ADDRESSES.filter((address) => nowhere(address) === undefined);
  assert.deepEqual(accepted, []);
});

test('public addresses are accepted, also next to networks that are not public', () => {
  const refused = PUBLIC_ADDRESSES.filter((address) => nowhere(address) !== undefined);
  assert.deepEqual(refused, []);
});

// SEC-31
test('addresses of cloud metadata are refused although every network is allowed', () => {
  const everywhere = publicAddressCheck(['0.0.0.0/0', '::/0']);
  assert.equal(everywhere('10.1.2.3'), undefined);
  assert.equal(everywhere('fc00::1'), undefined);
  for (const address of METADATA_ADDRESSES) {
    assert.equal(everywhere(address), 'an address of cloud metadata', address);
    assert.ok(isMetadataAddress(address), address);
  }
  assert.ok(isMetadataAddress('::ffff:169.254.169.254'));
  assert.ok(!isMetadataAddress('169.254.1.1'));
});

test('an allowed network allows its addresses in every form, and no others', () => {
  const some = publicAddressCheck(['10.0.0.0/8', 'fd12:3456::/32']);
  for (const address of ['10.0.0.1', '::ffff:10.0.0.1', '64:ff9b::a00:1', 'fd12:3456::1'])
    assert.equal(some(address), undefined, address);
  for (const address of ['11.0.0.1', '127.0.0.1', '192.168.0.1', 'fd12:3457::1'])
    assert.equal(some(address), address === '11.0.0.1' ? undefined : 'not a public address', address);
});

test('the loopback address of IPv6 can be allowed, and not by a network of IPv4', () => {
  for (const address of ['::1', '0:0:0:0:0:0:0:1', '::1%lo'])
    assert.equal(publicAddressCheck(['::1/128'])(address), undefined, address);
  assert.equal(publicAddressCheck(['::1/128'])('127.0.0.1'), 'not a public address');
  for (const address of ['::', '::1'])
    assert.equal(publicAddressCheck(['0.0.0.0/8', '127.0.0.0/8'])(address), 'not a public address', address);
});

// SEC-31
test('the zone of an address hides nothing, and text is no address', () => {
  assert.equal(nowhere('::ffff:169.254.169.254%eth0'), 'an address of cloud metadata');
  assert.equal(nowhere('fe80::1%eth0'), 'not a public address');
  assert.ok(isMetadataAddress('fd00:ec2::254%eth0'));
  for (const text of ['', 'localhost', '127.0.0.1:80', '0x7f.1', '%']) assert.equal(nowhere(text), 'not an address');
});

// SEC-31
test('names of cloud metadata are known in every spelling', () => {
  for (const name of ['metadata.google.internal', 'Metadata.Google.Internal.', 'metadata.goog'])
    assert.ok(isMetadataName(name));
  assert.ok(!isMetadataName('metadata.example.com'));
});
