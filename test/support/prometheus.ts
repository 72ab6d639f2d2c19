import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import * as z from 'zod';
import { Child } from './child.ts';
import { freePort } from './free-port.ts';

const RULES = fileURLToPath(new URL('../../deploy/prometheus/rules.yml', import.meta.url));
const START_MS = 60_000;
const POLL_MS = 250;

const VECTOR = z.object({
  status: z.literal('success'),
  data: z.object({
    result: z.array(z.object({ metric: z.record(z.string(), z.string()), value: z.tuple([z.number(), z.string()]) })),
  }),
});
const ALERTS = z.object({
  data: z.object({ alerts: z.array(z.object({ labels: z.record(z.string(), z.string()), state: z.string() })) }),
});

/** A real Prometheus with our rules, which scrapes each second. */
export class Prometheus implements AsyncDisposable {
  readonly #child: Child;
  readonly #url: string;

  private constructor(child: Child, url: string) {
    this.#child = child;
    this.#url = url;
  }

  /**
   * Starts it. The rules are ours, except that an alert fires after a second instead of minutes.
   *
   * @param targets addresses of operators' ports.
   */
  static async start(program: string, dir: string, targets: readonly string[]): Promise<Prometheus> {
    await mkdir(dir, { recursive: true });
    const rules = (await readFile(RULES, 'utf8')).replaceAll(/^( +for: )\d+m$/gm, '$11s');
    await writeFile(join(dir, 'rules.yml'), rules);
    const config = {
      global: { scrape_interval: '1s', evaluation_interval: '1s' },
      rule_files: ['rules.yml'],
      scrape_configs: [{ job_name: 'linkspan', static_configs: [{ targets }] }],
    };
    // JSON is YAML.
    await writeFile(join(dir, 'prometheus.yml'), JSON.stringify(config));
    const address = `127.0.0.1:${await freePort()}`;
    const child = await Child.start(program, [
      `--config.file=${join(dir, 'prometheus.yml')}`,
      `--storage.tsdb.path=${join(dir, 'data')}`,
      `--web.listen-address=${address}`,
    ]);
    await child.waitForLine((line) => (line.includes('Server is ready') ? true : undefined), START_MS);
    return new Prometheus(child, `http://${address}`);
  }

  /** Resolves with the series of an instant query. @throws {Error} with Prometheus' words if the query is wrong. */
  async query(
    query: string,
  ): Promise<readonly { readonly metric: Readonly<Record<string, string>>; readonly value: number }[]> {
    const response = await fetch(`${this.#url}/api/v1/query?${new URLSearchParams({ query }).toString()}`);
    const text = await response.text();
    if (!response.ok) throw new Error(`${query}: ${text}`);
    return VECTOR.parse(JSON.parse(text)).data.result.map(({ metric, value }) => ({ metric, value: Number(value[1]) }));
  }

  /** Resolves with the firing alerts: `<alert>`, or `<alert> <upstream>`. */
  async firing(): Promise<ReadonlySet<string>> {
    const response = await fetch(`${this.#url}/api/v1/alerts`);
    const { alerts } = ALERTS.parse(await response.json()).data;
    return new Set(
      alerts
        .filter(({ state }) => state === 'firing')
        .map(({ labels }) => [labels['alertname'], labels['upstream']].filter(Boolean).join(' ')),
    );
  }

  /** Waits until a condition holds. @throws {Error} with the firing alerts, after `timeoutMs`. */
  async until(holds: () => Promise<boolean>, timeoutMs: number): Promise<void> {
    const lateMs = performance.now() + timeoutMs;
    while (!(await holds())) {
      if (performance.now() > lateMs) {
        throw new Error(
          `does not hold after ${timeoutMs} ms: ${String(holds)}; firing: ${[...(await this.firing())].join(', ')}`,
        );
      }
      await delay(POLL_MS);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#child.stop();
  }
}
