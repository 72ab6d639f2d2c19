import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { hasUnseen } from '../../../src/peer-text.ts';
import { createLogger } from '../../../src/telemetry/log.ts';

const ROOT = join(import.meta.dirname, '../../../src');
const sources = new Map(
  globSync('**/*.ts', { cwd: ROOT }).map((file) => [file, readFileSync(join(ROOT, file), 'utf8')]),
);

/** Matches the beginning of a call that writes a line. */
const CALL = /\blog\??(?:\.(?:trace|debug|info|warn|error|fatal)|\[[^\]]+\])\(/gi;

/** Returns the arguments of a call as source text. @param at the offset after its opening parenthesis. */
function argumentsAt(source: string, at: number): readonly string[] {
  const found: string[] = [];
  let depth = 0;
  let start = at;
  let quote = '';
  for (let i = at; i < source.length; i++) {
    const char = source.charAt(i);
    if (quote !== '') {
      if (char === '\\') i++;
      else if (char === quote) quote = '';
    } else if (`'"\``.includes(char)) quote = char;
    else if ('([{'.includes(char)) depth++;
    else if (')]}'.includes(char) && depth-- === 0) return [...found, source.slice(start, i)];
    else if (char === ',' && depth === 0) {
      found.push(source.slice(start, i));
      start = i + 1;
    }
  }
  throw new RangeError('the call has no end');
}

/** All calls that write a line, with their arguments. */
const calls = [...sources].flatMap(([file, source]) =>
  [...source.matchAll(CALL)].map(({ 0: begin, index }) => {
    const given = argumentsAt(source, index + begin.length).map((text) => text.trim());
    return { file, given: given.filter((text) => text !== '') };
  }),
);

/** Places whose messages are not one constant text: of a few constants, or about the config. */
const CHANGING: Readonly<Record<string, string>> = {
  'cli/start.ts': 'warning',
  'compose/replicas/replicas.ts': '`the lease of this',
  'compose/lists/unmatched-globs.ts': 'warning',
  'compose/operator-access.ts': 'message',
  'compose/reload/reload.ts': 'warning',
  'gateway/lists/problem-reports.ts': 'text',
};

// N-70
test('the message of a log line is constant, so that texts of peers are fields', () => {
  assert.ok(calls.length > 100, `${calls.length} calls`);
  const changing = calls.filter(({ file, given }) => {
    const message = given.at(-1) ?? '';
    return !/^(?:'[^']*'|"[^"]*")$/.test(message) && !message.startsWith(CHANGING[file] ?? '(');
  });
  assert.deepEqual(changing, []);
});

/** Places outside of the log that write to the terminal, each with the reason. */
const WRITERS: Readonly<Record<string, string>> = {
  'cli/operator/logs.ts': 'lines of the terminal log, with its colours',
  'cli/operator/output.ts': 'the only output of commands',
  'main.ts': 'its version, and nothing',
  'telemetry/log.ts': 'the terminal log',
};

// N-70
test('texts reach the log and the terminal through one file each', () => {
  const writers = [...sources].filter(([, source]) =>
    /\bprocess\.std(?:out|err)\.write\(|\bstd(?:out|err)\.write\(|= process\.std(?:out|err);|\{ std(?:out|err) \} = process;|\bconsole\./.test(
      source,
    ),
  );
  assert.deepEqual(writers.map(([file]) => file).toSorted(), Object.keys(WRITERS).toSorted());
  const loggers = [...sources].filter(([, source]) => /\bpino(?:\.destination)?\(/.test(source));
  assert.deepEqual(loggers.map(([file]) => file).toSorted(), [
    'telemetry/log.ts',
    'telemetry/log/stderr-destination.ts',
  ]);
});

/** Places that know characters a person cannot see, besides `peer-text.ts`, each with the reason. */
const KNOW_UNSEEN: Readonly<Record<string, string>> = {
  'catalog/items/texts.ts': 'cleans what clients get',
  'catalog/uri.ts': 'names the upstream of disguised URIs',
  'gateway/questions/safe-question.ts': 'refuses URLs',
  'lock/hidden-characters.ts': 'finds changes of definitions, and is the form of the lock file',
  'catalog/resources/uri-form.ts': 'refuses URIs',
  'store/api-key-store.ts': 'refuses names',
  'upstream/http/http-headers.ts': 'refuses session ids',
};

// N-73
test('one file has the characters that are shown as escapes', () => {
  const others = [...sources].filter(([file, source]) => {
    return file !== 'peer-text.ts' && /\\p\{C|Bidi_Control|\\u(?:009f|202|200[bef])/i.test(source);
  });
  assert.deepEqual(others.map(([file]) => file).toSorted(), Object.keys(KNOW_UNSEEN).toSorted());
});

/** The names of the fields in all calls, in whatever form the call gives them. */
const names = new Set(
  calls.flatMap(({ given: [fields = '', message] }) => {
    if (message === undefined || !fields.startsWith('{')) return [];
    return [...fields.matchAll(/(?<=[{,]\s*)([A-Za-z]\w*)(?=\s*[:,}])/g)].map(([, name = '']) => name);
  }),
);

const HOSTILE = '\u009b31m\u202e\u200b\u2028\u{e0041}\u007f"名';

// N-70
for (const level of ['info', 'debug'] as const) {
  test(`4 MB in any field of any line at level ${level} become a few clean kilobytes`, () => {
    assert.ok(names.size > 50 && names.has('upstream') && names.has('reason'), [...names].join());
    const text = HOSTILE.repeat(4_000_000 / HOSTILE.length);
    for (const name of names) {
      for (const value of [text, [text], { [text]: text }, new Error(text, { cause: new TypeError(text) })]) {
        const lines: string[] = [];
        createLogger(level, { write: (line) => void lines.push(line) }).info({ [name]: value }, text);
        assert.equal(lines.length, 1, name);
        const [line = ''] = lines;
        assert.ok(Buffer.byteLength(line) < 30_000, `${name}: ${Buffer.byteLength(line)} bytes`);
        assert.ok(!hasUnseen(line.slice(0, -1)), name);
        JSON.parse(line);
      }
    }
  });
}

// N-70
test('an error of 4 MB that a client has caused is 200 characters in its line', () => {
  for (const text of ['x', '"', '\\', '\u009b', '名']) {
    const message = text.repeat(4_000_000);
    const lines: string[] = [];
    const err = new GatewayError('unsupported-revision', { message, advice: message, data: { requested: message } });
    createLogger('info', { write: (line) => void lines.push(line) }).info({ err, code: err.code }, 'text');
    assert.ok(Buffer.byteLength(lines.join('')) < 900, `${text}: ${Buffer.byteLength(lines.join(''))} bytes`);
  }
});

// N-70
test('a long list is logged in part, with the number of the others', () => {
  const lines: string[] = [];
  const log = createLogger('info', { write: (line) => void lines.push(line) });
  log.info({ scopes: Array.from({ length: 1_000 }, (_, i) => i) }, 'text');
  const { scopes } = Object(JSON.parse(lines.join('')));
  assert.equal(scopes.length, 101);
  assert.equal(scopes.at(-1), '… and 900 more');
});
