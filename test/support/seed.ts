const given = process.env['LINKSPAN_SEED'] ?? '1';

/**
 * The seed of all random inputs: 1, so that every run of a commit has the same verdict. `npm run test:full` sets another, and prints it.
 * `LINKSPAN_SEED=random` chooses one for each file. Tests print theirs.
 */
export const SEED = given === 'random' ? Math.floor(Math.random() * 2 ** 32) : Number(given);
