/**
 * The possible outcomes of a condition, as a set of bits. A known outcome has one bit. A condition that reads the arguments of a call,
 * which a list does not know, has several.
 */
export const TRUE = 1;
export const FALSE = 2;
export const FAILS = 4;
export const UNKNOWN = 7;
export type Outcomes = number;

const BITS = [TRUE, FALSE, FAILS] as const;

function combine(a: Outcomes, b: Outcomes, one: (a: Outcomes, b: Outcomes) => Outcomes): Outcomes {
  let all = 0;
  for (const x of BITS) {
    for (const y of BITS) if ((a & x) !== 0 && (b & y) !== 0) all |= one(x, y);
  }
  return all;
}

/** Returns the outcomes of `a && b` in CEL, where false wins over a failure. */
export function and(a: Outcomes, b: Outcomes): Outcomes {
  return combine(a, b, (x, y) => (x === FALSE || y === FALSE ? FALSE : x === FAILS || y === FAILS ? FAILS : TRUE));
}

/** Returns the outcomes of `a || b` in CEL, where true wins over a failure. */
export function or(a: Outcomes, b: Outcomes): Outcomes {
  return combine(a, b, (x, y) => (x === TRUE || y === TRUE ? TRUE : x === FAILS || y === FAILS ? FAILS : FALSE));
}

/** Returns the outcomes of `!a`. */
export function not(a: Outcomes): Outcomes {
  return ((a & TRUE) === 0 ? 0 : FALSE) | ((a & FALSE) === 0 ? 0 : TRUE) | (a & FAILS);
}

/** Returns the outcomes of `condition ? a : b`. */
export function choice(condition: Outcomes, a: Outcomes, b: Outcomes): Outcomes {
  return ((condition & TRUE) === 0 ? 0 : a) | ((condition & FALSE) === 0 ? 0 : b) | (condition & FAILS);
}
