import { BlockList, isIP } from 'node:net';
import type { IncomingMessage } from 'node:http';

const MAX_PROXIES = 32;

/** Returns an address without brackets and port, and IPv4 inside of IPv6 as IPv4; undefined for any other text. */
function plainAddress(text: string): string | undefined {
  const [, bracketed, v4] = /^(?:\[([^\]]*)\](?::\d+)?|([\d.]+):\d+)$/.exec(text) ?? [];
  const [address = ''] = (bracketed ?? v4 ?? text).split('%', 1);
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address;
  return isIP(mapped) === 0 ? undefined : mapped;
}

/**
 * Finds the addresses of clients. Behind a proxy, the peer of every connection is the proxy, which names the client in `X-Forwarded-For`.
 * Anybody can send this header, so it is read only from trusted proxies. It is read from its end, up to the first address that is none of
 * theirs.
 */
export class ClientAddresses {
  readonly #proxies = new BlockList();
  readonly #hasProxies: boolean;

  /** @param proxies networks of the trusted proxies, in CIDR notation. */
  constructor(proxies: readonly string[]) {
    this.#hasProxies = proxies.length > 0;
    for (const cidr of proxies) {
      const [network = '', bits = ''] = cidr.split('/');
      this.#proxies.addSubnet(network, Number(bits), isIP(network) === 6 ? 'ipv6' : 'ipv4');
    }
  }

  /** Returns the address of the client of a request; empty if its connection has ended. */
  of({
    socket,
    headers,
  }: Pick<IncomingMessage, 'headers'> & { readonly socket: { readonly remoteAddress?: string | undefined } }): string {
    const peer = socket.remoteAddress ?? '';
    const forwarded = headers['x-forwarded-for'];
    if (!this.#hasProxies || forwarded === undefined || !this.#isProxy(peer)) return peer;
    let client = peer;
    const named = [forwarded].flat().join(',').split(',').slice(-MAX_PROXIES);
    for (const text of named.toReversed()) {
      const address = plainAddress(text.trim());
      // A trusted proxy writes addresses. Whatever is before another text was not written by one.
      if (address === undefined) return client;
      client = address;
      if (!this.#isProxy(address)) return client;
    }
    return client;
  }

  #isProxy(address: string): boolean {
    const plain = plainAddress(address);
    return plain !== undefined && this.#proxies.check(plain, isIP(plain) === 6 ? 'ipv6' : 'ipv4');
  }
}

/** Returns what one client may have of an address: IPv4 whole, of IPv6 the network. */
export function networkOf(address: string): string {
  if (!address.includes(':') || address.startsWith('::ffff:')) return address;
  // `::` stands for the groups that are missing.
  const [before = [], after] = address.split('::', 2).map((part) => (part === '' ? [] : part.split(':')));
  const missing = after === undefined ? 0 : 8 - before.length - after.length;
  return [...before, ...Array<string>(missing).fill('0'), ...(after ?? [])].slice(0, 4).join(':');
}
