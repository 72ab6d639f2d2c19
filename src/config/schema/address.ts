import { isIPv4, isIPv6 } from 'node:net';

import type { Address } from '../values/config.ts';

const MAX_PORT = 65_535;

/** Parses `host:port` or `[v6]:port`. Returns undefined if the text is neither. */
export function parseAddress(text: string): Address | undefined {
  const [, v6, name, digits = ''] = /^(?:\[([\da-fA-F:.]+)\]|([A-Za-z0-9_.-]+)):(\d{1,5})$/.exec(text) ?? [];
  const host = v6 ?? name;
  const port = Number(digits);
  if (host === undefined || port > MAX_PORT || (v6 !== undefined && !isIPv6(v6))) return undefined;
  return { host, port };
}

/** Returns what is expected of the port of an address or URL; undefined if it is none that is out of range. Only listeners may have port 0. */
export function portFault(text: string): string | undefined {
  const [, authority] = /^[^/?#]*:\/\/([^/?#]*)/.exec(text) ?? [];
  const least = authority === undefined ? 0 : 1;
  const ports = [...(authority ?? text).matchAll(/:(\d+)(?=$|,)/g)].map(([, digits]) => Number(digits));
  const isWrong = ports.some((port) => port < least || port > MAX_PORT);
  return isWrong ? `expected a port from ${least} to ${MAX_PORT}` : undefined;
}

/** Returns the address as `host:port` or `[v6]:port`. */
export function addressText({ host, port }: Address): string {
  return `${isIPv6(host) ? `[${host}]` : host}:${port}`;
}

export function suggestAddress(value: unknown): string | undefined {
  const text = String(value);
  if (/^:?\d{1,5}$/.test(text)) return `127.0.0.1:${text.replace(':', '')}`;
  if (/^[A-Za-z0-9.-]+$/.test(text)) return `${text}:3000`;
  const [, address] = /^https?:\/\/([^/]+:\d+)\/?$/.exec(text) ?? [];
  return address;
}

/** Returns whether only this machine can reach the host. */
export function isLoopback(host: string): boolean {
  return host.toLowerCase() === 'localhost' || host === '::1' || (isIPv4(host) && host.startsWith('127.'));
}

/** Returns whether only this machine serves a URL. */
export function isLoopbackUrl({ hostname }: URL): boolean {
  return isLoopback(hostname.replace(/^\[|\]$/g, ''));
}

/** Returns whether a text is a URL that nobody on the network can read along: https, or http to this machine. It has no user name and password. */
export function isSecureUrl(text: string): boolean {
  const url = URL.parse(text);
  if (url === null || url.username !== '' || url.password !== '') return false;
  return url.protocol === 'https:' || (url.protocol === 'http:' && isLoopbackUrl(url));
}

/** Returns whether a text is a host name as a URL may have it, or one after `*.`. */
export function isHostPattern(text: string): boolean {
  const name = text.replace(/^\*\./, '').toLowerCase();
  return !name.includes('*') && URL.parse(`https://${name}`)?.hostname === name;
}
