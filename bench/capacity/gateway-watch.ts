import type { Gateway } from '../gateway-program.ts';
import { type Sample, total } from '../metrics-text.ts';
import { memory } from '../process-cost.ts';
import { cpuSeconds } from '../settle.ts';
import type { Figures } from '../sheet.ts';

const EVERY_MS = 1_000;
const SCRAPE_MS = 30_000;

/** Counters whose growth is reported, with the label that tells their kinds. */
const COUNTERS = [
  'linkspan_shed_total',
  'linkspan_dropped_messages_total',
  'linkspan_budget_exceeded_total',
  'linkspan_limit_reached_total',
] as const;

/** Watches a gateway during a measurement: memory and CPU by the system, the rest by its metrics. */
export class GatewayWatch {
  readonly #gateway: Gateway;
  readonly #before: readonly Sample[];
  readonly #beganMs = performance.now();
  readonly #cpuBefore: number;
  readonly #timer: NodeJS.Timeout;
  #peakMb = 0;
  #longestDelayMs = 0;
  #mostHeldBytes = 0;
  /** The scrape in progress. A slow gateway gets no further one meanwhile. */
  #scraping: Promise<void> | undefined;

  private constructor(gateway: Gateway, before: readonly Sample[]) {
    this.#gateway = gateway;
    this.#before = before;
    this.#cpuBefore = cpuSeconds(gateway.pid);
    this.#timer = setInterval(() => this.#look(), EVERY_MS);
  }

  static async start(gateway: Gateway): Promise<GatewayWatch> {
    return new GatewayWatch(gateway, await gateway.metrics(SCRAPE_MS));
  }

  #look(): void {
    if (!this.#gateway.program.running) return;
    this.#peakMb = Math.max(this.#peakMb, memory([this.#gateway.pid]).rssMb);
    this.#scraping ??= this.#scrape()
      .catch(() => undefined)
      .finally(() => (this.#scraping = undefined));
  }

  async #scrape(): Promise<void> {
    const samples = await this.#gateway.metrics(SCRAPE_MS);
    this.#longestDelayMs = Math.max(this.#longestDelayMs, total(samples, 'linkspan_loop_delay_seconds') * 1_000);
    this.#mostHeldBytes = Math.max(this.#mostHeldBytes, total(samples, 'linkspan_held_bytes'));
  }

  /** Ends, and returns the figures of the time since the start. @throws {Error} if the gateway has ended. */
  async stop(): Promise<Figures> {
    clearInterval(this.#timer);
    await this.#scraping;
    const { program, pid } = this.#gateway;
    if (!program.running) throw await program.failure('has ended');
    const cpu = cpuSeconds(pid) - this.#cpuBefore;
    const seconds = (performance.now() - this.#beganMs) / 1_000;
    const after = await this.#gateway.metrics(SCRAPE_MS);
    const { rssMb } = memory([pid]);
    return {
      seconds,
      'CPU % of a core': (cpu / seconds) * 100,
      'RSS MB': rssMb,
      'most RSS MB': Math.max(this.#peakMb, rssMb),
      'most loop delay ms': this.#longestDelayMs,
      'most held MB': this.#mostHeldBytes / 1_048_576,
      ...this.#growth(after),
    };
  }

  #growth(after: readonly Sample[]): Figures {
    const grown = after.flatMap(({ name, labels, value }): readonly (readonly [string, number])[] => {
      if (!COUNTERS.some((counter) => counter === name)) return [];
      const before = this.#before.find((sample) => sample.name === name && sample.labels === labels)?.value ?? 0;
      return value > before ? [[`${name}{${labels}}`, value - before]] : [];
    });
    return Object.fromEntries(grown);
  }
}
