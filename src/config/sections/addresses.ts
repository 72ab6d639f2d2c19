import { addressText, isLoopback, isLoopbackUrl, parseAddress, portFault, suggestAddress } from '../schema/address.ts';
import type { Address } from '../values/config.ts';
import type { Document } from '../document/document.ts';
import { valueAt } from '../document/expanded.ts';
import type { Faults } from '../document/faults.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import { type Problem, problemOfWhole } from '../document/problem.ts';
import { didYouMean } from '../document/suggest.ts';

/** Addresses given on the command line. */
export interface AddressOptions {
  readonly listen?: string | undefined;
  /** `off` disables the operator's port. */
  readonly operator?: string | undefined;
}

/** The parsed addresses of the command line; undefined if their option was not given. */
interface Overrides {
  readonly listen: Address | undefined;
  readonly operator: Address | false | undefined;
}

/** The addresses that the gateway listens on. */
export interface Addresses {
  readonly listen: Address;
  /** True if `listen` comes from the command line. */
  readonly listenOverridden: boolean;
  readonly operator: Address | undefined;
  /** Takes the next free port if the operator's port is in use. True if the port was not configured. */
  readonly operatorMayMove: boolean;
}

/** Parses the addresses of the command line. Adds invalid ones to `problems`. */
export function readOverrides({ listen, operator }: AddressOptions, problems: Problem[]): Overrides {
  const read = (option: '--listen' | '--operator', text: string): Address | undefined => {
    const address = parseAddress(text);
    if (address !== undefined) return address;
    const isOff = option === '--operator' && /^(?:no|none|false)$/i.test(text);
    const form =
      option === '--operator' ? 'host:port such as "127.0.0.1:3001", or off' : 'host:port such as "127.0.0.1:3000"';
    const near = isOff ? 'off' : suggestAddress(text);
    const expected = portFault(text) ?? `expected ${form}`;
    problems.push(problemOfWhole(option, `${expected}, got ${JSON.stringify(text)}${didYouMean(near)}`));
    return undefined;
  };
  return {
    listen: listen === undefined ? undefined : read('--listen', listen),
    operator: operator === undefined ? undefined : operator === 'off' ? false : read('--operator', operator),
  };
}

/** Decides where to listen. The command line overrides the file, and the file overrides the defaults. */
export function addressesOf(document: Document, settings: GatewaySettings, overrides: Overrides): Addresses {
  const listen = overrides.listen ?? settings.listen;
  const wanted = overrides.operator ?? settings.operator;
  const operatorMayMove =
    wanted !== false &&
    overrides.operator === undefined &&
    valueAt(document.data, ['gateway', 'operator']) === undefined;
  const operator =
    wanted === false
      ? undefined
      : operatorMayMove && wanted.port === listen.port
        ? { ...wanted, port: wanted.port + 1 }
        : wanted;
  return { listen, listenOverridden: overrides.listen !== undefined, operator, operatorMayMove };
}

/**
 * Judges these addresses: open to the network without authentication, or two ports at one address.
 *
 * @param hasAuth whether clients have to authenticate.
 */
export function judgeAddresses(hasAuth: boolean, addresses: Addresses, faults: Faults): void {
  const { listen, listenOverridden, operator } = addresses;
  if (!isLoopback(listen.host) && !hasAuth) {
    const message = `${listen.host} is open to the network without authentication; configure gateway.auth, start with --first-key, or listen on 127.0.0.1`;
    if (listenOverridden) faults.problems.push(problemOfWhole('--listen', message));
    else faults.refuse(['gateway', 'listen'], message);
  }
  if (operator !== undefined && operator.port !== 0 && operator.port === listen.port && overlap(operator, listen))
    faults.refuse(['gateway', 'operator'], 'is the address of listen; operators have a port of their own');
}

/** Returns whether two addresses with the same port cannot both be bound, as far as their hosts tell. */
function overlap(one: Address, other: Address): boolean {
  const [a, b] = [boundHost(one), boundHost(other)];
  return a === b || covers(a, b) || covers(b, a);
}

/**
 * Returns whether a connection of this machine to a host reaches a socket that is bound to this address. Ports are not compared.
 *
 * @param host as a URL has it.
 */
export function isSameHost(bound: Address, host: string): boolean {
  const own = boundHost(bound);
  const isOfMachine = isLoopbackUrl(new URL(`http://${host}`)) || host === own;
  return isOfMachine && (own === host || covers(own, host) || covers(host, own));
}

/** Returns whether a socket that is bound to one host also has the port of another. */
function covers(bound: string, other: string): boolean {
  // A socket of `::` takes connections over IPv4 as well.
  if (bound === '[::]') return true;
  if (bound === '0.0.0.0') return !other.startsWith('[');
  return bound === 'localhost' && (other === '127.0.0.1' || other === '[::1]');
}

/** Returns a host in the one spelling that URLs have: `0.0.0.0` for `0`, `[::1]` for `0:0::1`. */
function boundHost(address: Address): string {
  return URL.parse(`http://${addressText(address)}`)?.hostname ?? address.host;
}

/**
 * Adds warnings about addresses that are reachable from the network.
 *
 * @param hasAuth whether clients have to authenticate.
 */
export function warnOfExposure(
  hasAuth: boolean,
  settings: GatewaySettings,
  { listen, operator }: Addresses,
  faults: Faults,
): void {
  const { publicUrl, allowedHosts, auth } = settings;
  if (!hasAuth && publicUrl !== undefined && !isLoopbackUrl(new URL(publicUrl))) {
    const message =
      'clients of other machines use this name, and the gateway asks for no credentials; ' +
      'configure gateway.auth, unless the proxy in front does';
    faults.warn(['gateway', 'publicUrl'], message);
  }
  if (!isLoopback(listen.host) && publicUrl === undefined && allowedHosts.length === 0) {
    const message = 'without publicUrl or allowedHosts, requests that name the gateway by a host name are refused';
    faults.warn(['gateway', 'listen'], message);
  }
  if (!isLoopback(listen.host) && settings.access === undefined) {
    const message =
      'there is no access policy, so every client with credentials may use everything; see docs/policy.md';
    faults.warn(['gateway', 'access'], message);
  }
  if (operator !== undefined && !isLoopback(operator.host)) {
    const message = 'health and metrics on this port need no key; let only operators and their monitoring reach it';
    faults.warn(['gateway', 'operator'], message);
  }
  if (!isLoopback(listen.host) && publicUrl === undefined && auth.jwt.length + auth.introspection.length > 0) {
    const message =
      'is not set: clients that sign in are sent to the address of listen (0.0.0.0 is 127.0.0.1); write the origin that they use';
    faults.warn(['gateway', 'publicUrl'], message);
  }
}
