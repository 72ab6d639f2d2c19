import type { Hono } from 'hono';
import type { Address, Config } from '../../config/config.ts';
import { OPERATOR_CONNECTIONS } from '../connection-limit.ts';
import { Listener } from '../listener.ts';

/** The number of ports that are tried if none was configured. */
const PORTS = 100;

/** The operator's port of a gateway with workers. */
export class ParentOperator {
  readonly #makeApp: (config: Config, address: Address) => Hono;
  #address: Address | undefined;
  #listener: Listener | undefined;

  private constructor(makeApp: (config: Config, address: Address) => Hono) {
    this.#makeApp = makeApp;
  }

  /** Opens the port, if the config has one. @throws {StartError} if it cannot be used. */
  static async open(config: Config, makeApp: (config: Config, address: Address) => Hono): Promise<ParentOperator> {
    const operator = new ParentOperator(makeApp);
    operator.#listener = await operator.#listen(config);
    operator.#address = config.operator;
    return operator;
  }

  get origin(): string | undefined {
    return this.#listener?.origin;
  }

  async #listen(config: Config): Promise<Listener | undefined> {
    const { operator: address } = config;
    if (address === undefined) return undefined;
    const app = this.#makeApp(config, address);
    return await Listener.open(address, 'gateway.operator or --operator', () => ({ app }), {
      ports: config.operatorMayMove ? PORTS : 1,
      connections: OPERATOR_CONNECTIONS,
    });
  }

  /** Follows another config. Returns the functions that take it into use, or give it up. @throws {StartError} if its address cannot be used. */
  async prepare(next: Config): Promise<{ apply(): void; abandon(): Promise<void> }> {
    const { host, port } = this.#address ?? {};
    const isMoved = host !== next.operator?.host || port !== next.operator?.port;
    const listener = isMoved ? await this.#listen(next) : this.#listener;
    return {
      apply: () => {
        const before = this.#listener;
        this.#listener = listener;
        this.#address = next.operator;
        if (isMoved) void before?.retire(next.reload.drainMs);
        else if (listener !== undefined && next.operator !== undefined) {
          listener.handler = { app: this.#makeApp(next, next.operator) };
        }
      },
      abandon: async () => {
        if (isMoved) await listener?.close();
      },
    };
  }

  async close(): Promise<void> {
    await this.#listener?.close();
  }
}
