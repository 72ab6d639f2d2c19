import type { Series } from '../suite.ts';
import { BODIES_SERIES } from './bodies.ts';
import { DUPLICATES } from './duplicates.ts';
import { FLOODS } from './floods.ts';
import { HELD } from './held.ts';
import { LISTS, TEMPLATES } from './lists.ts';
import { ORPHANS } from './orphans.ts';
import { RESULTS, WORDS } from './words.ts';

/** A series for each finding about hostile input, by its number. */
export const HOSTILE: readonly Series[] = [
  DUPLICATES,
  LISTS,
  TEMPLATES,
  ...HELD,
  BODIES_SERIES,
  WORDS,
  FLOODS,
  ORPHANS,
  RESULTS,
];
