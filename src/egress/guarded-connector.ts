import { type LookupAddress, lookup } from 'node:dns';
import { isIP, type LookupFunction } from 'node:net';
import { buildConnector } from 'undici';
import { type EgressConfig, DIRECT_EGRESS } from '../config/values/credentials.ts';
import { addressOf, tunnelConnector } from '../http1/tunnel.ts';
import { EgressError } from './egress-error.ts';
import { bypassesProxy } from './proxy-bypass.ts';
import { isMetadataAddress, isMetadataName, PublicAddresses } from './public-address.ts';

/** The origin of a URL: it is in the config, or a server has named it. */
export type UrlSource = 'configured' | 'discovered';

/** Resolves a host name to all of its addresses. */
export type Resolve = (host: string) => Promise<readonly LookupAddress[]>;

const CONNECT_MS = 5_000;

const systemResolve: Resolve = (host) =>
  new Promise((resolve, reject) => {
    lookup(host, { all: true }, (error, addresses) => {
      if (error === null) resolve(addresses);
      else reject(error);
    });
  });

/** Returns the reason why a URL of this source may not lead to an address; undefined if it may. */
type AddressCheck = (address: string) => string | undefined;

/** Returns the check of addresses for URLs of a source. URLs in the config may lead anywhere but to cloud metadata. */
function addressCheck(source: UrlSource, { privateNetworks }: EgressConfig = DIRECT_EGRESS): AddressCheck {
  if (source === 'configured') {
    return (address) => (isMetadataAddress(address) ? 'an address of cloud metadata' : undefined);
  }
  const addresses = new PublicAddresses(privateNetworks);
  return (address) => addresses.faultOf(address);
}

/**
 * Returns a `connect` function for undici that connects only to allowed addresses. A name is resolved once, and the socket connects to an
 * address that was checked. So a second answer of DNS has no effect. With a proxy, the proxy resolves names.
 */
export function guardedConnector(
  source: UrlSource,
  config: EgressConfig = DIRECT_EGRESS,
  resolve: Resolve = systemResolve,
  connectMs: number = CONNECT_MS,
): buildConnector.connector {
  const faultOf = addressCheck(source, config);
  const refusal = (host: string, why: string) => new EgressError(`${host} is not connected to: it is ${why}`);
  const guardedLookup: LookupFunction = (host, options, answer) => {
    resolve(host).then(
      (addresses) => {
        const why = addresses.map(({ address }) => faultOf(address)).find((fault) => fault !== undefined);
        const [first] = addresses;
        if (why !== undefined || first === undefined) {
          answer(refusal(host, why ?? 'a name without addresses'), '', 0);
        } else if (options.all === true) {
          answer(null, [...addresses]);
        } else {
          answer(null, first.address, first.family);
        }
      },
      (thrown: unknown) => answer(asError(thrown), '', 0),
    );
  };
  const direct = buildConnector({ ...config.tls, allowH2: false, timeout: connectMs, lookup: guardedLookup });
  return (options, answer) => {
    const { host, port } = addressOf(options);
    // An address in the URL is not looked up.
    const why = isIP(host) === 0 ? nameFault(host) : faultOf(host);
    if (why !== undefined) {
      answer(refusal(host, why), null);
      return;
    }
    const { proxy: url, noProxy } = config;
    if (url === undefined || bypassesProxy(noProxy, host, port)) {
      direct(options, answer);
      return;
    }
    tunnelConnector({ url, connectMs }, direct)(options, answer);
  };
}

/** Returns the reason why no URL may lead to a name, whatever its addresses; undefined for other names. */
function nameFault(host: string): string | undefined {
  return isMetadataName(host) ? 'a name of cloud metadata' : undefined;
}

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new EgressError(String(thrown));
}
