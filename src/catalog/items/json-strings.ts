/** Matches a string, a bracket or a comma of JSON text. Other tokens are not needed. */
const TOKENS = /"[^"\\]*(?:\\.[^"\\]*)*"|[{}[\],]/gs;

/** Members that hold data, not text about the item. */
const DATA = new Set(['_meta', 'default', 'const', 'enum', 'examples']);

/** Members of a JSON Schema whose own members have arbitrary names. */
const NAMED = new Set(['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']);

interface Frame {
  readonly isObject: boolean;
  /** True if everything inside is data. */
  readonly isData: boolean;
  /** True if the names of its members are arbitrary. */
  readonly isNamed: boolean;
  /** Name of the member whose value comes next; undefined if a name comes next. */
  name: string | undefined;
}

/**
 * Replaces each string that is the value of a member by `change` of it, in one pass over well-formed JSON. Strings in
 * arrays, member names, and everything inside `_meta` and the data keywords of JSON Schema stay unchanged.
 *
 * @param change gets the string, the member's name, and the depth of its object, counted from 1.
 */
export function mapStrings(json: string, change: (value: string, name: string, depth: number) => string): string {
  const frames: Frame[] = [];
  let after = '';
  let copied = 0;
  for (const { 0: token, index } of json.matchAll(TOKENS)) {
    const frame = frames.at(-1);
    switch (token) {
      case '{':
      case '[': {
        const name = frame?.name ?? '';
        const isKeyword = frame !== undefined && frame.isObject && !frame.isNamed;
        frames.push({
          isObject: token === '{',
          isData: frame !== undefined && (frame.isData || (isKeyword && DATA.has(name))),
          isNamed: isKeyword && NAMED.has(name),
          name: undefined,
        });
        break;
      }
      case '}':
      case ']':
        frames.pop();
        break;
      case ',':
        if (frame !== undefined) frame.name = undefined;
        break;
      default: {
        if (frame === undefined || !frame.isObject) break;
        if (frame.name === undefined) {
          frame.name = String(JSON.parse(token));
        } else if (!frame.isData && !frame.isNamed) {
          const value = String(JSON.parse(token));
          const changed = change(value, frame.name, frames.length);
          if (changed === value) break;
          after += json.slice(copied, index) + JSON.stringify(changed);
          copied = index + token.length;
        }
      }
    }
  }
  return copied === 0 ? json : after + json.slice(copied);
}
