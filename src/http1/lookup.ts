import { ADDRCONFIG, type LookupAddress, lookup } from 'node:dns';
import type { LookupFunction } from 'node:net';
import { getOrMake } from '../map-entries.ts';

/** Resolves a host name to all of its addresses. */
export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

// As `connect` asks without a function for it.
const HINTS = process.platform === 'win32' ? 0 : ADDRCONFIG;

const askSystem: Resolve = (host) =>
  new Promise((resolve, reject) => {
    lookup(host, { all: true, hints: HINTS }, (error, addresses) => {
      if (error === null) resolve(addresses);
      else reject(error);
    });
  });

/**
 * Returns a function that asks for a name once, however many wait for its addresses.
 *
 * Node looks a few names up at a time, and cannot end that. Further attempts at a name without an answer would hold up all other names.
 */
export function sharing(resolve: Resolve): Resolve {
  const pending = new Map<string, ReturnType<Resolve>>();
  return (host) => getOrMake(pending, host, () => resolve(host).finally(() => pending.delete(host)));
}

export const addressesOf: Resolve = sharing(askSystem);

/** The `lookup` of sockets that connect to any address. */
export const sharedLookup: LookupFunction = (host, { all = false }, answer) => {
  addressesOf(host).then(
    (addresses) => {
      const [first] = addresses;
      if (all || first === undefined) answer(null, [...addresses]);
      else answer(null, first.address, first.family);
    },
    (thrown: NodeJS.ErrnoException) => answer(thrown, ''),
  );
};
