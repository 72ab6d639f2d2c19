import type { RateLimiterAbstract, RateLimiterRes } from 'rate-limiter-flexible';
import type { TakenUnits } from './rate-table.ts';

/**
 * Takes units from a limiter of the library, as many as are left. The library counts also those that are beyond the limit, so of all
 * takers only the one that crosses it gets a part.
 */
export async function takeFrom(
  limiter: Pick<RateLimiterAbstract, 'consume'>,
  counter: string,
  units: number,
  limit: number,
): Promise<TakenUnits> {
  try {
    const { msBeforeNext } = await limiter.consume(counter, units);
    return { units, endsInMs: Math.max(1, msBeforeNext) };
  } catch (thrown) {
    // The library rejects with a result if the limit is reached.
    if (!isResult(thrown)) throw thrown;
    const left = limit - (thrown.consumedPoints - units);
    return { units: Math.max(0, Math.min(units, left)), endsInMs: Math.max(1, thrown.msBeforeNext) };
  }
}

function isResult(thrown: unknown): thrown is Pick<RateLimiterRes, 'consumedPoints' | 'msBeforeNext'> {
  return typeof thrown === 'object' && thrown !== null && 'consumedPoints' in thrown && 'msBeforeNext' in thrown;
}
