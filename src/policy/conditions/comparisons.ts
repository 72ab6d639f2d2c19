import { type ASTNode, parse } from '@marcbachmann/cel-js';
import { KEY } from '../../catalog/items/kind.ts';
import { children, isMacro } from './expression.ts';

/** All values of `tool.kind`. */
export const ITEM_KINDS: readonly string[] = Object.keys(KEY);

/** A comparison of a variable, or of the elements of a list, with a text that the condition itself has. */
export interface Comparison {
  /** As in `upstream` and `tool.kind`. */
  readonly variable: string;
  readonly text: string;
  /** Place of the text in the condition. Counts from 1. */
  readonly character: number;
}

/** Finds the comparisons by `==` and `in` of variables with texts in a condition that compiles. An index such as `tool["kind"]` is no variable here. */
export function comparisonsOf(when: string): readonly Comparison[] {
  const found: Comparison[] = [];

  /** @param bound the variable of a macro, which hides another of this name. */
  function visit(node: ASTNode, bound: string | undefined): void {
    const add = (operand: ASTNode, texts: readonly ASTNode[]) => {
      const variable = variableOf(operand);
      if (variable === undefined || variable.split('.', 1)[0] === bound) return;
      for (const text of texts)
        if (text.op === 'value' && typeof text.args === 'string')
          found.push({ variable, text: text.args, character: text.range.start + 1 });
    };
    if (node.op === '==') {
      const [a, b] = node.args;
      add(a, [b]);
      add(b, [a]);
    } else if (node.op === 'in') {
      const [element, list] = node.args;
      add(element, list.op === 'list' ? list.args : []);
      add(list, [element]);
    } else if (node.op === 'rcall') {
      const [name, receiver, [variable, ...body]] = node.args;
      if (isMacro(name) && variable?.op === 'id') {
        visit(receiver, bound);
        for (const part of body) visit(part, variable.args);
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
  return comparisonsOf(when).filter(({ variable, text }) => variable === 'tool.name' && !text.includes(':'));
}

/** Returns the name of the variable that an expression is; undefined if it is another expression. */
function variableOf(node: ASTNode): string | undefined {
  if (node.op === 'id') return node.args;
  if (node.op !== '.') return undefined;
  const [of, member] = node.args;
  return of.op === 'id' ? `${of.args}.${member}` : undefined;
}
