import type { ASTNode } from '@marcbachmann/cel-js';

/** Functions that conditions may call. Their time is linear in the text that they get. `matches` is not: 28 characters took 3.5 s. */
const FUNCTIONS: ReadonlySet<string> = new Set([
  'size',
  'has',
  'string',
  'int',
  'double',
  'bool',
  'timestamp',
  'duration',
  'startsWith',
  'endsWith',
  'contains',
  'lowerAscii',
  'upperAscii',
  'trim',
  'substring',
  'getDate',
  'getDayOfMonth',
  'getDayOfWeek',
  'getDayOfYear',
  'getFullYear',
  'getHours',
  'getMinutes',
  'getMonth',
  'getSeconds',
]);

/** Functions that evaluate an expression for each element of a list or map. */
const MACROS: ReadonlySet<string> = new Set(['all', 'exists', 'exists_one', 'map', 'filter']);

/** The variables whose values are known only when an item is called. */
const LATE: ReadonlySet<string> = new Set(['args', 'now']);
export const ARGS: ReadonlySet<string> = new Set(['args']);

/** The properties of an expression that follow from its text. */
export interface Facts {
  readonly readsArgs: boolean;
  readonly readsNow: boolean;
  /** True if it reads the principal, its claims or its client. */
  readonly readsIdentity: boolean;
  /** True if it may read the scopes of the principal. */
  readonly readsScopes: boolean;
  readonly readsTool: boolean;
  readonly hasMacro: boolean;
  /** Names of members of `args` that it names, at any depth. */
  readonly members: ReadonlySet<string>;
  /** The reason why the expression is refused; undefined if it is not. */
  readonly refused: string | undefined;
}

/** Returns whether a function evaluates an expression for each element of a list or map, by the name of a variable. */
export function isMacro(name: string): boolean {
  return MACROS.has(name);
}

/** Returns the expressions in an expression. */
export function children(node: ASTNode): readonly ASTNode[] {
  if (node.op === 'value' || node.op === 'id') return [];
  if (node.op === '.' || node.op === '.?') return [node.args[0]];
  if (node.op === 'call') return node.args[1];
  if (node.op === 'rcall') return [node.args[1], ...node.args[2]];
  if (node.op === 'map') return node.args.flat();
  if (node.op === '!_' || node.op === '-_') return [node.args];
  return node.args;
}

/** Returns the operands of `has()`, without those that read the variable of a macro. @param bound the variable of the macro around it. */
export function testedMembers(node: ASTNode, bound?: string): readonly ASTNode[] {
  if (node.op === 'call' && node.args[0] === 'has')
    return node.args[1].filter((one) => bound === undefined || !reads(one, new Set([bound])));
  const variable = node.op === 'rcall' && isMacro(node.args[0]) ? node.args[2][0] : undefined;
  const inner = variable?.op === 'id' ? variable.args : bound;
  return children(node).flatMap((child) => testedMembers(child, inner));
}

/** Returns whether an expression reads one of these variables. */
export function reads(node: ASTNode, variables: ReadonlySet<string>): boolean {
  if (node.op === 'id') return variables.has(node.args);
  return children(node).some((child) => reads(child, variables));
}

/** Returns the variables with values of the caller inside a call of a macro or function. @param late those around it. */
export function boundIn(node: ASTNode, late: ReadonlySet<string>): ReadonlySet<string> {
  if (node.op !== 'rcall' || !isMacro(node.args[0]) || !reads(node.args[1], late)) return late;
  const [variable] = node.args[2];
  return variable?.op === 'id' ? new Set([...late, variable.args]) : late;
}

/** Returns whether an expression may read the scopes of the principal: unless it names another member of it at each place. */
function readsScopes(node: ASTNode): boolean {
  const isMember = node.op === '.' || node.op === '.?';
  if (isMember && node.args[0].op === 'id' && node.args[0].args === 'principal') return node.args[1] === 'scopes';
  return node.op === 'id' ? node.args === 'principal' : children(node).some((child) => readsScopes(child));
}

