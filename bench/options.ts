import { availableParallelism } from 'node:os';
import { parseArgs } from 'node:util';
import { canPin } from './program.ts';
import { type Scenario, SCENARIOS } from './scenarios.ts';
import { type Subject, SUBJECTS } from './subjects.ts';

/** What the command line asks for. */
export interface Options {
  readonly seconds: number;
  readonly rounds: number;
  readonly connections: number;
  readonly isPinned: boolean;
  readonly scenarios: readonly Scenario[];
  readonly subjects: readonly Subject[];
  readonly jsonFile: string | undefined;
}

function positive(text: string, name: string): number {
  const value = Number(text);
  if (!(value > 0)) throw new TypeError(`--${name} takes a number above 0, not "${text}"`);
  return value;
}

function named<T extends { readonly id: string }>(all: readonly T[], names: string, option: string): T[] {
  return names.split(',').map((name) => {
    const found = all.find(({ id }) => id === name);
    if (found === undefined)
      throw new TypeError(`--${option} knows ${all.map(({ id }) => id).join(', ')}, not "${name}"`);
    return found;
  });
}

/** @throws {TypeError} in words for whoever typed it. */
export function readOptions(): Options {
  const { values } = parseArgs({
    allowNegative: true,
    options: {
      seconds: { type: 'string', default: '3' },
      rounds: { type: 'string', default: '3' },
      connections: { type: 'string', default: '16' },
      only: { type: 'string' },
      subjects: { type: 'string' },
      json: { type: 'string' },
      pin: { type: 'boolean', default: true },
    },
  });
  return {
    seconds: positive(values.seconds, 'seconds'),
    rounds: Math.ceil(positive(values.rounds, 'rounds')),
    connections: Math.ceil(positive(values.connections, 'connections')),
    isPinned: values.pin && availableParallelism() > 1 && canPin(),
    scenarios: values.only === undefined ? SCENARIOS : named(SCENARIOS, values.only, 'only'),
    subjects:
      values.subjects === undefined
        ? SUBJECTS.filter(({ onRequest }) => onRequest === undefined)
        : named(SUBJECTS, values.subjects, 'subjects'),
    jsonFile: values.json,
  };
}
