import { isIPv4 } from 'node:net';

/** Addresses that are not public, with the network that they are in. The first and the last address of a network are where a wrong mask shows. */
const NOT_PUBLIC: Readonly<Record<string, readonly string[]>> = {
  'this network': ['0.0.0.0', '0.0.0.1', '0.255.255.255'],
  private: ['10.0.0.0', '10.255.255.255', '172.16.0.0', '172.31.255.255', '192.168.0.0', '192.168.255.255'],
  'carrier NAT': ['100.64.0.0', '100.127.255.255'],
  loopback: ['127.0.0.1', '127.0.0.53', '127.255.255.255'],
  'link-local': ['169.254.0.0', '169.254.1.1', '169.254.255.255'],
  protocols: ['192.0.0.0', '192.0.0.170', '192.0.0.255'],
  documentation: ['192.0.2.1', '198.51.100.255', '203.0.113.0'],
  '6to4 relays': ['192.88.99.1'],
  benchmarks: ['198.18.0.0', '198.19.255.255'],
  multicast: ['224.0.0.1', '239.255.255.255'],
  reserved: ['240.0.0.0', '255.255.255.254', '255.255.255.255'],
};

/** Addresses of cloud metadata, some of them in public networks. */
export const METADATA_ADDRESSES: readonly string[] = [
  '169.254.169.254',
  '169.254.170.2',
  '169.254.170.23',
  '168.63.129.16',
  '100.100.100.200',
  '192.0.0.192',
  'fd00:ec2::254',
  'fd20:ce::254',
];

/** IPv6 addresses that are not public. */
const NOT_PUBLIC_V6: readonly string[] = [
  '::',
  '::1',
  'fc00::1',
  'fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff',
  'fe80::1',
  'febf::1',
  'fec0::1',
  'ff02::1',
  'ff0e::1',
  // Discard-only, and a translation prefix of the local network.
  '100::1',
  '64:ff9b:1::a00:1',
  // Teredo, benchmarks, ORCHID, documentation, 6to4 with a private and a public address, SRv6.
  '2001:0:4136:e378:8000:63bf:3fff:fdd2',
  '2001:2::1',
  '2001:10::1',
  '2001:20::1',
  '2001:db8::1',
  '3fff::1',
  '2002:7f00:1::',
  '2002:a9fe:a9fe::',
  '2002:808:808::',
  '5f00::1',
];

/** Public addresses, most of them neighbours of networks that are not. */
export const PUBLIC_ADDRESSES: readonly string[] = [
  '1.0.0.0',
  '8.8.8.8',
  '9.255.255.255',
  '11.0.0.0',
  '100.63.255.255',
  '100.128.0.0',
  '126.255.255.255',
  '128.0.0.0',
  '169.253.255.255',
  '169.255.0.0',
  '172.15.255.255',
  '172.32.0.0',
  '192.0.1.0',
  '192.167.255.255',
  '192.169.0.0',
  '198.17.255.255',
  '198.20.0.0',
  '223.255.255.255',
  '::ffff:8.8.8.8',
  '64:ff9b::808:808',
  '2001:4860:4860::8888',
  '2606:4700:4700::1111',
  '2a00:1450:4001:801::200e',
];

const groupsOf = (v4: string): string => {
  const [a = 0, b = 0, c = 0, d = 0] = v4.split('.').map(Number);
  return `${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
};
const numberOf = (v4: string): number => v4.split('.').reduce((sum, part) => sum * 256 + Number(part), 0);

/** The forms in which a URL can have an IPv4 address. */
const FORMS: readonly ((v4: string) => string)[] = [
  (v4) => v4,
  (v4) => `${v4}.`,
  (v4) => String(numberOf(v4)),
  (v4) => `0x${numberOf(v4).toString(16)}`,
  (v4) => v4.replaceAll(/\d+/g, (part) => `0${Number(part).toString(8)}`),
  (v4) => v4.replace(/(\d+)\.(\d+)$/, (_all, c: string, d: string) => String(Number(c) * 256 + Number(d))),
  (v4) => v4.replaceAll('.', '%2e'),
  (v4) => v4.replaceAll('.', '。'),
  (v4) => `[::ffff:${v4}]`,
  (v4) => `[0:0:0:0:0:ffff:${groupsOf(v4)}]`,
  (v4) => `[64:ff9b::${v4}]`,
  (v4) => `[2002:${groupsOf(v4)}::]`,
];

/** Every address that is not public, without brackets. */
export const REFUSED_ADDRESSES: readonly string[] = [
  ...Object.values(NOT_PUBLIC).flat(),
  ...METADATA_ADDRESSES,
  ...NOT_PUBLIC_V6,
];

/** Hosts of URLs that lead to these addresses. */
export const REFUSED_HOSTS: readonly string[] = REFUSED_ADDRESSES.flatMap((address) =>
  isIPv4(address) ? FORMS.map((form) => form(address)) : [`[${address}]`, `[${address.toUpperCase()}]`],
);
