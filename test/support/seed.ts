/**
 * Returns the seed of random tests: 1, or `LINKSPAN_SEED`, for which `random` stands for another one in each run. A test prints its seed, so that
 * a failure can be repeated.
 */
export function chosenSeed(): number {
  const seed = process.env['LINKSPAN_SEED'] ?? '1';
  return seed === 'random' ? Math.floor(Math.random() * 2 ** 32) : Number(seed);
}
