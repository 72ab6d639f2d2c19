import type { Address } from '../config/values/config.ts';
import { addressText, parseAddress } from '../config/schema/address.ts';

/** The address where a process accepts requests of the others: of a port, or of a Unix socket on one machine. */
export type InternalAddress = Address | { readonly path: string };

const UNIX = 'unix:';

/** Returns the address as `host:port`, `[v6]:port` or `unix:/path`. */
export function internalAddressText(address: InternalAddress): string {
  return 'path' in address ? `${UNIX}${address.path}` : addressText(address);
}

/** Parses what {@link internalAddressText} returns. Returns undefined if the text is no address. */
export function parseInternalAddress(text: string): InternalAddress | undefined {
  return text.startsWith(UNIX) ? { path: text.slice(UNIX.length) } : parseAddress(text);
}
