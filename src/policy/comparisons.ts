import { type ASTNode, parse } from '@marcbachmann/cel-js';
import { KEY } from '../catalog/items/kind.ts';
import { children, isMacro } from './expression.ts';

/** All values of `tool.kind`. */
export const ITEM_KINDS: readonly string[] = Object.keys(KEY);

/** The ways in which a condition may compare a variable with a text; `includes` is for lists. */
const RELATIONS = ['equals', 'startsWith', 'endsWith', 'contains', 'includes'] as const;
export type Relation = (typeof RELATIONS)[number];

/** A comparison of a variable with a text that the condition itself has. */
export interface Comparison {
  /** As in `upstream` and `tool.kind`. */
  readonly variable: string;
  readonly relation: Relation;
  readonly text: string;
  /** Place of the text in the condition. Counts from 1. */
  readonly character: number;
}

/** Finds the comparisons of variables with texts in a condition that compiles. An index such as `tool["kind"]` is no variable here. */
export function comparisonsOf(when: string): readonly Comparison[] {
  const found: Comparison[] = [];

  /** @param bound the variable of a macro, which hides another of this name. */
  function visit(node: ASTNode, bound: string | undefined): void {
    const add = (relation: Relation, operand: ASTNode | undefined, texts: readonly (ASTNode | undefined)[]) => {
      const variable = operand === undefined ? undefined : variableOf(operand);
      if (variable === undefined || variable.split('.', 1)[0] === bound) return;
      for (const text of texts)
        if (text?.op === 'value' && typeof text.args === 'string')
          found.push({ variable, relation, text: text.args, character: text.range.start + 1 });
    };
    if (node.op === '==' || node.op === '!=') {
      const [a, b] = node.args;
      add('equals', a, [b]);
      add('equals', b, [a]);
    } else if (node.op === 'in') {
      const [element, list] = node.args;
      add('equals', element, list.op === 'list' ? list.args : []);
      add('includes', list, [element]);
    } else if (node.op === 'rcall') {
      const [name, receiver, given] = node.args;
      const relation = RELATIONS.find((one) => one === name);
      if (relation !== undefined) add(relation, receiver, given);
      const [variable] = given;
      if (isMacro(name) && variable?.op === 'id') {
        visit(receiver, bound);
        for (const part of given.slice(1)) visit(part, variable.args);
        return;
      }
    }
    for (const child of children(node)) visit(child, bound);
  }

  visit(parse(when).ast, undefined);
  return found;
}

/** Returns the names of tools and prompts that a condition compares `tool.name` with. A text with a colon may be a URI, and is left out. */
export function comparedNames(when: string): readonly Comparison[] {
  return comparisonsOf(when).filter(
    ({ variable, relation, text }) => variable === 'tool.name' && relation === 'equals' && !text.includes(':'),
  );
}

/** Returns the name of the variable that an expression is; undefined if it is another expression. */
function variableOf(node: ASTNode): string | undefined {
  if (node.op === 'id') return node.args;
  if (node.op !== '.') return undefined;
  const [of, member] = node.args;
  return of.op === 'id' ? `${of.args}.${member}` : undefined;
}

/** Returns whether a comparison with one of these values may be true. */
export function mayHold({ relation, text }: Comparison, values: readonly string[]): boolean {
  return values.some((value) => {
    if (relation === 'startsWith') return value.startsWith(text);
    if (relation === 'endsWith') return value.endsWith(text);
    return relation === 'contains' ? value.includes(text) : value === text;
  });
}
