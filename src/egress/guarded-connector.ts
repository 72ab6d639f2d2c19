import { isIP, type LookupFunction } from 'node:net';
import { buildConnector } from 'undici';
import { type EgressConfig, DIRECT_EGRESS } from '../config/values/credentials.ts';
import { addressesOf, type Resolve } from '../http1/lookup.ts';
import { addressOf, tunnelConnector } from '../http1/tunnel.ts';
import { EgressError } from './egress-error.ts';
import { bypassesProxy } from './proxy-bypass.ts';
import { type AddressCheck, isMetadataAddress, isMetadataName, publicAddressCheck } from './public-address.ts';

/** The origin of a URL: it is in the config, or a server has named it. */
export type UrlSource = 'configured' | 'discovered';

const CONNECT_MS = 5_000;

/** Returns the check of addresses for URLs of a source. URLs in the config may lead anywhere but to cloud metadata. */
function addressCheck(source: UrlSource, { privateNetworks }: EgressConfig): AddressCheck {
  if (source === 'discovered') return publicAddressCheck(privateNetworks);
  return (address) => (isMetadataAddress(address) ? 'an address of cloud metadata' : undefined);
}

/**
 * Returns a `connect` function for undici that connects only to allowed addresses. A name is resolved once, and the socket connects to an
 * address that was checked. So a second answer of DNS has no effect. With a proxy, the proxy resolves names.
 */
export function guardedConnector(
  source: UrlSource,
  config: EgressConfig = DIRECT_EGRESS,
  resolve: Resolve = addressesOf,
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
    // An address in the URL is not looked up, and a proxy looks names up itself.
    const nameFault = isMetadataName(host) ? 'a name of cloud metadata' : undefined;
    const why = isIP(host) === 0 ? nameFault : faultOf(host);
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

function asError(thrown: unknown): Error {
  return thrown instanceof Error ? thrown : new EgressError(String(thrown));
}
