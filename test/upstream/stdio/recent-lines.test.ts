import assert from 'node:assert/strict';
import { test } from 'node:test';
import { printedLine, RecentLines } from '../../../src/upstream/stdio/recent-lines.ts';

test('the last lines are kept within the limit, and older ones are not', () => {
  const lines = new RecentLines(10);
  assert.equal(lines.last, undefined);
  for (const line of ['first', '', '  ', 'second', 'last']) lines.add(line);
  assert.equal(lines.toString(), 'second\nlast');
  assert.equal(lines.last, 'last');
});

// REL-11
test('a line longer than the limit is cut', () => {
  assert.equal(printedLine('x'.repeat(1_000_000), 10), `${'x'.repeat(9)}…`);
});

// SEC-36
test('a line in a log has no escape sequences, line breaks and changes of direction', () => {
  assert.equal(
    printedLine('\u001B[31mred\u001B[0m\u0007\r\n\u2028\u202Ereversed\ttab\r', 100),
    'red\\u0007 \\u2028\\u202ereversed\ttab',
  );
});
