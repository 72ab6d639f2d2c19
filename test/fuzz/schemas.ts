import { RawObject } from '../../src/json/json.ts';
import { LIMITS } from '../../src/limits.ts';
import { definitionChanges, suspicions } from '../../src/lock/definition-changes.ts';
import { definitionsOf } from '../../src/lock/definition.ts';
import { json } from '../fixtures/servers/http-harness.ts';
import { testCore, toolCall } from '../support/core.ts';
import { legacyUpstream } from '../support/http-upstream.ts';
import { modernRequest } from '../support/modern-client.ts';
import { Dice } from './dice.ts';
import type { Finding } from './engine.ts';
import { shownBytes } from './input.ts';
import { runText } from './runs.ts';
import { membersOf } from './spy.ts';
import { Trap } from './trap.ts';

/** JSON Schemas of tools that are deep, recursive, huge or wrong. A gateway in the process of the fuzzer lists them. */
export const SCHEMAS = { name: 'schemas', inputs: 200 };

/** Schemas that one upstream lists. */
const AT_ONCE = 10;
/** Time of the processor for all of them, also for the client and the upstream. */
const MAX_MS = 1_000; // subject
const TRIES = 3;
const KEYWORDS = [
  'properties',
  'items',
  'anyOf',
  'allOf',
  'not',
  'if',
  'additionalProperties',
  '$defs',
  'patternProperties',
];

/** Returns JSON text of a schema. Text, since a value could not have equal names or this depth. */
function schemaText(dice: Dice, port: number, depth = 0): string {
  const inner = () => (depth > 4 ? '{}' : schemaText(dice, port, depth + 1));
  switch (dice.below(14)) {
    case 0:
      return `{"$ref":"http://127.0.0.1:${port}/schema.json"}`;
    case 1:
      return `{"$schema":"http://127.0.0.1:${port}/meta","$id":"http://127.0.0.1:${port}/","type":"object"}`;
    case 2:
      return '{"type":"object","$ref":"#"}';
    case 3:
      return '{"type":"object","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"properties":{"x":{"$ref":"#/$defs/a"}}}';
    case 4: {
      const levels = dice.one([10, 20, 25, 500, 5_000]);
      return `${'{"type":"object","properties":{"a":'.repeat(levels)}{}${'}}'.repeat(levels)}`;
    }
    case 5:
      return `{"type":"object","properties":{${Array.from({ length: dice.one([100, 5_000]) }, (_, i) => `"p${i}":{"type":"string"}`).join()}}}`;
    case 6:
      return `{"type":"object","properties":{"s":{"type":"string","pattern":"^(a+)+$","enum":${JSON.stringify(Array.from({ length: 300 }, (_, i) => `v${i}`))}}}}`;
    case 7:
      return `{"type":"object","__proto__":{"polluted":true},"constructor":{"prototype":{"polluted":true}},"properties":{"__proto__":{"type":"string"}}}`;
    case 8:
      return dice.one([
        'true',
        'false',
        'null',
        '[]',
        '"object"',
        '1e400',
        '{"type":1}',
        '{"type":"object","type":"array"}',
      ]);
    case 9:
      return `{"type":"object","required":${dice.one(['"a"', '[1]', '["a","a"]', 'null'])},"properties":${dice.one(['[]', 'null', '{"":{}}', '{"a":true}'])}}`;
    case 10:
      return `{"type":"object","description":${JSON.stringify(dice.one(['\u202Eevil', '\u0000', '\u{E0041}', 'x'.repeat(50_000), runText(dice, 40_000).replaceAll(/[[\]{}]/g, '')]))}}`;
    case 11:
      return `{"type":"object","x-mcp-header":${dice.one(['"a\\r\\nb"', '{}', '"Authorization"', '""'])},"properties":{"a":{"x-mcp-header":"Host","type":"string"}}}`;
    default: {
      const keyword = dice.one(KEYWORDS);
      const value = keyword.endsWith('Of')
        ? `[${inner()},${inner()}]`
        : keyword.endsWith('s')
          ? `{"a":${inner()}}`
          : inner();
      return `{"type":"object","${keyword}":${value}}`;
    }
  }
}

/** Returns a list of tools as an upstream writes it, whose last tool is good. */
function toolsText(schemas: readonly string[]): string {
  const tools = schemas.map((schema, index) => `{"name":"t${index}","inputSchema":${schema}}`);
  return `{"tools":[${[...tools, '{"name":"good","inputSchema":{"type":"object"}}'].join()}]}`;
}

