import { BlockList, isIP, isIPv4 } from 'node:net';

/** Returns whether a host, in lower case, is this machine, which a proxy cannot reach. */
function isThisMachine(host: string): boolean {
  if (host === 'localhost' || host.endsWith('.localhost')) return true;
  return host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/** Returns the port at the end of an entry, and the rest. An IPv6 address with a port has brackets. */
function split(entry: string): { readonly host: string; readonly port: number | undefined } {
  const [, host = entry, port] = /^(\[[^\]]*\]|[^:]*):(\d{1,5})$/.exec(entry) ?? [];
  return { host: host.replace(/^\[|\]$/g, ''), port: port === undefined ? undefined : Number(port) };
}

function matches(pattern: string, host: string): boolean {
  if (pattern === '*') return true;
  const [network = '', bits] = pattern.split('/');
  const family = isIP(network);
  if (family !== 0) return isIP(host) === family && isInNetwork(host, network, bits);
  const suffix = pattern.replace(/^\*?\./, '').replace(/\.$/, '');
  // As in curl: `example.com` and `.example.com` are the name and all below it.
  return suffix !== '' && (host === suffix || (isIP(host) === 0 && host.endsWith(`.${suffix}`)));
}

/** @param bits undefined for a single address. A wrong number of bits is no network. */
function isInNetwork(host: string, network: string, bits: string | undefined): boolean {
  const [name, most] = isIPv4(network) ? (['ipv4', 32] as const) : (['ipv6', 128] as const);
  const count = bits === undefined ? most : Number(bits);
  if (bits === '' || !Number.isInteger(count) || count < 0 || count > most) return false;
  const list = new BlockList();
  list.addSubnet(network, count, name);
  return list.check(host, name);
}

/**
 * Returns whether a host is connected to without the proxy.
 *
 * @param noProxy as `EgressConfig.noProxy`.
 * @param host name or address, without brackets.
 */
export function bypassesProxy(noProxy: readonly string[], host: string, port: number): boolean {
  const lower = host.toLowerCase().replace(/\.$/, '');
  if (isThisMachine(lower)) return true;
  return noProxy.some((text) => {
    const entry = split(text.trim().toLowerCase());
    return entry.host !== '' && (entry.port ?? port) === port && matches(entry.host, lower);
  });
}
