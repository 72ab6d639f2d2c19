import type { Series } from '../suite.ts';

/** A series for each finding about hostile input, by its number. */
export const HOSTILE: readonly Series[] = [];
