import { Egress } from '../../src/egress/egress.ts';
import type { Resolve } from '../../src/http1/lookup.ts';
import { Dice } from './dice.ts';
import type { Finding } from './engine.ts';
import { Trap } from './trap.ts';

/** URLs that a server may name, and that lead to private addresses. They are requested in the process of the fuzzer. */
export const URLS = { name: 'urls', inputs: 400 };

/** The guard waits for no network, so that only a busy machine takes long. */
const MAX_MS = 4_000; // subject
const SCHEMES = [
  'https:',
  'https:',
  'https:',
  'https:',
  'HTTPS:',
  'http:',
  'ftp:',
  'file:',
  'wss:',
  'data:',
  'gopher:',
];
const SLASHES = ['//', '//', '//', '/', '', '\\\\', '///'];
/** Notations of private addresses, and names that the resolver below knows. */
const HOSTS = [
  '127.0.0.1',
  '127.1',
  '2130706433',
  '0x7f000001',
  '0x7f.1',
  '0177.0.0.01',
  '127.0.0.1.',
  '１２７.０.０.１',
  '127。0。0。1',
  '%31%32%37.0.0.1',
  '0',
  '0.0.0.0',
  '10.1.2.3',
  '172.16.0.1',
  '192.168.1.1',
  '100.64.0.1',
  '169.254.169.254',
  '[::1]',
  '[::]',
  '[0:0:0:0:0:0:0:1]',
  '[::ffff:127.0.0.1]',
  '[::ffff:7f00:1]',
  '[::127.0.0.1]',
  '[64:ff9b::7f00:1]',
  '[2002:7f00:1::]',
  '[fd00:ec2::254]',
  '[fe80::1]',
  'localhost',
  'LOCALHOST',
  'localhost.',
  'a.localhost',
  'loopback.example.com',
  'mixed.example.com',
  'mapped.example.com',
  'metadata.example.com',
  'rebinding.example.com',
  'nothing.example.com',
  'ⓛocalhost',
  '',
];
const ADDRESSES: Readonly<Record<string, readonly string[]>> = {
  'loopback.example.com': ['127.0.0.1'],
  'mixed.example.com': ['203.0.113.1', '127.0.0.1'],
  'mapped.example.com': ['::ffff:127.0.0.1'],
  'metadata.example.com': ['169.254.169.254'],
  'nothing.example.com': [],
};
const USERS = ['', '', '', '', 'user@', 'user:SECRET@', 'example.com@', 'example.com%2f@'];
const PATHS = ['/', '', '/a', '/../..', '?x=SECRET', '/a#SECRET', '\\@example.com', '/%00', '/\u0000'];

/** Returns a URL that leads to a private address, or to none. @param port of this machine. */
export function urlOf(dice: Dice, port: number): string {
  const ports = [`:${port}`, `:${port}`, '', ':0', ':65536', ':443'];
  return `${dice.one(SCHEMES)}${dice.one(SLASHES)}${dice.one(USERS)}${dice.one(HOSTS)}${dice.one(ports)}${dice.one(PATHS)}`;
}

/** Returns a resolver of names that all lead to private addresses. */
export function resolvePrivate(): Resolve {
  let lookups = 0;
  return (host) => {
    // A name that has another address each time, as for an attack on guards that resolve twice.
    const rebound = lookups++ % 2 === 0 ? ['203.0.113.1', '10.0.0.1'] : ['127.0.0.1'];
    const addresses = host === 'rebinding.example.com' ? rebound : (ADDRESSES[host] ?? ['127.0.0.1']);
    return Promise.resolve(addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })));
  };
}

/** Requests URLs as those that an issuer names. Each is refused, and nothing connects to this machine. */
export async function checkUrls(seed: number, inputs: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  await using trap = await Trap.start();
  await using egress = new Egress(undefined, resolvePrivate());
  for (let index = 0; index < inputs; index++) {
    const url = urlOf(new Dice(seed * 1_000_003 + index), trap.port);
    const add = (oracle: Finding['oracle'], text: string) =>
      findings.push({ oracle, text, category: URLS.name, input: JSON.stringify(url) });
    const startedMs = performance.now();
    try {
      const { status } = await egress.fetch(url, 'discovered');
      add('denied', `it was answered ${status}`);
    } catch (thrown) {
      const shown = thrown instanceof Error ? `${thrown.name}: ${thrown.message}` : String(thrown);
      if (thrown instanceof Error && thrown.name === 'TypeError') add('alive', shown);
      if (shown.includes('SECRET')) add('foreign', `the error has a part of the URL that may be secret: ${shown}`);
    }
    if (trap.connections > 0) {
      add('denied', 'something connected to this machine');
      return findings;
    }
    const tookMs = performance.now() - startedMs;
    if (tookMs > MAX_MS) add('delay', `it took ${tookMs.toFixed(0)} ms`);
  }
  return findings;
}
