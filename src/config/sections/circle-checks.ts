import { resolve } from 'node:path';
import { COMMAND } from '../../command-name.ts';
import { endpointPath, ssePath } from '../../endpoint-path.ts';
import type { Config } from '../values/config.ts';
import type { Document } from '../document/document.ts';
import type { Problem } from '../document/problem.ts';
import type { HttpTarget, StdioTarget, UpstreamConfig } from '../values/upstream-config.ts';
import { placeOf, type UpstreamMap } from '../upstreams/client-file.ts';
import { isOwnFile } from '../upstreams/top-level-keys.ts';
import { isSameHost } from './addresses.ts';

/** The parts of a config that say where clients reach its gateway, and with which upstreams. */
type Served = Pick<Config, 'file' | 'listen' | 'tls' | 'publicUrl' | 'profiles'>;

const ITSELF = 'this is the gateway itself';
const AT_ITS_ADDRESS = `${ITSELF}, which listens there with "${COMMAND} run"`;
const ELSEWHERE = `, let the gateway listen elsewhere, or use "${COMMAND} stdio", which listens nowhere`;

/** Upstreams that are the gateway itself. */
interface Itself {
  /** Of our own file, by upstream id: mistakes of its author. */
  readonly problems: ReadonlyMap<string, Problem>;
  /** Of a client's file, by upstream id: the client needs the entry. They are left out. */
  readonly leftOut: ReadonlyMap<string, Problem>;
}

/**
 * Returns the upstreams that are the gateway of this config itself. They have the URL of an endpoint that has them, or are
 * a program that serves the same file over stdio. Other ways back are noticed when lists are read (`gateway/lists/circles.ts`).
 *
 * @param listens false for a gateway that opens no port.
 */
export function judgeItself(
  { document, map }: { readonly document: Document; readonly map: UpstreamMap },
  served: Served,
  upstreams: readonly UpstreamConfig[],
  listens: boolean,
): Itself {
  const found = new Map<string, Problem>();
  const isOwn = isOwnFile(document);
  for (const { id, target } of upstreams) {
    const isItself =
      target.kind === 'stdio' ? servesFile(target, served.file) : listens && leadsBack(id, target, served);
    if (!isItself) continue;
    const [what, way] = target.kind === 'stdio' ? [ITSELF, ''] : [AT_ITS_ADDRESS, ELSEWHERE];
    const rest = isOwn ? `its tools would come back under one more prefix; remove this entry${way}` : 'left out';
    found.set(id, document.problem(placeOf(map, id), `${what}; ${rest}`, 'key'));
  }
  return isOwn ? { problems: found, leftOut: new Map() } : { problems: new Map(), leftOut: found };
}

/** Returns whether a URL is that of an endpoint with this upstream. */
function leadsBack(id: string, target: HttpTarget, { listen, tls, publicUrl, profiles }: Served): boolean {
  const url = URL.parse(target.url);
  if (url === null) return false;
  const views = ['', id, ...profiles.filter(({ upstreams }) => upstreams.includes(id)).map((profile) => profile.id)];
  const paths = views.flatMap((view) => [endpointPath(view), ssePath(view)]);
  if (!paths.includes(url.pathname.replace(/\/$/, ''))) return false;
  if (url.origin === publicUrl) return true;
  const scheme = tls === undefined ? 'http:' : 'https:';
  const port = Number(url.port) || (url.protocol === 'https:' ? 443 : 80);
  return url.protocol === scheme && listen.port === port && isSameHost(listen, url.hostname);
}

/** Returns whether a program is a gateway that serves this config file to its client. */
function servesFile({ args, env, cwd = '.' }: StdioTarget, file: string): boolean {
  if (!args.includes('stdio')) return false;
  const at = args.indexOf('--config');
  const named = at < 0 ? args.find((one) => one.startsWith('--config='))?.slice('--config='.length) : args[at + 1];
  const config = named ?? env['LINKSPAN_CONFIG'];
  return config !== undefined && resolve(cwd, config) === file;
}
