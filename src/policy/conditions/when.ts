import { isDeepStrictEqual } from 'node:util';
import { type ASTNode, Environment, ParseError, type ParseResult } from '@marcbachmann/cel-js';
import { isRecord } from '../../json/record.ts';
import { messageOf } from '../../thrown.ts';
import type { ClaimConfig, ClaimType } from '../access-config.ts';
import { type Facts, factsOf, isKnownByTime, isKnownEarly, testedMembers } from './expression.ts';
import { registerStrict, strictText } from './strict.ts';
import { and, choice, FAILS, FALSE, not, or, type Outcomes, TRUE, UNKNOWN } from './outcomes.ts';

const EXPRESSION_LIMITS = {
  maxAstNodes: 256,
  maxDepth: 24,
  maxListElements: 256,
  maxMapEntries: 64,
  maxCallArguments: 8,
};
/** More than {@link strictText} makes of an expression within the limits. */
const STRICT_LIMITS = { maxAstNodes: 1_024, maxDepth: 240 };
const MAX_CHARS = 4_096;
/** The most values that the arguments may have for a condition with a macro, which looks at each of them. */
const MAX_MACRO_VALUES = 1_000;
/** The longest text of arguments for a condition with a macro, in characters. */
const MAX_MACRO_CHARS = 65_536;

const CEL_TYPES: Readonly<Record<ClaimType, string>> = {
  string: 'string',
  list: 'list<string>',
  number: 'double',
  boolean: 'bool',
};

/** The variables of a condition, by name. `args` and `now` are absent if they are not known yet. */
export interface Variables {
  readonly principal: Readonly<Record<string, unknown>>;
  readonly claims: Readonly<Record<string, unknown>>;
  readonly client: Readonly<Record<string, unknown>>;
  readonly endpoint: string;
  readonly upstream: string;
  readonly tool: Readonly<Record<string, unknown>>;
  readonly args?: Readonly<Record<string, unknown>>;
  readonly now?: Date;
}

export interface ArgumentSize {
  readonly values: number;
  readonly chars: number;
}

/** A condition of a rule. */
export interface When extends Pick<Facts, 'readsArgs' | 'readsIdentity' | 'readsScopes' | 'readsTool' | 'members'> {
  /**
   * Returns the possible outcomes. The parts that read `args` or `now` are unknown without them; with all that it reads, there is one outcome.
   *
   * @param size of `args`. A condition with a macro fails if it is too large.
   */
  outcomes(variables: Variables, size?: ArgumentSize): Outcomes;
}

/** Returns the environment of conditions: closed and typed. */
function environmentOf(claims: readonly ClaimConfig[]): Environment {
  const text = 'string';
  const texts = 'list<string>';
  return new Environment({ unlistedVariablesAreDyn: false, limits: EXPRESSION_LIMITS })
    .registerVariable({
      name: 'principal',
      schema: { label: text, issuer: text, subject: text, clientId: text, keyName: text, groups: texts, scopes: texts },
    })
    .registerVariable({
      name: 'claims',
      schema: Object.fromEntries(claims.map(({ name, type }) => [name, CEL_TYPES[type]])),
    })
    .registerVariable({ name: 'client', schema: { id: text } })
    .registerVariable('endpoint', text)
    .registerVariable('upstream', text)
    .registerVariable({
      name: 'tool',
      schema: { kind: text, name: text, readOnly: 'bool', destructive: 'bool', idempotent: 'bool', openWorld: 'bool' },
    })
    .registerVariable('args', 'map<string, dyn>')
    .registerVariable('now', 'google.protobuf.Timestamp');
}

/** Returns a function that compiles conditions over these claims. It returns the reason if it refuses one. */
export function whenCompiler(claims: readonly ClaimConfig[]): (text: string) => When | string {
  const environment = environmentOf(claims);
  const strict = registerStrict(environment.clone({ limits: STRICT_LIMITS }));
  return (text) => {
    if (text.length > MAX_CHARS) return `is longer than ${MAX_CHARS} characters`;
    const parsed = parse(environment, text);
    if (typeof parsed === 'string') return parsed;
    const facts = factsOf(parsed.ast);
    if (facts.refused !== undefined) return facts.refused;
    const checked = parsed.check();
    if (!checked.valid) return checked.error === undefined ? 'has a type error' : summaryOf(checked.error);
    const fault = testFault(environment, parsed.ast);
    if (fault !== undefined) return fault;
    if (checked.type !== 'bool') return `must be true or false, and is ${checked.type ?? 'of another type'}`;
    const whole = facts.readsArgs ? strictly(strict, parsed.ast) : parsed;
    if (typeof whole === 'string') return whole;
    try {
      return compiled(partOf(environment, parsed.ast), whole, facts);
    } catch (thrown) {
      // The reason stands with the place of the condition in the config.
      return `cannot be compiled: ${messageOf(thrown)}`;
    }
  };
}

function parse(environment: Environment, text: string): ParseResult | string {
  try {
    return environment.parse(text);
  } catch (thrown) {
    return thrown instanceof ParseError ? summaryOf(thrown) : `cannot be compiled: ${messageOf(thrown)}`;
  }
}

/** Returns an expression that fails where an argument has another type than what it is compared with. */
function strictly(strict: Environment, ast: ASTNode): ParseResult | string {
  const made = parse(strict, strictText(ast));
  if (typeof made === 'string') return made;
  const { error } = made.check();
  return error === undefined ? made : summaryOf(error);
}

