import type { Address, RedisTarget } from '../values/config.ts';
import { parseAddress } from './address.ts';

const FORM =
  /^(?<tls>rediss?)(?:\+(?<kind>sentinel|cluster))?:\/\/(?:(?<user>[^/?#@:]*)(?::(?<password>[^/?#@]*))?@)?(?<hosts>[^/?#@]+)(?<path>\/[^?#]*)?$/;

const DEFAULT_PORTS = { single: 6379, cluster: 6379, sentinel: 26_379 };

/**
 * Parses `redis://user:password@host:port/db`, `redis+sentinel://…@host:port,host:port/master/db` or
 * `redis+cluster://…@host:port,host:port`; each with `rediss` for TLS. Returns undefined if the text is none of them.
 */
export function parseRedisUrl(text: string): RedisTarget | undefined {
  const groups = FORM.exec(text)?.groups;
  if (groups === undefined) return undefined;
  const kind = groups['kind'] === 'sentinel' || groups['kind'] === 'cluster' ? groups['kind'] : 'single';
  const nodes = (groups['hosts'] ?? '').split(',').map((host) => nodeOf(host, DEFAULT_PORTS[kind]));
  const known = nodes.filter((node) => node !== undefined);
  const steps = (groups['path'] ?? '').split('/').slice(1);
  const master = kind === 'sentinel' ? steps.shift() : undefined;
  const database = steps.join('/');
  const [user, password] = [decoded(groups['user']), decoded(groups['password'])];
  if (known.length !== nodes.length || user === undefined || password === undefined) return undefined;
  if (!/^\d{0,5}$/.test(database) || (kind === 'cluster' && Number(database) !== 0)) return undefined;
  if ((kind === 'single' && nodes.length !== 1) || (kind === 'sentinel' && (master ?? '') === '')) return undefined;
  return {
    kind,
    tls: groups['tls'] === 'rediss',
    nodes: known,
    master: master ?? '',
    username: user === '' ? undefined : user,
    password: password === '' ? undefined : password,
    database: Number(database),
  };
}

function nodeOf(text: string, port: number): Address | undefined {
  return parseAddress(text) ?? parseAddress(`${text}:${port}`);
}

/** Returns a part of a URL without percent-encoding; undefined if it is malformed. */
export function decoded(text = ''): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}
