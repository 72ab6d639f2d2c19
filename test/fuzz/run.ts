/**
 * Sends bad inputs to a gateway and checks each of them by all oracles:
 *
 *     node test/fuzz/run.ts [--seed SEED] [--times FACTOR] [--only CATEGORY] [--json FILE]
 *
 * A seed decides the inputs; without one, each run has another. `--times 20` sends 20 times as many. `docs/testing.md` lists the oracles.
 */
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { checkConfigs, CONFIGS } from './configs.ts';
import { SEALED, TOKENS } from './credentials.ts';
import { documentedStatuses } from './documented.ts';
import { OAUTH, OPERATOR } from './edge-heads.ts';
import { Engine, type Finding } from './engine.ts';
import { HEADS } from './heads.ts';
import { checkIssuers, ISSUERS } from './issuers.ts';
import { MESSAGES } from './messages.ts';
import { NAMED } from './names.ts';
import { RUNS } from './runs.ts';
import { checkSchemas, SCHEMAS } from './schemas.ts';
import { GatewaySubject } from './subject.ts';
import { UPSTREAM_HTTP, UPSTREAM_STDIO } from './upstream-bytes.ts';
import { checkUrls, URLS } from './urls.ts';

const CATEGORIES = [MESSAGES, NAMED, SEALED, TOKENS, UPSTREAM_STDIO, UPSTREAM_HTTP, HEADS, OAUTH, OPERATOR, RUNS];
/** Findings of one category that are printed. */
const MAX_SHOWN = 20;

const { values: options } = parseArgs({
  options: {
    seed: { type: 'string' },
    times: { type: 'string', default: '1' },
    only: { type: 'string' },
    json: { type: 'string' },
  },
});

function shown({ category, oracle, text, input }: Finding): string {
  return `${category}: ${oracle}: ${text}\n    input: ${input}`;
}

async function main(): Promise<void> {
  const seed = Number(options.seed ?? Date.now() % 1_000_000);
  const times = Number(options.times);
  const documented = documentedStatuses(await readFile(new URL('../../docs/errors.md', import.meta.url), 'utf8'));
  const dir = await mkdtemp(join(tmpdir(), 'linkspan-fuzz-'));
  const failures: string[] = [];
  let passed = 0;
  const report = (name: string, inputs: number, startedMs: number, findings: readonly Finding[]) => {
    const seconds = ((performance.now() - startedMs) / 1_000).toFixed(1);
    console.log(
      `${name}: ${inputs} inputs, ${findings.length} findings, ${seconds} s (--seed ${seed} --only "${name}")`,
    );
    for (const finding of findings.slice(0, MAX_SHOWN)) console.log(`  ${shown(finding)}`);
    passed += inputs - Math.min(inputs, findings.length);
    for (const finding of findings) failures.push(`seed ${seed}: ${shown(finding)}`);
  };
  const isWanted = (name: string) => options.only === undefined || options.only === name;
  try {
    await using subject = await GatewaySubject.start(dir);
    for (const category of CATEGORIES.filter(({ name }) => isWanted(name))) {
      const startedMs = performance.now();
      const inputs = Math.ceil(category.inputs * times);
      const engine = new Engine(subject, category, seed, documented);
      report(category.name, inputs, startedMs, await engine.run(inputs));
      console.log(`  ${engine.results} of them had a result`);
      if (!subject.isRunning) break;
    }
    // These run in the process of the fuzzer.
    const own = [
      { ...CONFIGS, check: (inputs: number) => checkConfigs(dir, seed, inputs) },
      { ...URLS, check: (inputs: number) => checkUrls(seed, inputs) },
      { ...ISSUERS, check: (inputs: number) => checkIssuers(seed, inputs) },
      { ...SCHEMAS, check: (inputs: number) => checkSchemas(seed, inputs) },
    ];
    for (const { name, inputs: least, check } of own.filter((each) => isWanted(each.name))) {
      const startedMs = performance.now();
      const inputs = Math.ceil(least * times);
      report(name, inputs, startedMs, await check(inputs));
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
  console.log(`${passed} inputs passed, ${failures.length} findings; seed ${seed}`);
  if (options.json !== undefined) {
    await writeFile(options.json, JSON.stringify({ passed, failed: failures.length, failures }));
  }
  process.exitCode = failures.length === 0 ? 0 : 1;
}

await main();