/** Returns whether the outcome of an expression is known before a call. */
export function isKnownEarly(node: ASTNode): boolean {
  return !reads(node, LATE);
}

/** Returns whether the outcome of an expression is known once the time is, without the arguments. */
export function isKnownByTime(node: ASTNode): boolean {
  return !reads(node, ARGS);
}

/** Returns the reason why a literal cannot be compared with a number of JSON, which is a double; undefined if it can. */
function numberFault(literal: unknown): string | undefined {
  // A `uint` of the library, which in a list or map equals no double.
  if (typeof literal === 'object' && typeof literal?.valueOf() === 'bigint')
    return 'has an unsigned number; write it without u';
  if (typeof literal !== 'bigint' || literal <= Number.MAX_SAFE_INTEGER) return undefined;
  return `has an integer beyond ${Number.MAX_SAFE_INTEGER}, where numbers are rounded; compare texts instead`;
}

/** Reads the properties of an expression. */
export function factsOf(ast: ASTNode): Facts {
  const members = new Set<string>();
  let refused: string | undefined;
  let hasMacro = false;

  /** @param late variables with values of the caller. @param isInMacro whether the expression is evaluated for each element. */
  function visit(node: ASTNode, late: ReadonlySet<string>, isInMacro: boolean): void {
    const fault = node.op === 'value' ? numberFault(node.args) : undefined;
    if (fault !== undefined) refused ??= `${fault} (at character ${node.range.start + 1})`;
    // In a macro over args, a text may be compared with names of members.
    if (node.op === 'value' && typeof node.args === 'string' && isInMacro && late !== LATE) members.add(node.args);
    if (node.op === '.' || node.op === '.?') members.add(node.args[1]);
    if (node.op === '[]' || node.op === '[?]') {
      const index = node.args[1];
      if (index.op === 'value' && typeof index.args === 'string') members.add(index.args);
      else if (reads(index, late)) refused ??= 'an index that reads args is not supported';
    }
    if (node.op === 'in' && node.args[0].op === 'value' && typeof node.args[0].args === 'string')
      members.add(node.args[0].args);
    if (node.op === 'call' || node.op === 'rcall') {
      const [name] = node.args;
      if (node.op === 'rcall' && MACROS.has(name)) return visitMacro(node, node.args[1], late, isInMacro);
      if (!FUNCTIONS.has(name)) refused ??= `${name}() is not supported`;
      // The library reads durations by a regular expression that takes exponential time.
      if (name === 'duration' && !children(node).every(({ op }) => op === 'value')) {
        refused ??= 'duration() of anything but a text in the condition is not supported';
      }
      if (name === 'timestamp' && children(node).some((argument) => reads(argument, late))) {
        refused ??= 'timestamp() of a text of args is not supported';
      }
      // The search for one text of a caller in another takes quadratic time.
      if (name === 'contains' && node.op === 'rcall' && node.args[2].some((argument) => reads(argument, late))) {
        refused ??= 'contains() with a text of args is not supported';
      }
    }
    for (const child of children(node)) visit(child, late, isInMacro);
  }

  function visitMacro(node: ASTNode, range: ASTNode, late: ReadonlySet<string>, isInMacro: boolean): void {
    hasMacro = true;
    if (isInMacro) refused ??= 'a macro inside a macro is not supported';
    visit(range, late, isInMacro);
    const bound = boundIn(node, late);
    for (const part of children(node).slice(2)) visit(part, bound, true);
  }

  visit(ast, LATE, false);
  return {
    readsArgs: reads(ast, ARGS),
    readsNow: reads(ast, new Set(['now'])),
    readsScopes: readsScopes(ast),
    readsIdentity: reads(ast, new Set(['principal', 'claims', 'client'])),
    readsTool: reads(ast, new Set(['tool'])),
    hasMacro,
    members,
    refused,
  };
}
