import { performance } from 'node:perf_hooks';
import { Gate } from '../src/gateway/exchange/gate.ts';
import { RawObject } from '../src/json/json.ts';
import type { AccessConfig, RuleConfig } from '../src/policy/access-config.ts';
import { ANYONE } from '../test/policy/policies.ts';

/**
 * Prints the time of one decision about a call, in µs: the fastest of several rounds. Run it with
 * `node bench/policy-cost.ts`.
 */
const RULES = 200;
const CALLS = 20_000;
const ROUNDS = 7;

function rule(name: string, part: Partial<RuleConfig>): RuleConfig {
  const none = { tools: undefined, prompts: undefined, resources: undefined, hints: {}, when: undefined };
  return { name, place: { file: 'bench', line: 1 }, upstreams: ['up'], ...none, ...part };
}

function policyOf(ruleOf: (index: number) => RuleConfig): AccessConfig {
  const names = Array.from({ length: RULES }, (_, index) => `role ${index}`);
  return {
    claims: [],
    groupClaims: [],
    roles: names.map((name, index) => ({ name, allow: ruleOf(index), deny: [] })),
    grants: [
      {
        roles: names,
        endpoints: undefined,
        ...ANYONE,
      },
    ],
  };
}

const CASES: Readonly<Record<string, AccessConfig>> = {
  'no condition': policyOf((index) => rule(`${index}`, { tools: [`tool_${index}`] })),
  'a condition on arguments for each tool': policyOf((index) =>
    rule(`${index}`, { tools: [`tool_${index}`], when: `args.n > 0 && args.path.startsWith("/pub/${index}/")` }),
  ),
  'a condition on the tool and on arguments': policyOf((index) =>
    rule(`${index}`, { when: `tool.name == "tool_${index}" && args.path.startsWith("/pub/${index}/")` }),
  ),
};

function microsecondsPerCall(access: AccessConfig): number {
  const gate = new Gate(access, []);
  const last = RULES - 1;
  const principal = { key: 'key:ann', label: 'ann', scopes: [], keyName: 'ann' };
  const caller = { principal, view: '', revision: '2025-11-25', capabilities: RawObject.parse('{}') } as const;
  const params = RawObject.parse(`{"name":"tool_${last}","arguments":{"n":1,"path":"/pub/${last}/a"}}`);
  const request = { kind: 'request', id: '1', method: 'tools/call', params } as const;
  const source = { item: RawObject.parse(`{"name":"tool_${last}"}`), isModern: false, headerParams: [] };
  const name = `tool_${last}`;
  const to = { kind: 'upstream', upstream: 'up', params, tool: `up__${name}`, upstreamTool: name, source } as const;
  let best = Infinity;
  for (let round = 0; round < ROUNDS; round++) {
    const startedMs = performance.now();
    for (let call = 0; call < CALLS; call++) {
      if (gate.judge(caller, request, to)?.effect !== 'allow') throw new Error('the call was denied');
    }
    best = Math.min(best, performance.now() - startedMs);
  }
  return (best * 1_000) / CALLS;
}

for (const [name, access] of Object.entries(CASES)) {
  console.info(`${name}: ${microsecondsPerCall(access).toFixed(2)} µs`);
}
