import { randomInt } from 'node:crypto';

/** Below 2^31, so that peers that read ids into a 32-bit integer, and Lua, which prints 14 digits, echo them unharmed. */
const BITS = 31;
const MASK = 2 ** BITS - 1;

/** Secrets of this process. */
const start = randomInt(2 ** BITS);
const keys = [randomInt(2 ** BITS), randomInt(2 ** BITS), randomInt(2 ** BITS)] as const;
const factors = [randomInt(2 ** 30) * 2 + 1, randomInt(2 ** 30) * 2 + 1, randomInt(2 ** 30) * 2 + 1] as const;

let issued = 0;

/** Maps the numbers below 2^31 onto themselves, each to another, in an order that only the secrets tell. */
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
 * Returns an id for a request to any upstream, from 1 to 2^31 - 1. No other request of this process has it, until 2^31 were
 * made; and no other can be guessed from it. So a response that reaches another request than its own, over a connection that
 * several share, can never pass for the answer.
 */
export function nextRequestId(): number {
  const id = scramble((start + issued) & MASK);
  issued = (issued + 1) & MASK;
  return id === 0 ? nextRequestId() : id;
}
