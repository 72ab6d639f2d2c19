import { existsSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { parseArgs } from 'node:util';
import { OWN_CHECKOUT } from './gateway-program.ts';
import { canPin } from './program.ts';
import { type Scenario, SCENARIOS } from './scenarios.ts';
import { gatewayOf, type Subject, SUBJECTS } from './subjects.ts';

/** Another checkout, whose gateway is measured in turns with the one of this run. */
export interface OtherCheckout {
  /** The id of its gateway as a subject. */
  readonly id: string;
  readonly folder: string;
}

/** The id of the subject that one `--against` adds. */
export const BEFORE = 'gateway-before';

/** The options of the command line. */
export interface Options {
  /** `request`: the cost of a request. `growth`: how cost grows. `hostile`: the cost of hostile input. */
  readonly suite: 'request' | 'growth' | 'hostile';
  /** Ids of scenarios or series, as the user wrote them. */
  readonly only: string | undefined;
  readonly seconds: number;
  readonly rounds: number;
  readonly connections: number;
  readonly isPinned: boolean;
  readonly scenarios: readonly Scenario[];
  readonly subjects: readonly Subject[];
  readonly jsonFile: string | undefined;
  /** The folder of the checkout whose gateway is measured. */
  readonly checkout: string;
  readonly against: readonly OtherCheckout[];
  /** Runs the gateway and those of `against` in one process. */
  readonly isSideBySide: boolean;
  /** Length of a slice in milliseconds; undefined for rounds whose connections are new. */
  readonly sliceMs: number | undefined;
}

function positive(text: string, name: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new TypeError(`--${name} takes a number above 0, not "${text}"`);
  return value;
}

/** @throws {TypeError} that lists the known ids. */
export function named<T extends { readonly id: string }>(
  all: readonly T[],
  names: string,
  option: string,
): readonly T[] {
  return names.split(',').map((name) => {
    const found = all.find(({ id }) => id === name);
    if (found === undefined)
      throw new TypeError(`--${option} knows ${all.map(({ id }) => id).join(', ')}, not "${name}"`);
    return found;
  });
}

/** Returns the absolute folder of a checkout. */
function checkoutAt(folder: string, option: string): string {
  const checkout = resolve(folder);
  if (!existsSync(join(checkout, 'src/main.ts')))
    throw new TypeError(`--${option} takes the folder of a checkout, not "${folder}"`);
  return checkout;
}

/** Returns the other checkouts. One alone is called {@link BEFORE}; several are called by their folders. @throws {TypeError} */
function otherCheckouts(folders: string | undefined): readonly OtherCheckout[] {
  if (folders === undefined) return [];
  const checkouts = folders.split(',').map((folder) => checkoutAt(folder, 'against'));
  const ids = checkouts.length === 1 ? [BEFORE] : checkouts.map((folder) => basename(folder));
  const taken = ids.find((id, at) => ids.indexOf(id) !== at || SUBJECTS.some((subject) => subject.id === id));
  if (taken !== undefined) throw new TypeError(`--against takes folders of different names, not two called "${taken}"`);
  return checkouts.map((folder, at) => ({ id: ids[at] ?? folder, folder }));
}

function subjectsFor(names: string | undefined, against: readonly OtherCheckout[]): readonly Subject[] {
  const chosen =
    names === undefined
      ? SUBJECTS.filter(({ onRequest }) => onRequest === undefined)
      : named(SUBJECTS, names, 'subjects');
  const others = against.map(({ id, folder }) => gatewayOf(id, folder));
  return [...SUBJECTS.filter((subject) => chosen.includes(subject)), ...others];
}

/** @throws {TypeError} that explains the mistake to the user. */
export function readOptions(args: readonly string[] = process.argv.slice(2)): Options {
  const { values } = parseArgs({
    args: [...args],
    allowNegative: true,
    options: {
      growth: { type: 'boolean', default: false },
      hostile: { type: 'boolean', default: false },
      seconds: { type: 'string', default: '3' },
      rounds: { type: 'string', default: '3' },
      slice: { type: 'string' },
      'one-process': { type: 'boolean', default: false },
      connections: { type: 'string', default: '16' },
      only: { type: 'string' },
      subjects: { type: 'string' },
      json: { type: 'string' },
      pin: { type: 'boolean', default: true },
      gateway: { type: 'string', default: OWN_CHECKOUT },
      against: { type: 'string' },
    },
  });
  if (values.growth && values.hostile) throw new TypeError('--growth and --hostile are two runs: name one of them');
  const suite = values.growth ? 'growth' : values.hostile ? 'hostile' : 'request';
  const against = otherCheckouts(values.against);
  return {
    suite,
    seconds: positive(values.seconds, 'seconds'),
    rounds: Math.ceil(positive(values.rounds, 'rounds')),
    connections: Math.ceil(positive(values.connections, 'connections')),
    isPinned: values.pin && availableParallelism() > 1 && canPin(),
    only: values.only,
    scenarios: suite !== 'request' || values.only === undefined ? SCENARIOS : named(SCENARIOS, values.only, 'only'),
    subjects: subjectsFor(values.subjects, against),
    jsonFile: values.json,
    checkout: checkoutAt(values.gateway, 'gateway'),
    against,
    isSideBySide: values['one-process'],
    sliceMs: values.slice === undefined ? undefined : positive(values.slice, 'slice'),
  };
}
