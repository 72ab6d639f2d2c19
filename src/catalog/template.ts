/** Longer ones are not matched. */
const MAX_CHARS = 4096;
const MAX_EXPRESSIONS = 32;

interface Step {
  /** Whether the expression's value may hold a `/`: a simple `{x}` is encoded, so it may not. */
  readonly crosses: boolean;
  /** Whether it may be absent: only values with an operator that brings its own separator. */
  readonly optional: boolean;
  /** Literal text after the expression. */
  readonly literal: string;
}

/** A URI template cut into literals and expressions, for recognising URIs made from it. */
export interface Matcher {
  readonly start: string;
  readonly steps: readonly Step[];
}

/**
 * Reads an RFC 6570 template, or returns undefined when its braces do not pair up or it is out of proportion. Variable
 * names do not matter for recognising a URI; operators only as far as {@link Step} says.
 */
export function parseTemplate(template: string): Matcher | undefined {
  if (template.length > MAX_CHARS) return undefined;
  const [start = '', ...parts] = template.split('{');
  if (start.includes('}') || parts.length > MAX_EXPRESSIONS) return undefined;
  const steps: Step[] = [];
  for (const part of parts) {
    const [expression = '', literal, ...rest] = part.split('}');
    if (literal === undefined || rest.length > 0) return undefined;
    const operator = /^[+#./;?&]/.exec(expression)?.[0];
    steps.push({
      crosses: operator !== undefined,
      optional: operator !== undefined && operator !== '+',
      literal,
    });
  }
  return { start, steps };
}

/** Whether the URI can have come from the template. Time is bounded by length × expressions. */
export function matchesTemplate({ start, steps }: Matcher, uri: string): boolean {
  if (uri.length > MAX_CHARS || !uri.startsWith(start)) return false;
  // Offsets that a prefix of the template can reach; a backtracking match would be exponential on hostile templates.
  let reached = new Set([start.length]);
  for (const { crosses, optional, literal } of steps) {
    const next = new Set<number>();
    let open = false;
    for (let at = start.length; at <= uri.length; at++) {
      const here = reached.has(at);
      if ((open || (optional && here)) && uri.startsWith(literal, at)) next.add(at + literal.length);
      open = (open || here) && (crosses || uri[at] !== '/');
    }
    if (next.size === 0) return false;
    reached = next;
  }
  return reached.has(uri.length);
}
