import { LIMITS } from '../../limits.ts';

const MAX_EXPRESSIONS = 32;
const SLASH = 0x2f;

interface Step {
  /** Whether the expression's value may hold a `/`. A simple `{x}` is encoded, so it may not. */
  readonly crosses: boolean;
  /** Whether the value may be absent: only with an operator that brings its own separator. */
  readonly optional: boolean;
  /** Literal text after the expression. */
  readonly literal: string;
}

/** A URI template cut into literals and expressions, which recognises the URIs made from it. */
export interface Matcher {
  readonly start: string;
  readonly steps: readonly Step[];
  /** Fewest characters of such a URI. */
  readonly minChars: number;
}

/** Steps that a lookup may still take, of some 50 ns each. */
export interface Budget {
  steps: number;
}

/** Whether text from a peer is longer than URIs that are matched with templates. */
export function isTooLong(uri: string): boolean {
  return uri.length > LIMITS.templateUriBytes || Buffer.byteLength(uri) > LIMITS.templateUriBytes;
}

/**
 * Reads an RFC 6570 template. Returns undefined if its braces do not pair up or it is out of proportion. Variable names do
 * not matter for recognising a URI; operators only as far as {@link Step} says.
 */
export function parseTemplate(template: string): Matcher | undefined {
  if (isTooLong(template)) return undefined;
  const [start = '', ...parts] = template.split('{');
  if (start.includes('}') || parts.length > MAX_EXPRESSIONS) return undefined;
  const steps: Step[] = [];
  let minChars = start.length;
  for (const part of parts) {
    const [expression = '', literal, ...rest] = part.split('}');
    if (literal === undefined || rest.length > 0) return undefined;
    const operator = /^[+#./;?&]/.exec(expression)?.[0];
    const optional = operator !== undefined && operator !== '+';
    minChars += literal.length + (optional ? 0 : 1);
    steps.push({ crosses: operator !== undefined, optional, literal });
  }
  return { start, steps, minChars };
}

/**
 * Returns whether a URI that begins as the template does can have come from it. A template that needs more steps than the
 * budget has does not match.
 */
export function matchesTemplate({ start, steps, minChars }: Matcher, uri: string, budget: Budget): boolean {
  const last = steps.at(-1);
  if (uri.length < minChars) return false;
  if (last === undefined) return uri.length === start.length;
  if (!uri.endsWith(last.literal)) return false;
  // Of the places that a part of the template can end at, the first between two slashes does for all in between.
  let reached: readonly number[] = [start.length];
  for (let i = 0; i < steps.length - 1; i++) {
    const step = steps[i];
    if (step !== undefined) reached = after(step, uri, reached, budget);
    if (reached.length === 0 || budget.steps <= 0) return false;
  }
  return reachesEnd(last, uri, reached, budget);
}

/** What it costs to search so many characters: long literals are compared in many places. */
function searchSteps(chars: number, literalChars: number): number {
  return 4 + ((Math.max(chars, 0) * (1 + (literalChars >> 4))) >> 3);
}

/** The places where an expression and its literal can end, in order, the first of each path segment. */
function after(
  { crosses, optional, literal }: Step,
  uri: string,
  reached: readonly number[],
  budget: Budget,
): number[] {
  const ends: number[] = [];
  /** No end before this place is needed: its segment has one. */
  let from = 0;
  for (const place of reached) {
    const segmentEnd = crosses ? uri.length : endOfSegment(uri, place);
    let at = Math.max(optional ? place : place + 1, from);
    for (;;) {
      if (budget.steps <= 0) return ends;
      const start = uri.indexOf(literal, at);
      budget.steps -= searchSteps((start < 0 ? uri.length : start) - at, literal.length);
      // Beyond the end, an empty literal is found before where it is looked for.
      if (start < at || start > segmentEnd) break;
      const end = start + literal.length;
      if (ends.length === 0 || end > (ends.at(-1) ?? 0)) ends.push(end);
      // Ends before the next slash are reached from this one as well.
      at = from = Math.max(start + 1, endOfSegment(uri, end) + 1 - literal.length);
    }
    if (crosses) break;
  }
  return ends;
}

function endOfSegment(uri: string, at: number): number {
  const slash = uri.indexOf('/', at);
  return slash < 0 ? uri.length : slash;
}

/** Whether the last expression can fill what is between a reached place and the last literal. */
function reachesEnd(
  { crosses, optional, literal }: Step,
  uri: string,
  reached: readonly number[],
  budget: Budget,
): boolean {
  const end = uri.length - literal.length;
  let segment = end;
  if (!crosses) while (segment > 0 && uri.charCodeAt(segment - 1) !== SLASH) segment--;
  budget.steps -= reached.length;
  const min = optional ? 0 : 1;
  return reached.some((place) => (crosses || place >= segment) && place + min <= end);
}