/** Returns the fault of a member that `has()` asks for and nothing ever has: the library does not check its operand. */
function testFault(environment: Environment, ast: ASTNode): string | undefined {
  for (const member of testedMembers(ast)) {
    const error = parsedAlone(environment, member)?.check().error;
    if (error !== undefined) return `${error.summary} (at character ${member.range.start + 1})`;
  }
  return undefined;
}

function summaryOf(error: { readonly summary: string; readonly range?: { readonly start: number } }): string {
  const at = error.range === undefined ? '' : ` (at character ${error.range.start + 1})`;
  return `${error.summary}${at}`;
}

/** A part of a condition: a logical operator, or an expression that is evaluated as a whole. */
type Part =
  | { readonly kind: '&&' | '||'; readonly parts: readonly [Part, Part] }
  | { readonly kind: '!'; readonly part: Part }
  | { readonly kind: '?:'; readonly parts: readonly [Part, Part, Part] }
  | { readonly kind: 'known'; readonly evaluate: ParseResult }
  /** Known once the time is. */
  | { readonly kind: 'timed'; readonly evaluate: ParseResult }
  | { readonly kind: 'late' };

/** The tokens that a search for parentheses meets: texts and comments, which may have some inside, and parentheses. */
const TOKENS = /"""(?:\\.|[^\\])*?"""|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|\/\/[^\n]*|[()]/gs;

/** Returns the text of an expression. Its range ends inside of parentheses around its first or last part, so these are added. */
function textOf({ input, range }: ASTNode): string {
  const text = input.slice(range.start, range.end);
  let opened = 0;
  let unopened = 0;
  for (const [token] of text.matchAll(TOKENS)) {
    if (token === '(') opened++;
    else if (token === ')' && opened > 0) opened--;
    else if (token === ')') unopened++;
  }
  return '('.repeat(unopened) + text + ')'.repeat(opened);
}

/** Returns a part of a condition as an expression of its own; undefined if it cannot be separated. */
function parsedAlone(environment: Environment, node: ASTNode): ParseResult | undefined {
  const made = parse(environment, textOf(node));
  return typeof made !== 'string' && isDeepStrictEqual(bare(made.ast), bare(node)) ? made : undefined;
}

/** Returns an expression, or an argument of one, without its places in the text. */
function bare(value: unknown): unknown {
  if (Array.isArray(value)) return value.map((one) => bare(one));
  return isRecord(value) && 'op' in value && 'range' in value ? { op: value['op'], args: bare(value['args']) } : value;
}

function partOf(environment: Environment, node: ASTNode): Part {
  if (isKnownEarly(node)) {
    const evaluate = parsedAlone(environment, node);
    return evaluate === undefined ? { kind: 'late' } : { kind: 'known', evaluate };
  }
  if (node.op === '&&' || node.op === '||') {
    const [a, b] = node.args;
    return { kind: node.op, parts: [partOf(environment, a), partOf(environment, b)] };
  }
  if (node.op === '!_') return { kind: '!', part: partOf(environment, node.args) };
  if (node.op === '?:') {
    const [a, b, c] = node.args;
    return { kind: '?:', parts: [partOf(environment, a), partOf(environment, b), partOf(environment, c)] };
  }
  const timed = isKnownByTime(node) ? parsedAlone(environment, node) : undefined;
  return timed === undefined ? { kind: 'late' } : { kind: 'timed', evaluate: timed };
}

function compiled(early: Part, whole: ParseResult, facts: Facts): When {
  const { readsArgs, readsNow, readsIdentity, readsScopes, readsTool, members, hasMacro } = facts;
  return {
    readsArgs,
    readsIdentity,
    readsScopes,
    readsTool,
    members,
    outcomes: (variables, size) => {
      const isEarly = variables.args === undefined || (readsNow && variables.now === undefined);
      if (isEarly) return earlyOutcomes(early, variables);
      const isTooLarge = size !== undefined && (size.values > MAX_MACRO_VALUES || size.chars > MAX_MACRO_CHARS);
      return hasMacro && readsArgs && isTooLarge ? FAILS : evaluate(whole, variables);
    },
  };
}

function earlyOutcomes(part: Part, variables: Variables): Outcomes {
  switch (part.kind) {
    case 'known':
      return evaluate(part.evaluate, variables);
    case 'timed':
      return variables.now === undefined ? UNKNOWN : evaluate(part.evaluate, variables);
    case 'late':
      return UNKNOWN;
    case '!':
      return not(earlyOutcomes(part.part, variables));
    case '?:': {
      const [condition, a, b] = part.parts;
      return choice(earlyOutcomes(condition, variables), earlyOutcomes(a, variables), earlyOutcomes(b, variables));
    }
    case '&&':
    case '||': {
      const [a, b] = part.parts;
      return (part.kind === '&&' ? and : or)(earlyOutcomes(a, variables), earlyOutcomes(b, variables));
    }
  }
}

/** Evaluates an expression. Every failure of it is an outcome: the library throws errors of several classes. */
function evaluate(expression: ParseResult, variables: Variables): Outcomes {
  try {
    const value: unknown = expression({ ...variables });
    return value === true ? TRUE : value === false ? FALSE : FAILS;
  } catch {
    return FAILS;
  }
}
