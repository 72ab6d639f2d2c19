import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { parse } from 'yaml';
import * as z from 'zod';

const ROOT = fileURLToPath(new URL('..', import.meta.url));
const read = (file: string): string => readFileSync(join(ROOT, file), 'utf8');

const PAGE = read('docs/sizing.md');
const GIB = 2 ** 30;

/** Returns the first number that a sentence or row of the page has. */
function figure(form: RegExp): number {
  const [, text] = form.exec(PAGE) ?? [];
  assert.ok(text !== undefined, `docs/sizing.md has nothing like ${String(form)}`);
  return Number(text);
}

/** The figures of the rule, as the page has them. */
const FIGURES = {
  baseBytes: figure(/^memory ≈ ([\d.]+) GiB \+ sessions/m) * GIB,
  sessionBytes: figure(/sessions × (\d+) kB/) * 1_000,
  processBytes: figure(/with (\d+) MB for a process/) * 1_000_000,
  gatewayThreads: figure(/^\| The gateway itself[^|]*\| (\d+) \|/m),
  processThreads: figure(/count (\d+) for each process/),
};

/** Returns the bytes of `4g`, `2Gi` or `4G`, which all mean GiB. */
function bytes(text: string): number {
  const [, amount] = /^(\d+)(?:g|G|Gi)$/.exec(text) ?? [];
  assert.ok(amount !== undefined, text);
  return Number(amount) * GIB;
}

function processesOf(file: string): number {
  const limits = z.object({ gateway: z.object({ limits: z.object({ processes: z.number() }) }) });
  return limits.parse(parse(read(file))).gateway.limits.processes;
}

interface Example {
  readonly name: string;
  readonly processes: number;
  readonly memoryBytes: number;
  /** Undefined if there is no limit of threads. */
  readonly threads: number | undefined;
}

function composeExample(service: string, config: string): Example {
  const limits = z.object({ mem_limit: z.string(), pids_limit: z.number() });
  const { services } = z
    .object({ services: z.record(z.string(), z.unknown()) })
    .parse(parse(read('docker-compose.yml')));
  const { mem_limit, pids_limit } = limits.parse(services[service]);
  const name = `\`docker-compose.yml\`, \`${service}\``;
  return { name, processes: processesOf(config), memoryBytes: bytes(mem_limit), threads: pids_limit };
}

function kubernetesExample(folder: string, deployment: string): Example {
  const [, memory = ''] = /limits: \{ memory: (\w+) \}/.exec(read(deployment)) ?? [];
  const config = `deploy/kubernetes/${folder}/linkspan.yaml`;
  const name = `\`deploy/kubernetes/${folder}\``;
  return { name, processes: processesOf(config), memoryBytes: bytes(memory), threads: undefined };
}

function systemdExample(): Example {
  const unit = read('deploy/systemd/linkspan.service');
  const [, processes = ''] = /`gateway\.limits\.processes: (\d+)`/.exec(unit) ?? [];
  const [, memory = ''] = /^MemoryMax=(\w+)$/m.exec(unit) ?? [];
  const [, threads = ''] = /^TasksMax=(\d+)$/m.exec(unit) ?? [];
  const name = '`deploy/systemd/linkspan.service`';
  return { name, processes: Number(processes), memoryBytes: bytes(memory), threads: Number(threads) };
}

const EXAMPLES = [
  composeExample('linkspan', 'deploy/docker/config.yaml'),
  composeExample('replica', 'deploy/docker/replica.yaml'),
  kubernetesExample('base', 'deploy/kubernetes/base/deployment.yaml'),
  kubernetesExample('replicas', 'deploy/kubernetes/base/deployment.yaml'),
  systemdExample(),
];

const FEWEST_SESSIONS = 1_000;

for (const { name, processes, memoryBytes, threads } of EXAMPLES) {
  const used = FIGURES.baseBytes + processes * FIGURES.processBytes;
  const sessions = Math.floor((memoryBytes - used) / FIGURES.sessionBytes / 1_000) * 1_000;
  const most = FIGURES.gatewayThreads + processes * FIGURES.processThreads;

  test(`the limits of ${name.replaceAll('`', '')} fit its processes`, () => {
    assert.ok(sessions >= FEWEST_SESSIONS, `${sessions} sessions`);
    assert.ok(threads === undefined || most <= threads, `${most} threads`);
  });

  test(`docs/sizing.md has the row of ${name.replaceAll('`', '')}`, () => {
    const memory = `${(used / GIB).toFixed(1)} GiB | ${memoryBytes / GIB} GiB`;
    const room = sessions.toLocaleString('en').replaceAll(',', ' ');
    const count = most.toLocaleString('en').replaceAll(',', ' ');
    const row = `| ${name} | ${processes} | ${memory} | ${room} | ${count} | ${threads ?? 'none'} |`;
    assert.ok(PAGE.includes(row), `docs/sizing.md lacks the row:\n${row}`);
  });
}
