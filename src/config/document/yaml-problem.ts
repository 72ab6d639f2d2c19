import type { ErrorCode } from 'yaml';

/** A syntax error of the YAML parser, as far as we read it. */
interface YamlFault {
  readonly code: ErrorCode;
  readonly message: string;
}

/** Our messages for errors whose own message quotes the file, which may hold secrets, or names the parser's API. */
const MESSAGES: Readonly<Partial<Record<ErrorCode, string>>> = {
  BAD_DIRECTIVE: 'a line that begins with "%" is a directive of YAML; this one is unknown',
  BAD_DQ_ESCAPE: 'this escape is not YAML; in double quotes, a backslash is written "\\\\"',
  BAD_SCALAR_START: 'a text that begins with this character needs quotes',
  MULTIPLE_DOCS: 'expected one document; this line begins another',
  TAG_RESOLVE_FAILED: 'a text that begins with "!" needs quotes',
};

/** Returns the message for a syntax error. It holds nothing of the file. */
export function yamlMessage({ code, message }: YamlFault): string {
  if (message.startsWith('Block scalar header')) return 'a text that begins with "|" or ">" needs quotes';
  // The parser quotes the file after a colon.
  return MESSAGES[code] ?? message.replace(/(?<=\S): .*$/s, '');
}
