import assert from 'node:assert/strict';
import { test } from 'node:test';
import { severityOf } from '../../../src/upstream/stdio/line-severity.ts';
import { quote } from '../../support/test-name.ts';

const severities: readonly (readonly [line: string, severity: string | undefined])[] = [
  ['ERROR:root:cannot connect', 'error'],
  ['2026-11-22 12:00:00,123 - server - WARNING - slow', 'warning'],
  ['[11/22/26 15:00:00] INFO     Processing request of type ListToolsRequest', 'info'],
  ['time=2026-11-22T12:00:00Z level=warn msg="x"', 'warning'],
  ['{"level":"error","msg":"x"}', 'error'],
  ['{"severity": "CRITICAL"}', 'critical'],
  ['Error: Cannot find module "x"', 'error'],
  ['[debug] started', 'debug'],
  ['panic: runtime error', 'critical'],
  ['Traceback (most recent call last):', 'error'],
  ['Secure MCP Filesystem Server running on stdio', undefined],
  ['no errors found', undefined],
  ['information for users: none', undefined],
];

for (const [line, severity] of severities) {
  test(`the severity of ${quote(line, 50)} is ${severity ?? 'unknown'}`, () => {
    assert.equal(severityOf(line), severity);
  });
}
