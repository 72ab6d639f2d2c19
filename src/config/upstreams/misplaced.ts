import type { UpstreamEntry } from '../schema/upstream-schema.ts';
import type { HttpTarget, StdioTarget } from '../values/upstream-config.ts';
import type { Fault } from './entry.ts';

type Kind = (StdioTarget | HttpTarget)['kind'];
type Keys = readonly (readonly [key: keyof UpstreamEntry, message: string])[];
/** Keys of an entry that starts a program, and of one that connects to a URL. */
type KeysOfKinds = Readonly<Record<'program' | 'url', Keys>>;

const NO_PROGRAM = 'this entry connects to a URL and starts no program';

/** Keys that a kind must not have: most protect, and would promise what nothing does. */
const REFUSED: KeysOfKinds = {
  program: [
    ['auth', 'is for a "url"; a program gets "env"'],
    ['tls', 'is for a "url", and this entry starts a program; remove it'],
  ],
  url: [
    ['sandbox', `${NO_PROGRAM}; remove it`],
    ['processLimits', `${NO_PROGRAM}; remove it`],
  ],
};

/** Keys that a kind does not use. */
const UNUSED: KeysOfKinds = {
  program: [
    ['url', 'has no effect: this entry starts a program'],
    ['headers', 'has no effect: this entry starts a program, which gets "env"'],
  ],
  url: [
    ['command', `has no effect: ${NO_PROGRAM}`],
    ['args', `has no effect: ${NO_PROGRAM}`],
    ['env', `has no effect: ${NO_PROGRAM}; a URL gets "headers"`],
    ['envFile', `has no effect: ${NO_PROGRAM}`],
    ['cwd', `has no effect: ${NO_PROGRAM}`],
  ],
};

/** Returns the problem of a key that must not stand in an entry of this kind; undefined if there is none. */
export function refusedKey(entry: UpstreamEntry, kind: Kind): Fault | undefined {
  return of(kind, REFUSED)
    .map(([key, message]) => ({ key, message }))
    .find(({ key }) => entry[key] !== undefined);
}

/** Returns the keys that have no effect in an entry of this kind. Clients write some of them empty, which is right. */
export function unusedKeys(entry: UpstreamEntry, kind: Kind): readonly Fault[] {
  return of(kind, UNUSED)
    .filter(([key]) => !isEmpty(entry[key]))
    .map(([key, message]) => ({ key, message }));
}

function of(kind: Kind, { program, url }: KeysOfKinds): Keys {
  return kind === 'stdio' ? program : url;
}

function isEmpty(value: unknown): boolean {
  return value === undefined || (typeof value === 'object' && Object.keys(value ?? {}).length === 0);
}
