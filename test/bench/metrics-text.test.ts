import assert from 'node:assert/strict';
import { test } from 'node:test';
import { longestBlockMs, parseSamples, total } from '../../bench/metrics-text.ts';

const TEXT = [
  '# HELP linkspan_upstream_up 1 while the upstream serves requests, else 0.',
  '# TYPE linkspan_upstream_up gauge',
  'linkspan_upstream_up{upstream="a"} 1',
  'linkspan_upstream_up{upstream="b} 7"} 0',
  'linkspan_upstream_up{upstream="c"} 1',
  'nodejs_eventloop_lag_max_seconds 0.125',
  'linkspan_sessions 3',
  '',
].join('\n');

test('every sample is read with any labels, and no comment', () => {
  assert.deepEqual(
    parseSamples(TEXT).map(({ value }) => value),
    [1, 0, 1, 0.125, 3],
  );
});

test('a metric is summed over its labels', () => {
  assert.equal(total(parseSamples(TEXT), 'linkspan_upstream_up'), 2);
  assert.equal(total(parseSamples(TEXT), 'linkspan_sessions'), 3);
});

test('a metric that is missing is 0', () => assert.equal(total(parseSamples(TEXT), 'linkspan_unknown'), 0));

test('the interval of the measuring timer is no block of the event loop', () => {
  assert.equal(longestBlockMs(parseSamples(TEXT)), 115);
  assert.equal(longestBlockMs(parseSamples('nodejs_eventloop_lag_max_seconds 0.0099')), 0);
});
