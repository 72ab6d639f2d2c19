import { type LimitName, LIMITS } from '../../limits.ts';

const SLASH = 0x2f;

interface Step {
  /** True if the expression's value may contain a `/`. A simple `{x}` is percent-encoded, so it may not; but some servers take `{x*}` for any path. */
  readonly mayContainSlash: boolean;
  /** True if the value may be absent: only with an operator that adds its own separator. */
  readonly isOptional: boolean;
  /** The literal text after the expression. */
  readonly literal: string;
}

/** A URI template split into literals and expressions, to match the URIs made from it. */
export interface Matcher {
  readonly start: string;
  readonly steps: readonly Step[];
  /** The smallest number of characters of a matching URI. */
  readonly minChars: number;
}

/** The number of steps that a lookup may still take; each takes about 50 ns. */
export interface StepAllowance {
  steps: number;
}

/** Returns whether a URI or template of a peer is too long for matching. */
export function isTooLong(uri: string): boolean {
  return uri.length > LIMITS.templateUriBytes || Buffer.byteLength(uri) > LIMITS.templateUriBytes;
}

/**
 * Parses an RFC 6570 template. Returns undefined if its braces do not pair up, it is too long, or it has too many
 * expressions. Ignores variable names, which do not matter for matching, and uses operators only as {@link Step}
 * describes.
 *
 * @param onLimit called if it is too long, or has too many expressions.
 */
export function parseTemplate(template: string, onLimit?: (limit: LimitName) => void): Matcher | undefined {
  if (isTooLong(template)) {
    onLimit?.('templateUriBytes');
    return undefined;
  }
  const [start = '', ...parts] = template.split('{');
  if (parts.length > LIMITS.templateExpressions) {
    onLimit?.('templateExpressions');
    return undefined;
  }
  if (start.includes('}')) return undefined;
  const steps: Step[] = [];
  let minChars = start.length;
  for (const part of parts) {
    const [expression = '', literal, ...rest] = part.split('}');
    if (literal === undefined || rest.length > 0) return undefined;
    const operator = /^[+#./;?&]/.exec(expression)?.[0];
    const isOptional = operator !== undefined && operator !== '+';
    minChars += literal.length + (isOptional ? 0 : 1);
    const mayContainSlash = operator !== undefined || expression.includes('*');
    steps.push({ mayContainSlash, isOptional, literal });
  }
  return { start, steps, minChars };
}

/** Returns whether a URI with the template's literal start matches: not if that needs more steps than are left. */
export function matchesTemplate({ start, steps, minChars }: Matcher, uri: string, allowance: StepAllowance): boolean {
  const last = steps.at(-1);
  if (uri.length < minChars) return false;
  if (last === undefined) return uri.length === start.length;
  if (!uri.endsWith(last.literal)) return false;
  // Of the positions where a part of the template can end, the first between two slashes is enough for all between
  // them.
  let reached: readonly number[] = [start.length];
  for (let i = 0; i < steps.length - 1; i++) {
    const step = steps[i];
    if (step !== undefined) reached = findEnds(step, uri, reached, allowance);
    if (reached.length === 0 || allowance.steps <= 0) return false;
  }
  return reachesEnd(last, uri, reached, allowance);
}

/** Returns the steps for a search over so many characters. A long literal is compared at many positions. */
function searchCost(chars: number, literalChars: number): number {
  return 4 + ((Math.max(chars, 0) * (1 + (literalChars >> 4))) >> 3);
}

/** Returns the positions where an expression and its literal can end, ascending: the first one of each path segment. */
function findEnds(
  { mayContainSlash, isOptional, literal }: Step,
  uri: string,
  reached: readonly number[],
  allowance: StepAllowance,
): number[] {
  const ends: number[] = [];
  /** Ends before this position are not needed: their segment has one already. */
  let from = 0;
  for (const place of reached) {
    const segmentEnd = mayContainSlash ? uri.length : endOfSegment(uri, place);
    let at = Math.max(isOptional ? place : place + 1, from);
    for (;;) {
      if (allowance.steps <= 0) return ends;
      const start = uri.indexOf(literal, at);
      allowance.steps -= searchCost((start < 0 ? uri.length : start) - at, literal.length);
      // An empty literal that is searched beyond the end is found before the start of the search.
      if (start < at || start > segmentEnd) break;
      const end = start + literal.length;
      if (ends.length === 0 || end > (ends.at(-1) ?? 0)) ends.push(end);
      // Ends before the next slash can be reached from this one too.
      at = from = Math.max(start + 1, endOfSegment(uri, end) + 1 - literal.length);
    }
    if (mayContainSlash) break;
  }
  return ends;
}

function endOfSegment(uri: string, at: number): number {
  const slash = uri.indexOf('/', at);
  return slash < 0 ? uri.length : slash;
}

/** Returns whether the last expression can match the text between a reached position and the last literal. */
function reachesEnd(
  { mayContainSlash, isOptional, literal }: Step,
  uri: string,
  reached: readonly number[],
  allowance: StepAllowance,
): boolean {
  const end = uri.length - literal.length;
  let segment = end;
  if (!mayContainSlash) while (segment > 0 && uri.charCodeAt(segment - 1) !== SLASH) segment--;
  allowance.steps -= reached.length;
  const min = isOptional ? 0 : 1;
  return reached.some((place) => (mayContainSlash || place >= segment) && place + min <= end);
}
