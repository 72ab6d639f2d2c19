/** The seed of all random inputs: 1, so that every run of a commit has the same verdict. `npm run test:full` sets another, and prints it. */
export const SEED = Number(process.env['LINKSPAN_SEED'] ?? 1);
