import type { RateConfig } from '../values/config.ts';
import type { Faults } from '../document/faults.ts';
import type { Path } from '../document/problem.ts';
import type { GatewaySettings } from '../schema/gateway-schema.ts';
import type { Names } from './names.ts';
import { EMPTY, selectorOf, type SelectorJudge } from './selector-faults.ts';

/** Reads the rates, and checks that each can hold for something. */
export function readRates(
  settings: GatewaySettings,
  names: Names,
  judge: SelectorJudge,
  faults: Faults,
): readonly RateConfig[] {
  const known = new Set<string>();
  const rates = settings.rates.map((rate, index): RateConfig => {
    const path: Path = ['gateway', 'rates', index];
    const { name, per, limit, window: windowMs, tools } = rate;
    if (known.has(name)) faults.refuse([...path, 'name'], 'another rate has this name');
    known.add(name);
    const to = selectorOf(rate.to);
    judge.judge([...path, 'to'], to, 'warn');
    const before = faults.problems.length;
    for (const list of ['endpoints', 'upstreams', 'tools'] as const)
      if (rate[list]?.length === 0) faults.refuse([...path, list], EMPTY);
    const valuesOf = (list: 'endpoints' | 'upstreams', kind: string, values: ReadonlyMap<string, string>) =>
      rate[list]?.flatMap((one, i) => faults.resolve([...path, list, i], kind, one, values) ?? []);
    const endpoints = valuesOf('endpoints', 'endpoint', names.views);
    const upstreams = valuesOf('upstreams', 'upstream', names.upstreams);
    const message = 'none of these upstreams is at the endpoints of this rate; name others here or there';
    if (faults.problems.length === before && !names.meet(upstreams, endpoints))
      faults.warn([...path, 'upstreams'], message, 'key');
    return { name, to, endpoints, upstreams, tools, per, limit, windowMs };
  });
  if (settings.repeats?.tools.length === 0) faults.refuse(['gateway', 'repeats', 'tools'], EMPTY);
  return rates;
}
