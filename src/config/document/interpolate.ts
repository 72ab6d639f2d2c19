import { resultOrError } from '../../thrown.ts';

/**
 * Expands `${…}` in config values. One grammar serves the files of all clients:
 *
 *     ${NAME}  ${env:NAME}      the environment variable, which must be set
 *     ${NAME:-default}          … or this text if it is unset or empty
 *     ${NAME:?message}          … or fail with this message if it is unset or empty
 *     ${file:/path}             the text of a file, without one line break at its end
 *     ${{ secrets.NAME }}       a secret of Continue: the environment variable NAME
 *     ${input:id}               an input of VS Code: the environment variable INPUT_ID
 *     ${workspaceFolder}  …     the names of {@link Lookup.place}
 *     $$                        a dollar sign
 *
 * Defaults and paths may contain further `${…}`. A single `$` stays as it is.
 */

/** Provides the values of variables. */
export interface Lookup {
  variable(name: string): string | undefined;
  /** Returns the text of a file, or a clause that says why there is none. */
  file(path: string): Expansion;
  /** Returns the value of `workspaceFolder`, `userHome` and similar names. */
  place(name: string): string | undefined;
}

/** Additional variable syntax of some clients: Gemini CLI `$NAME`, OpenCode `{env:NAME}` and `{file:path}`. */
export type ExpansionSyntax = 'plain' | 'gemini' | 'opencode';

export type Expansion = { readonly text: string } | { readonly problem: string };

const NAME = /^(?:env:)?([A-Za-z_][A-Za-z0-9_]*)(?:(:-|:\?)([^]*))?$/;
/** Matches `{ secrets.NAME }` as written by Continue. */
const SECRET = /^\{\s*(?:secrets|inputs)\.([A-Za-z_][A-Za-z0-9_]*)\s*\}$/;
const OTHER_REFERENCE = /\$[A-Za-z_][A-Za-z0-9_]*|\{(?:env|file):[^{}]+\}/y;

const FORMS = 'write ${NAME}, ${NAME:-default}, ${NAME:?message}, ${env:NAME}, ${file:/path}, or $$ for a dollar sign';

class Unexpandable extends Error {}

/**
 * Expands `${…}` in a text. Returns the text, or one clause that says why it cannot be expanded. The clause holds names
 * and words of the file, never a value.
 */
export function expand(text: string, lookup: Lookup, syntax: ExpansionSyntax = 'plain'): Expansion {
  const expanded = resultOrError(Unexpandable, () => expandText(text, lookup, syntax));
  return expanded instanceof Unexpandable ? { problem: expanded.message } : { text: expanded };
}

function expandText(text: string, lookup: Lookup, syntax: ExpansionSyntax): string {
  let out = '';
  let i = 0;
  while (i < text.length) {
    if (text.startsWith('$$', i)) {
      out += '$';
      i += 2;
    } else if (text.startsWith('${', i)) {
      const end = closingBrace(text, i + 2);
      out += evaluate(text.slice(i + 2, end), lookup, syntax);
      i = end + 1;
    } else {
      const found = matchReference(text, i, syntax);
      out += found === undefined ? text[i] : evaluate(found.body, lookup, syntax);
      i += found?.length ?? 1;
    }
  }
  return out;
}

/** Returns the offset of the brace that closes the one before `from`. Inner braces are balanced. */
function closingBrace(text: string, from: number): number {
  let open = 1;
  for (let i = from; i < text.length; i++) {
    if (text[i] === '{') open++;
    else if (text[i] === '}') open--;
    if (open === 0) return i;
  }
  throw new Unexpandable(`"\${" without "}" (${FORMS})`);
}

function matchReference(
  text: string,
  at: number,
  syntax: ExpansionSyntax,
): { body: string; length: number } | undefined {
  if (syntax === 'plain' || text[at] !== (syntax === 'gemini' ? '$' : '{')) return undefined;
  OTHER_REFERENCE.lastIndex = at;
  const found = OTHER_REFERENCE.exec(text)?.[0];
  if (found === undefined) return undefined;
  return { body: syntax === 'gemini' ? found.slice(1) : found.slice(1, -1), length: found.length };
}

function evaluate(body: string, lookup: Lookup, syntax: ExpansionSyntax): string {
  const place = lookup.place(body);
  if (place !== undefined) return place;

  if (body.startsWith('file:')) {
    const path = expandText(body.slice('file:'.length), lookup, syntax);
    const content = lookup.file(path);
    if ('problem' in content) throw new Unexpandable(`the file of "\${${body}}" ${content.problem}`);
    return content.text.replace(/\r?\n$/, '');
  }

  if (body.startsWith('input:')) {
    const name = `INPUT_${body
      .slice('input:'.length)
      .replace(/[^A-Za-z0-9]/g, '_')
      .toUpperCase()}`;
    const value = lookup.variable(name);
    if (value === undefined)
      throw new Unexpandable(`"\${${body}}" is taken from the environment variable ${name}, which is not set`);
    return value;
  }

  const [, name, operator, operand = ''] = NAME.exec(SECRET.exec(body)?.[1] ?? body) ?? [];
  if (name === undefined) throw new Unexpandable(`"\${${body}}" is none of the forms we know (${FORMS})`);
  const value = lookup.variable(name);
  if (operator === undefined) {
    if (value === undefined) throw new Unexpandable(`environment variable ${name} is not set`);
    return value;
  }
  if (value !== undefined && value !== '') return value;
  if (operator === ':-') return expandText(operand, lookup, syntax);
  const state = value === undefined ? 'not set' : 'empty';
  throw new Unexpandable(`environment variable ${name} is ${state}${operand === '' ? '' : `: ${operand}`}`);
}
