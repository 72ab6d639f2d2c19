import assert from 'node:assert/strict';
import { test } from 'node:test';
import { samplerOf } from '../../../src/telemetry/tracing/sampler.ts';
import { shortened } from '../../support/test-name.ts';

const ROOT_ON = 'ParentBased{root=AlwaysOnSampler';
const ROOT_OFF = 'ParentBased{root=AlwaysOffSampler';

const cases = [
  { share: undefined, env: {}, begins: ROOT_ON },
  { share: 0.25, env: { OTEL_TRACES_SAMPLER: 'always_off' }, begins: 'ParentBased{root=TraceIdRatioBased{0.25}' },
  { share: undefined, env: { OTEL_TRACES_SAMPLER: 'always_on' }, begins: 'AlwaysOnSampler' },
  { share: undefined, env: { OTEL_TRACES_SAMPLER: 'always_off' }, begins: 'AlwaysOffSampler' },
  { share: undefined, env: { OTEL_TRACES_SAMPLER: 'parentbased_always_on' }, begins: ROOT_ON },
  { share: undefined, env: { OTEL_TRACES_SAMPLER: 'parentbased_always_off' }, begins: ROOT_OFF },
  {
    share: undefined,
    env: { OTEL_TRACES_SAMPLER: 'traceidratio', OTEL_TRACES_SAMPLER_ARG: '0.5' },
    begins: 'TraceIdRatioBased{0.5}',
  },
  {
    share: undefined,
    env: { OTEL_TRACES_SAMPLER: 'parentbased_traceidratio', OTEL_TRACES_SAMPLER_ARG: '2' },
    begins: 'ParentBased{root=TraceIdRatioBased{1}',
  },
  { share: undefined, env: { OTEL_TRACES_SAMPLER: 'unknown' }, begins: ROOT_ON },
];

for (const { share, env, begins } of cases) {
  test(`sampling ${share} with ${Object.values(env).join(' ')} is ${shortened(begins, 24)}`, () => {
    const shown = samplerOf(share, env).toString();
    assert.ok(shown.startsWith(begins), shown);
  });
}
