import assert from 'node:assert/strict';
import { test } from 'node:test';
import { bypassesProxy } from '../../src/egress/proxy-bypass.ts';

type Row = readonly [noProxy: string, host: string, port: number, bypasses: boolean];

const ROWS: readonly Row[] = [
  ['', 'example.com', 443, false],
  ['*', 'example.com', 443, true],
  ['example.com', 'example.com', 443, true],
  ['example.com', 'a.example.com', 443, true],
  ['.example.com', 'example.com', 443, true],
  ['*.example.com', 'a.b.example.com', 443, true],
  ['example.com', 'notexample.com', 443, false],
  ['example.com', 'example.com.evil.net', 443, false],
  ['Example.COM', 'eXample.com', 443, true],
  ['example.com', 'example.com.', 443, true],
  ['example.com.', 'example.com', 443, true],
  ['example.com:8443', 'example.com', 8443, true],
  ['example.com:8443', 'example.com', 443, false],
  ['10.0.0.0/8', '10.1.2.3', 443, true],
  ['10.0.0.0/8', '11.1.2.3', 443, false],
  ['10.0.0.0/8:80', '10.1.2.3', 443, false],
  ['10.0.0.0/8', 'ten.example.com', 443, false],
  ['192.168.1.1', '192.168.1.1', 443, true],
  ['168.1.1', '192.168.1.1', 443, false],
  ['fd00::/8', 'fd12::1', 443, true],
  ['fd00::/8', 'fe80::1', 443, false],
  ['fd00:0:0::1', 'fd00::1', 443, true],
  ['[fd00::1]:8443', 'fd00::1', 8443, true],
  ['[fd00::1]:8443', 'fd00::1', 443, false],
  ['[fd00::1]', 'fd00::1', 443, true],
  // A wrong entry matches nothing, and hurts no other.
  ['10.0.0.0/33', '10.0.0.1', 443, false],
  ['10.0.0.0/x', '10.0.0.1', 443, false],
  ['10.0.0.0/', '10.0.0.1', 443, false],
  ['.', 'example.com', 443, false],
  // A proxy cannot reach this machine.
  ['', 'localhost', 443, true],
  ['', 'LOCALHOST.', 443, true],
  ['', 'app.localhost', 443, true],
  ['', '127.9.9.9', 443, true],
  ['', '::1', 443, true],
  ['', 'localhost.example.com', 443, false],
];

test('NO_PROXY entries match names, suffixes, addresses, networks and ports', () => {
  for (const [entry, host, port, expected] of ROWS) {
    const isBypassed = bypassesProxy(['other.example.org', entry], host, port);
    assert.equal(isBypassed, expected, `${host}:${port} with NO_PROXY ${entry}`);
  }
});
