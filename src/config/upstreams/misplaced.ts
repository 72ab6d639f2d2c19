import type { UpstreamEntry } from '../schema/upstream-schema.ts';
import type { Fault } from './entry.ts';

/** A program is started, a URL is connected to. */
type Kind = 'program' | 'url';
type Keys = Readonly<Record<Kind, readonly (readonly [key: keyof UpstreamEntry, message: string])[]>>;

const NO_PROGRAM = 'this entry connects to a URL and starts no program';

/** Keys that a kind must not have: most protect, and would promise what nothing does. */
const REFUSED: Keys = {
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
const UNUSED: Keys = {
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
  return REFUSED[kind].map(([key, message]) => ({ key, message })).find(({ key }) => entry[key] !== undefined);
}

/** Returns the keys that have no effect in an entry of this kind. Clients write some of them empty, which is right. */
export function unusedKeys(entry: UpstreamEntry, kind: Kind): readonly Fault[] {
  return UNUSED[kind].filter(([key]) => !isEmpty(entry[key])).map(([key, message]) => ({ key, message }));
}

function isEmpty(value: unknown): boolean {
  return value === undefined || (typeof value === 'object' && Object.keys(value ?? {}).length === 0);
}
