import { hash } from 'node:crypto';
import type { Config } from '../../config/values/config.ts';
import type { UpstreamConfig } from '../../config/values/upstream-config.ts';
import { withoutPlaces } from '../../policy/access-config.ts';

const HASH_CHARS = 12;

/** Returns a hash of what the configs of all replicas have in common: without addresses and paths. */
export function configHash(config: Config): string {
  return hash('sha256', JSON.stringify(sharedPart(config))).slice(0, HASH_CHARS);
}

function sharedPart({ redis, audit, access, lock, auth, upstreams, ...config }: Config): object {
  return {
    ...config,
    file: '',
    listen: '',
    operator: '',
    operatorMayMove: '',
    stateDir: '',
    defaultStateDir: '',
    redis: redis && { ...redis, internal: '', advertise: '', caFile: hidden(redis.caFile) },
    audit: audit && { ...audit, file: '' },
    access: access && withoutPlaces({ ...access, tested: undefined }),
    lock: lock && { ...lock, file: '' },
    auth: { ...auth, keyFile: hidden(auth.keyFile) },
    upstreams: upstreams.map(withoutFolders),
  };
}

function withoutFolders({ target, ...upstream }: UpstreamConfig): object {
  if (target.kind !== 'stdio') return { ...upstream, target };
  const sandbox = target.sandbox && { ...target.sandbox, read: '', write: '' };
  return { ...upstream, target: { ...target, cwd: hidden(target.cwd), sandbox } };
}

/** Returns a path without its text, so that only its absence differs. */
function hidden(path: string | undefined): string | undefined {
  return path === undefined ? undefined : '';
}
