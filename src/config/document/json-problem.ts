import { type Node, type ParseError, parseTree, printParseErrorCode } from 'jsonc-parser';

/** A syntax error of a JSON text. */
interface JsonFault {
  readonly offset: number;
  readonly message: string;
}

const MESSAGES: ReadonlyMap<string, string> = new Map([
  ['InvalidSymbol', 'unexpected text; in JSON, text stands in double quotes'],
  ['InvalidNumberFormat', 'this is not a number as JSON writes it'],
  ['PropertyNameExpected', 'expected a key in double quotes'],
  ['ValueExpected', 'expected a value'],
  ['ColonExpected', 'expected ":" after the key'],
  ['CommaExpected', 'expected "," between two members'],
  ['CloseBraceExpected', 'expected "}"; a brace is not closed'],
  ['CloseBracketExpected', 'expected "]"; a bracket is not closed'],
  ['EndOfFileExpected', 'expected nothing more after the end of the JSON value'],
  ['InvalidCommentToken', 'this is not a comment; use // or /* */'],
  ['UnexpectedEndOfComment', 'a comment is not closed'],
  ['UnexpectedEndOfString', 'a text is not closed; expected a double quote'],
  ['UnexpectedEndOfNumber', 'a number is not complete'],
  ['InvalidUnicode', 'expected four hex digits after "\\u"'],
  ['InvalidEscapeCharacter', 'this escape is not JSON; a backslash is written "\\\\"'],
  ['InvalidCharacter', 'a control character stands in a text; write it as an escape'],
]);

/** Parses a JSON text, with comments and trailing commas. Returns its tree, and its first syntax error if there is one. */
export function jsonTree(text: string): { readonly root: Node | undefined; readonly fault: JsonFault | undefined } {
  const errors: ParseError[] = [];
  const root = parseTree(text, errors, { allowTrailingComma: true, disallowComments: false });
  const [first] = errors;
  if (first === undefined) return { root, fault: undefined };
  return { root, fault: { offset: first.offset, message: messageOf(first, text.trimEnd().length) } };
}

/** @param end offset of the end of the text. */
function messageOf({ error, offset, length }: ParseError, end: number): string {
  const code = printParseErrorCode(error);
  const message = MESSAGES.get(code) ?? 'this is not JSON';
  if (offset >= end) return `the file ends here: ${message}`;
  return code === 'UnexpectedEndOfString' && offset + length >= end
    ? `the file ends in this text: ${message}`
    : message;
}
