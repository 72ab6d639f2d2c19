/** fast-check with the seed of the run. Tests import it from here alone. */
import { configureGlobal } from 'fast-check';
import { SEED } from './seed.ts';

configureGlobal({ seed: SEED });

export * from 'fast-check';
