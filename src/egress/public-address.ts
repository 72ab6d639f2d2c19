import { BlockList, isIP, isIPv4 } from 'node:net';

type Family = 'ipv4' | 'ipv6';

/** Addresses by which clouds tell their machines secrets. Some of them are in public networks. */
const METADATA: readonly string[] = [
  '169.254.169.254',
  '169.254.170.2',
  '169.254.170.23',
  '169.254.169.253',
  // Azure
  '168.63.129.16',
  // Alibaba
  '100.100.100.200',
  // Oracle
  '192.0.0.192',
  // EC2, ECS and Google over IPv6
  'fd00:ec2::254',
  'fd00:ec2::23',
  'fd20:ce::254',
];

function familyOf(address: string): Family {
  return isIPv4(address) ? 'ipv4' : 'ipv6';
}

/** @param networks in CIDR notation. */
function listOf(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const cidr of networks) {
    const [network = '', bits = ''] = cidr.split('/');
    list.addSubnet(network, Number(bits), familyOf(network));
  }
  return list;
}

/**
 * Networks that are not the public Internet. The last is multicast, and the reserved rest with the broadcast address.
 *
 * @see https://www.iana.org/assignments/iana-ipv4-special-registry
 */
const privateV4 = listOf(
  `0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
   192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/3`.split(/\s+/),
);
/**
 * Parts of `2000::/3`, outside of which nothing is public: Teredo, ORCHID and others; examples; 6to4, which has an IPv4 address inside; examples.
 *
 * @see https://www.iana.org/assignments/iana-ipv6-special-registry
 */
const privateV6 = listOf(['2001::/23', '2001:db8::/32', '2002::/16', '3fff::/20']);
const globalV6 = listOf(['2000::/3']);
const metadata = new BlockList();
for (const address of METADATA) metadata.addAddress(address, familyOf(address));

/** Networks whose last 32 bits are an IPv4 address: compatible, mapped, and translated (NAT64). */
const withV4 = listOf(['::/96', '::ffff:0:0/96', '64:ff9b::/96']);

/** Returns the IPv4 address inside of an IPv6 address without zone; undefined if it has none. */
function embeddedV4(address: string): string | undefined {
  if (!withV4.check(address, 'ipv6')) return undefined;
  // URL writes every IPv6 address with groups in hex.
  const written = new URL(`http://[${address}]/`).hostname.slice(1, -1);
  // The loopback and the unspecified address have the form of one. https://www.rfc-editor.org/rfc/rfc4291#section-2.5
  if (written === '::1' || written === '::') return undefined;
  const groups = written.split(':');
  const [high = '', low = ''] = groups.slice(-2);
  const bits = ((Number.parseInt(high || '0', 16) << 16) | Number.parseInt(low || '0', 16)) >>> 0;
  return [24, 16, 8, 0].map((shift) => (bits >>> shift) & 0xff).join('.');
}

/** Returns the address that decides: without its zone, and the IPv4 address inside of an IPv6 address. */
function innerOf(address: string): string {
  const [bare = ''] = address.split('%', 1);
  return isIPv4(bare) || isIP(bare) === 0 ? bare : (embeddedV4(bare) ?? bare);
}

/** Returns the reason why an address is not connected to; undefined if it may be. @param address IPv4 or IPv6, without brackets. */
export type AddressCheck = (address: string) => string | undefined;

/**
 * Returns the check of addresses that a URL leads to which somebody else has named.
 *
 * @param privateNetworks in CIDR notation; allowed, although they are not public.
 */
export function publicAddressCheck(privateNetworks: readonly string[]): AddressCheck {
  const allowed = listOf(privateNetworks);
  return (address) => {
    const inner = innerOf(address);
    if (isIP(inner) === 0) return 'not an address';
    const family = familyOf(inner);
    if (metadata.check(inner, family)) return 'an address of cloud metadata';
    if (allowed.check(inner, family)) return undefined;
    const isPublic =
      family === 'ipv4'
        ? !privateV4.check(inner, 'ipv4')
        : globalV6.check(inner, 'ipv6') && !privateV6.check(inner, 'ipv6');
    return isPublic ? undefined : 'not a public address';
  };
}

/** Returns whether an address is one of cloud metadata, which no request of ours may reach. */
export function isMetadataAddress(address: string): boolean {
  const inner = innerOf(address);
  return isIP(inner) !== 0 && metadata.check(inner, familyOf(inner));
}

/** Names of the metadata servers of clouds. A proxy would resolve them in its own network. */
const METADATA_NAMES: ReadonlySet<string> = new Set([
  'metadata.google.internal',
  'metadata.goog',
  'instance-data.ec2.internal',
]);

export function isMetadataName(host: string): boolean {
  return METADATA_NAMES.has(host.toLowerCase().replace(/\.$/, ''));
}
