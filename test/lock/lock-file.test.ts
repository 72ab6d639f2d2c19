import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RawObject } from '../../src/json/json.ts';
import { compareLists } from '../../src/lock/comparison.ts';
import {
  listsFor,
  type Lock,
  LockFileError,
  lockText,
  mergeEras,
  parseLock,
  pinLists,
} from '../../src/lock/lock-file.ts';

function listed(tools: readonly object[], instructions?: string) {
  const items = tools.map((tool) => RawObject.parse(JSON.stringify(tool)));
  const serverInfo = RawObject.of({ name: 'files', version: '1.2.0' });
  return { tools: items, prompts: [], resources: [], templates: [], instructions, serverInfo };
}

const TOOL = {
  name: 'read',
  description: 'Reads a file.\nReturns its text.',
  inputSchema: { type: 'object', properties: {} },
};
const OTHER = { name: 'cut\u200b', description: 'Ends\u{e0041}.', inputSchema: { type: 'object' }, big: 1 };

function lockOf(tools: readonly object[], instructions?: string): Lock {
  return new Map([['files', [pinLists(listed(tools, instructions), ['legacy'])]]]);
}

// SEC-33
test('a lock file holds definitions by line, with hidden characters as escapes', () => {
  const text = lockText(lockOf([TOOL, OTHER], 'Read first.'));
  const lines = text.split('\n').slice(2).join('\n');
  assert.equal(
    lines,
    `  "version": 1,
  "upstreams": {
    "files": [
      {
        "eras": [
          "legacy"
        ],
        "server": "files 1.2.0",
        "instructions": "Read first.",
        "tools": {
          "cut\\u200b": {
            "big": 1,
            "description": "Ends\\udb40\\udc41.",
            "inputSchema": {
              "type": "object"
            }
          },
          "read": {
            "description": [
              "Reads a file.",
              "Returns its text."
            ],
            "inputSchema": {
              "properties": {},
              "type": "object"
            }
          }
        }
      }
    ]
  }
}
`,
  );
});

test('a lock file that is read again has no differences from the lists', () => {
  const tools = [
    TOOL,
    OTHER,
    { name: 'n', max: 12_345, examples: [{ description: ['a', 'b'] }], description: 'a\r\nb\n' },
  ];
  const exact = listed(tools, 'One.\n\nTwo.');
  const tool = RawObject.parse('{"name":"exact","max":1.0,"other":12345678901234567890,"__proto__":{"a":1}}');
  const lists = { ...exact, tools: [...exact.tools, tool] };
  const lock = parseLock(lockText(new Map([['files', [pinLists(lists, ['legacy'])]]])));
  assert.deepEqual(compareLists(listsFor(lock.get('files'), 'legacy'), lists), []);
  assert.equal(lockText(lock), lockText(parseLock(lockText(lock))));
});

test('a lock file does not depend on the order in which a server lists its items', () => {
  assert.equal(lockText(lockOf([TOOL, OTHER])), lockText(lockOf([OTHER, TOOL])));
});

test('eras with equal definitions share them, and others have their own', () => {
  const legacy = pinLists(listed([TOOL]), ['legacy']);
  const modern = pinLists(listed([TOOL]), ['modern']);
  assert.deepEqual(
    mergeEras([legacy, modern]).map(({ eras }) => eras),
    [['legacy', 'modern']],
  );
  const wider = pinLists(listed([TOOL, OTHER]), ['modern']);
  const lists = mergeEras([legacy, wider]);
  assert.deepEqual(
    lists.map(({ eras }) => eras),
    [['legacy'], ['modern']],
  );
  assert.equal(mergeEras([wider, legacy]).length, 2, 'whichever comes first');
  assert.equal(listsFor(lists, 'modern'), wider);
  assert.equal(listsFor([legacy], 'modern'), legacy, 'an era without lists is compared with the other one');
  assert.equal(listsFor(undefined, 'modern'), undefined);
});

test('a definition that is nested too deeply equals no other', () => {
  let schema: object = { type: 'object' };
  for (let level = 0; level < 29; level++) schema = { type: 'object', properties: { next: schema } };
  const lists = listed([{ name: 'deep', inputSchema: schema }]);
  const lock = parseLock(lockText(new Map([['files', [pinLists(lists, ['legacy'])]]])));
  assert.deepEqual(
    compareLists(listsFor(lock.get('files'), 'legacy'), lists).map(({ key, status }) => [key, status]),
    [['deep', 'added']],
  );
  assert.equal(mergeEras([pinLists(lists, ['legacy']), pinLists(lists, ['modern'])]).length, 2);
});

const broken: readonly (readonly [string, string, RegExp])[] = [
  ['that is cut', '{\n  "version": 1,\n  "upstreams": {', /cannot be read|can be read/],
  ['with a conflict of git', '{\n<<<<<<< HEAD\n  "version": 1\n}', /can be read/],
  ['of another version', '{"version": 2, "upstreams": {}}', /version 2/],
  ['without upstreams', '{"version": 1}', /no "upstreams"/],
  ['without eras', '{"version": 1, "upstreams": {"a": [{"eras": []}]}}', /no era/],
  ['that is a list', '[]', /can be read/],
];

for (const [what, text, expected] of broken) {
  test(`a lock file ${what} is refused`, () => {
    assert.throws(
      () => parseLock(text),
      (thrown) => thrown instanceof LockFileError && expected.test(thrown.message),
    );
  });
}

test('a syntax error in a lock file has its line and column', () => {
  const text = '{\n  "version": 1,\n  oops\n}';
  assert.throws(
    () => parseLock(text),
    (thrown) => thrown instanceof LockFileError && thrown.line === 3 && thrown.column === 3,
  );
});
