import assert from 'node:assert/strict';
import { test } from 'node:test';
import { argumentsOf } from '../../../src/cli/operator/call.ts';
import { CliError } from '../../../src/cli/operator/cli-error.ts';

const accepted: readonly { readonly args: readonly string[]; readonly given: object }[] = [
  { args: [], given: {} },
  { args: ['a=1', 'b=text', 'c=true', 'd=null'], given: { a: 1, b: 'text', c: true, d: null } },
  { args: ['q=a=b', 'empty='], given: { q: 'a=b', empty: '' } },
  { args: ['list=[1,2]'], given: { list: [1, 2] } },
  { args: ['{"a":{"b":1}}'], given: { a: { b: 1 } } },
];

for (const { args, given } of accepted) {
  test(`the arguments ${JSON.stringify(args)} of a call are read`, () => {
    assert.deepEqual(argumentsOf(args), given);
  });
}

for (const args of [
  ['id=12345678901234567890'],
  ['{"a":[12345678901234567890]}'],
  ['{"a":'],
  ['alone'],
  ['=x'],
  ['{}', '{}'],
]) {
  test(`the arguments ${JSON.stringify(args)} of a call are refused as a wrong command line`, () => {
    assert.throws(
      () => argumentsOf(args),
      (error) => error instanceof CliError && error.exitCode === 2,
    );
  });
}
