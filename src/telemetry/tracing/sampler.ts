import {
  AlwaysOffSampler,
  AlwaysOnSampler,
  ParentBasedSampler,
  type Sampler,
  TraceIdRatioBasedSampler,
} from '@opentelemetry/sdk-trace';

/**
 * Returns the sampler. A request that names a trace is traced if its sender traces it.
 *
 * @param share of the other requests; undefined for what `OTEL_TRACES_SAMPLER` and `OTEL_TRACES_SAMPLER_ARG` say, which the SDK
 *   reads only in its all-in-one package.
 * @see https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/#general-sdk-configuration
 */
export function samplerOf(share: number | undefined, env: NodeJS.ProcessEnv): Sampler {
  if (share !== undefined) return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(share) });
  const { OTEL_TRACES_SAMPLER: name = '', OTEL_TRACES_SAMPLER_ARG: text = '' } = env;
  const ratio = text.trim() === '' || !(Number(text) >= 0 && Number(text) <= 1) ? 1 : Number(text);
  switch (name.trim()) {
    case 'always_on':
      return new AlwaysOnSampler();
    case 'always_off':
      return new AlwaysOffSampler();
    case 'traceidratio':
      return new TraceIdRatioBasedSampler(ratio);
    case 'parentbased_always_off':
      return new ParentBasedSampler({ root: new AlwaysOffSampler() });
    case 'parentbased_traceidratio':
      return new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(ratio) });
    default:
      return new ParentBasedSampler({ root: new AlwaysOnSampler() });
  }
}
