import { isDeepStrictEqual } from 'node:util';
import type { ASTNode, Environment } from '@marcbachmann/cel-js';
import { isRecord } from '../../json/record.ts';
import { ARGS, boundIn, reads } from './expression.ts';

/**
 * Returns the text of a condition that compares arguments by the functions of {@link registerStrict}. CEL takes `"true"` and `true` for
 * different values. An upstream may take them for one.
 *
 * @param late variables with values of the caller.
 */
export function strictText(node: ASTNode, late: ReadonlySet<string> = ARGS): string {
  const strict = (one: ASTNode) => strictText(one, late);
  const list = (all: readonly ASTNode[]) => all.map((one) => strict(one)).join(', ');
  if (node.op === 'value') return `(${node.input.slice(node.range.start, node.range.end)})`;
  if (node.op === 'id') return node.args;
  if (node.op === '.' || node.op === '.?') return `${strict(node.args[0])}${node.op}${node.args[1]}`;
  if (node.op === '[]' || node.op === '[?]')
    return `${strict(node.args[0])}${node.op.slice(0, -1)}${strict(node.args[1])}]`;
  if (node.op === 'call') {
    const [name, given] = node.args;
    const [tested] = given;
    return name === 'has' && tested?.op === '.' && reads(tested, late)
      ? `hasMember(${strict(tested.args[0])}, "${tested.args[1]}")`
      : `${name}(${list(given)})`;
  }
  if (node.op === 'rcall') {
    const [name, receiver, given] = node.args;
    const inner = boundIn(node, late);
    return `${strict(receiver)}.${name}(${given.map((one) => strictText(one, inner)).join(', ')})`;
  }
  if (node.op === 'list') return `[${list(node.args)}]`;
  if (node.op === 'map') return `{${node.args.map(([key, value]) => `${strict(key)}: ${strict(value)}`).join(', ')}}`;
  if (node.op === '!_' || node.op === '-_') return `(${node.op.slice(0, 1)}${strict(node.args)})`;
  if (node.op === '?:') {
    const [condition, a, b] = node.args;
    return `(${strict(condition)} ? ${strict(a)} : ${strict(b)})`;
  }
  const [a, b] = node.args;
  // A comparison with null asks whether there is a value.
  const isStrict = reads(node, late) && !isNull(a) && !isNull(b);
  if (isStrict && node.op === '==') return `same(${strict(a)}, ${strict(b)})`;
  if (isStrict && node.op === '!=') return `(!same(${strict(a)}, ${strict(b)}))`;
  if (isStrict && node.op === 'in')
    return `isIn(${strict(a)}, ${b.op === 'map' ? `[${list(b.args.map(([key]) => key))}]` : strict(b)})`;
  return `(${strict(a)} ${node.op} ${strict(b)})`;
}

function isNull(node: ASTNode): boolean {
  return node.op === 'value' && node.args === null;
}

/** Registers comparisons that fail where the types of JSON differ, so that the condition fails. */
export function registerStrict(environment: Environment): Environment {
  return environment
    .registerFunction('same(dyn, dyn): bool', same)
    .registerFunction('isIn(dyn, dyn): bool', isIn)
    .registerFunction('hasMember(dyn, string): bool', hasMember);
}

/** @throws {TypeError} if the values, or values in them that are compared, have different types. */
function same(a: unknown, b: unknown): boolean {
  if (typeOf(a) !== typeOf(b)) throw new TypeError('values of different types are compared');
  if (Array.isArray(a) && Array.isArray(b))
    return a.length === b.length && a.every((one: unknown, index) => same(one, b[index]));
  if (isPlain(a) && isPlain(b)) {
    const names = Object.keys(a);
    return (
      names.length === Object.keys(b).length && names.every((name) => Object.hasOwn(b, name) && same(a[name], b[name]))
    );
  }
  // An integer of the condition is a bigint, and a number of JSON is none.
  if (typeof a !== typeof b) return Number(a) === Number(b);
  return a === b || (typeof a === 'object' && isDeepStrictEqual(a, b));
}

/** Like CEL's `||` of comparisons, where true wins over a failure. @throws {TypeError} if one failed and none is true. */
function isIn(value: unknown, container: unknown): boolean {
  if (!Array.isArray(container)) {
    if (typeof value !== 'string') throw new TypeError('names of members are texts');
    return hasMember(container, value);
  }
  const comparable = container.filter((one) => typeOf(one) === typeOf(value));
  if (comparable.some((one) => same(value, one))) return true;
  if (comparable.length < container.length) throw new TypeError('values of different types are compared');
  return false;
}

function hasMember(of: unknown, name: string): boolean {
  if (!isPlain(of)) throw new TypeError('only an object has members');
  return Object.hasOwn(of, name);
}

function isPlain(value: unknown): value is Readonly<Record<string, unknown>> {
  return isRecord(value) && [Object.prototype, null].includes(Object.getPrototypeOf(value));
}

/** Returns the type of a value as JSON has it. */
function typeOf(value: unknown): string {
  if (value === null) return 'null';
  if (Array.isArray(value)) return 'list';
  return typeof value === 'bigint' ? 'number' : typeof value;
}
