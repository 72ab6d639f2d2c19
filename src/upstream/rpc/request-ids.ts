import { randomInt } from 'node:crypto';

/**
 * Ids are below 2^31: some peers read them into 32-bit integers, and Lua prints at most 14 digits. They have ten digits, so that
 * equal answers are equally long.
 */
const MIN = 1_000_000_000;
const BITS = 31;
const MASK = 2 ** BITS - 1;

/** Random secrets of this process. */
const start = randomInt(2 ** BITS);
const keys = [randomInt(2 ** BITS), randomInt(2 ** BITS), randomInt(2 ** BITS)] as const;
const factors = [randomInt(2 ** 30) * 2 + 1, randomInt(2 ** 30) * 2 + 1, randomInt(2 ** 30) * 2 + 1] as const;

let issued = 0;

/** Returns a secret permutation of the numbers below 2^31. */
function scramble(number: number): number {
  let scrambled = number;
  for (let round = 0; round < 3; round++) {
    scrambled ^= keys[round] ?? 0;
    scrambled = Math.imul(scrambled, factors[round] ?? 1) & MASK;
    scrambled ^= scrambled >>> 15;
  }
  return scrambled;
}

/**
 * Returns an id for a request to any upstream, from 10^9 to 2^31 - 1. An id repeats only after a billion requests, and cannot
 * be guessed from other ids. So on a shared connection, a misdirected response is never taken for the answer.
 */
export function nextRequestId(): number {
  for (;;) {
    const id = scramble((start + issued) & MASK);
    issued = (issued + 1) & MASK;
    if (id >= MIN) return id;
  }
}

/**
 * Returns the number of an id or token of ours that a peer sends back; NaN if it cannot be one. Some peers make a text of it.
 *
 * @param raw its JSON text.
 */
export function sentBackId(raw: string | undefined): number {
  return Number(raw?.startsWith('"') === true ? raw.slice(1, -1) : raw);
}
