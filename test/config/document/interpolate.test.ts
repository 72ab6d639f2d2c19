import assert from 'node:assert/strict';
import { test } from 'node:test';

import * as fc from '../../support/fast-check.ts';

import { expand, type ExpansionSyntax, type Lookup } from '../../../src/config/document/interpolate.ts';
import { quote, shortened } from '../../support/test-name.ts';

const VARIABLES: Readonly<Record<string, string>> = {
  NAME: 'value',
  EMPTY: '',
  DIRECTORY: '/run/secrets',
  NESTED: '${NAME}',
  INPUT_API_KEY: 'asked',
};
const FILES: Readonly<Record<string, string>> = { '/run/secrets/token': 'secret\n', '/two': 'a\r\n\r\n' };

const lookup: Lookup = {
  variable: (name) => VARIABLES[name],
  file: (path) => {
    const text = FILES[path];
    return text === undefined ? { problem: 'cannot be read (ENOENT)' } : { text };
  },
  place: (name) => (name === 'workspaceFolder' ? '/work' : undefined),
};

const expansions: readonly { text: string; to: string; dialect?: ExpansionSyntax }[] = [
  { text: 'plain', to: 'plain' },
  { text: '', to: '' },
  { text: '${NAME}', to: 'value' },
  { text: 'a ${NAME}, ${NAME}!', to: 'a value, value!' },
  { text: '${env:NAME}', to: 'value' },
  { text: '${EMPTY}', to: '' },
  { text: '${UNSET:-default}', to: 'default' },
  { text: '${EMPTY:-default}', to: 'default' },
  { text: '${NAME:-default}', to: 'value' },
  { text: '${env:UNSET:-default}', to: 'default' },
  { text: '${UNSET:-}', to: '' },
  { text: '${UNSET:-https://x/y?z=${NAME}}', to: 'https://x/y?z=value' },
  { text: '${UNSET:-${ALSO_UNSET:-deep}}', to: 'deep' },
  { text: '${UNSET:-{"a":{}}}', to: '{"a":{}}' },
  { text: '${NAME:?must be set}', to: 'value' },
  { text: '${file:/run/secrets/token}', to: 'secret' },
  { text: '${file:${DIRECTORY}/token}', to: 'secret' },
  { text: '${file:/two}', to: 'a\r\n' },
  { text: '${input:api-key}', to: 'asked' },
  { text: '${workspaceFolder}/src', to: '/work/src' },
  { text: '$$', to: '$' },
  { text: '$${NAME}', to: '${NAME}' },
  { text: '$$${NAME}', to: '$value' },
  { text: 'costs 5$, $NAME, {env:NAME}, }', to: 'costs 5$, $NAME, {env:NAME}, }' },
  { text: '${NESTED}', to: '${NAME}' },
  { text: 'Bearer $NAME', to: 'Bearer value', dialect: 'gemini' },
  { text: '5$ and $', to: '5$ and $', dialect: 'gemini' },
  { text: '{env:NAME} {"a":1} ${NAME}', to: 'value {"a":1} value', dialect: 'opencode' },
  { text: '{file:/run/secrets/token}', to: 'secret', dialect: 'opencode' },
];

for (const { text, to, dialect } of expansions) {
  test(`${JSON.stringify(text)} becomes ${JSON.stringify(to)}${dialect === undefined ? '' : ` in ${dialect}`}`, () => {
    assert.deepEqual(expand(text, lookup, dialect), { text: to });
  });
}

const problems = [
  { text: '${UNSET}', problem: 'environment variable UNSET is not set' },
  { text: 'a${env:UNSET}b', problem: 'environment variable UNSET is not set' },
  { text: '${UNSET:?ask the team}', problem: 'environment variable UNSET is not set: ask the team' },
  { text: '${EMPTY:?ask the team}', problem: 'environment variable EMPTY is empty: ask the team' },
  { text: '${UNSET:?}', problem: 'environment variable UNSET is not set' },
  { text: '${UNSET:-${ALSO_UNSET}}', problem: 'environment variable ALSO_UNSET is not set' },
  { text: '${file:/nowhere}', problem: 'the file of "${file:/nowhere}" cannot be read (ENOENT)' },
  { text: '${file:${DIRECTORY}/no}', problem: 'the file of "${file:${DIRECTORY}/no}" cannot be read (ENOENT)' },
  {
    text: '${input:other}',
    problem: '"${input:other}" is taken from the environment variable INPUT_OTHER, which is not set',
  },
];

for (const { text, problem } of problems) {
  test(`${quote(text, 24)} fails: ${shortened(problem, 45)}`, () =>
    assert.deepEqual(expand(text, lookup), { problem }));
}

for (const text of [
  '${',
  '${NAME',
  '${}',
  '${1X}',
  '${NAME-x}',
  '${NAME:=x}',
  '${a b}',
  '${command:x}',
  '${NAME:-{}',
]) {
  test(`${JSON.stringify(text)} is refused with the valid forms`, () => {
    const result = expand(text, lookup);
    assert.ok('problem' in result && result.problem.includes('${NAME:-default}'));
  });
}

test('text without a dollar sign stays as it is, and any text terminates', () => {
  fc.assert(
    fc.property(fc.string({ unit: fc.constantFrom('$', '{', '}', ':', '-', '?', 'A', 'env:', 'file:') }), (text) => {
      const result = expand(text, lookup);
      if (!text.includes('$')) assert.deepEqual(result, { text });
    }),
  );
});

test('a problem holds no value of a variable', () => {
  const secret: Lookup = { ...lookup, variable: (name) => (name === 'SECRET' ? 'hunter2' : undefined) };
  for (const text of ['${SECRET}${UNSET}', '${file:/x/${SECRET}}', '${UNSET:?no ${SECRET}}', '${SECRET:=x}']) {
    assert.doesNotMatch(JSON.stringify(expand(text, secret)), /hunter2/);
  }
});