/** Lists schemas. The good tool stays, each other one is listed as it was sent or left out, and nothing is fetched. */
export async function checkSchemas(seed: number, inputs: number): Promise<readonly Finding[]> {
  const findings: Finding[] = [];
  await using trap = await Trap.start();
  for (let from = 0; from < inputs; from += AT_ONCE) {
    const numbers = Array.from({ length: Math.min(AT_ONCE, inputs - from) }, (_, i) => from + i);
    const schemas = numbers.map((index) => schemaText(new Dice(seed * 1_000_003 + index), trap.port));
    const add = (oracle: Finding['oracle'], text: string, input = schemas.join(' ')) =>
      findings.push({ oracle, text, category: SCHEMAS.name, input: shownBytes(Buffer.from(input)) });
    let leastMs = Infinity;
    for (let tries = 0; tries < TRIES && leastMs > MAX_MS; tries++) {
      const before = process.threadCpuUsage();
      try {
        await checkLists(schemas, add);
        compareAll(schemas);
      } catch (thrown) {
        add('alive', thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown));
      }
      const { user, system } = process.threadCpuUsage(before);
      leastMs = Math.min(leastMs, (user + system) / 1_000);
    }
    if (leastMs > MAX_MS) add('delay', `it took ${leastMs.toFixed(0)} ms of the processor`);
    if (trap.connections > 0) {
      add('denied', 'something connected to a URL in a schema');
      break;
    }
    if ('polluted' in {}) {
      add('foreign', 'a schema has changed the prototype of objects');
      break;
    }
  }
  return findings;
}

/** Returns how deep a JSON text without brackets in its strings is nested. */
function depthOf(text: string): number {
  let [depth, deepest] = [0, 0];
  for (const char of text) {
    if (char === '{' || char === '[') deepest = Math.max(deepest, ++depth);
    else if (char === '}' || char === ']') depth--;
  }
  return deepest;
}

type Add = (oracle: Finding['oracle'], text: string, input?: string) => void;

async function checkLists(schemas: readonly string[], add: Add): Promise<void> {
  const listText = toolsText(schemas);
  await using upstream = await legacyUpstream({
    tools: [],
    answers: {
      'tools/list': ({ id, response }) => {
        json(response, `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"result":${listText}}`);
        return undefined;
      },
      'tools/call': () => ({ content: [] }),
    },
  });
  await using gateway = await testCore({ up: upstream.config });
  const client = await gateway.connect();
  const lists = [await client.result('tools/list'), (await modernRequest(gateway, 'tools/list').reply).result ?? {}];
  // A list that is nested deeper than messages may be is refused as a whole.
  if (depthOf(listText) > LIMITS.jsonDepth) return;
  for (const { tools } of lists) {
    const listed = Array.isArray(tools) ? tools.map(membersOf) : [];
    if (!listed.some(({ name }) => name === 'up__good')) add('answered', 'the good tool is not listed');
    for (const { name, inputSchema } of listed) {
      const sent = schemas[Number(/^up__t(\d+)$/.exec(String(name))?.[1])];
      if (sent !== undefined && !isPart({ ...membersOf(inputSchema), type: undefined }, JSON.parse(sent))) {
        add('operation', `it is listed as ${JSON.stringify(inputSchema).slice(0, 300)}`, sent);
      }
    }
  }
  const { answer } = await client.request('tools/call', toolCall('up__good'));
  if (answer.kind === 'error') add('answered', 'the good tool cannot be called');
}

/** Returns whether a schema has nothing that the one of the upstream has not: the gateway only leaves out what clients could not read. */
function isPart(listed: unknown, sent: unknown): boolean {
  if (listed === undefined) return true;
  if (Array.isArray(listed)) {
    return Array.isArray(sent) && listed.every((item) => sent.some((other) => isPart(item, other)));
  }
  if (typeof listed === 'object' && listed !== null) {
    const members = membersOf(sent);
    return Object.entries(listed).every(([name, value]) => isPart(value, members[name]));
  }
  if (typeof listed === 'string' && typeof sent === 'string') return isSubsequence(listed, sent);
  return Object.is(listed, sent);
}

/** Returns whether a text is another one without some of its characters. */
function isSubsequence(text: string, whole: string): boolean {
  let at = 0;
  for (const char of text) {
    at = whole.indexOf(char, at) + 1;
    if (at === 0) return false;
  }
  return true;
}

/** Compares each schema with the next one, as the lock does. */
function compareAll(schemas: readonly string[]): void {
  const readable = schemas.filter((schema) => depthOf(schema) < LIMITS.jsonDepth);
  const definitions = readable.map((schema) => {
    const tools = [RawObject.parse(`{"name":"t","inputSchema":${schema}}`)];
    const listed = { tools, prompts: [], resources: [], templates: [], instructions: undefined };
    return [...definitionsOf(listed).values()].flat()[0];
  });
  for (const [index, before] of definitions.entries()) {
    const after = definitions[(index + 1) % definitions.length];
    if (before === undefined || after === undefined) continue;
    suspicions(after);
    definitionChanges(before, after);
  }
}
