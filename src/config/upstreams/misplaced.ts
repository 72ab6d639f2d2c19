import type { UpstreamEntry } from '../schema/upstream-schema.ts';
import type { HttpTarget, StdioTarget } from '../values/upstream-config.ts';
import type { Fault } from './entry.ts';

type Kind = (StdioTarget | HttpTarget)['kind'];
type Keys = readonly (Fault & { readonly key: keyof UpstreamEntry })[];
/** Keys of an entry that starts a program, and of one that connects to a URL. */
type KeysOfKinds = Readonly<Record<'program' | 'url', Keys>>;

const NO_PROGRAM = 'this entry connects to a URL and starts no program';

/** Keys that a kind must not have: most protect, and would promise what nothing does. */
const REFUSED: KeysOfKinds = {
  program: [
    { key: 'auth', message: 'is for a "url"; a program gets "env"' },
    { key: 'tls', message: 'is for a "url", and this entry starts a program; remove it' },
  ],
  url: [
    { key: 'sandbox', message: `${NO_PROGRAM}; remove it` },
    { key: 'processLimits', message: `${NO_PROGRAM}; remove it` },
  ],
};

/** Keys that a kind does not use. */
const UNUSED: KeysOfKinds = {
  program: [
    { key: 'url', message: 'has no effect: this entry starts a program' },
    { key: 'headers', message: 'has no effect: this entry starts a program, which gets "env"' },
  ],
  url: [
    { key: 'command', message: `has no effect: ${NO_PROGRAM}` },
    { key: 'args', message: `has no effect: ${NO_PROGRAM}` },
    { key: 'env', message: `has no effect: ${NO_PROGRAM}; a URL gets "headers"` },
    { key: 'envFile', message: `has no effect: ${NO_PROGRAM}` },
    { key: 'cwd', message: `has no effect: ${NO_PROGRAM}` },
  ],
};

/** Returns the problem of a key that must not stand in an entry of this kind; undefined if there is none. */
export function refusedKey(entry: UpstreamEntry, kind: Kind): Fault | undefined {
  return of(kind, REFUSED).find(({ key }) => entry[key] !== undefined);
}

/** Returns the keys that have no effect in an entry of this kind. Clients write some of them empty, which is right. */
export function unusedKeys(entry: UpstreamEntry, kind: Kind): readonly Fault[] {
  return of(kind, UNUSED).filter(({ key }) => !isEmpty(entry[key]));
}

function of(kind: Kind, { program, url }: KeysOfKinds): Keys {
  return kind === 'stdio' ? program : url;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || (typeof value === 'object' && Object.keys(value ?? {}).length === 0);
}
