import { isDeepStrictEqual } from 'node:util';
import type { Address, Config } from '../config/config.ts';
import { OPERATOR_CONNECTIONS } from './connection-limit.ts';
import { assertOtherPort, type HttpHandler, Listener } from './listener.ts';

/** The number of ports that are tried if none was configured. */
const PORTS = 100;

/** Another config for the operator's port, of which nothing has taken effect. Exactly one of its methods must be called. */
export interface OperatorPortChange {
  /** Serves operators by the config. Resolves when the address that it does not have is closed. */
  apply(): Promise<void>;
  /** Closes the address that was opened for it. */
  abandon(): Promise<void>;
}

/** Makes the handler of an address, which may be about to close. */
type HandlerOf = (config: Config, address: Address) => HttpHandler;

/** The address for operators, which a config may lack. */
export class OperatorPort {
  readonly #handlerOf: HandlerOf;
  #address: Address | undefined;
  #listener: Listener | undefined;
  /** Listeners that were replaced and still finish requests. */
  readonly #retiring = new Set<Listener>();

  private constructor(handlerOf: HandlerOf) {
    this.#handlerOf = handlerOf;
  }

  /** Opens the port, if the config has one. @throws {StartError} if it cannot be used. */
  static async open(config: Config, handlerOf: HandlerOf): Promise<OperatorPort> {
    const port = new OperatorPort(handlerOf);
    port.#listener = await port.#listen(config);
    port.#address = config.operator;
    return port;
  }

  get origin(): string | undefined {
    return this.#listener?.origin;
  }

  /** Opens the address of another config, if it is not open yet. @throws {StartError} if it cannot be used. Then nothing has changed. */
  async prepare(next: Config): Promise<OperatorPortChange> {
    const isMoved = !isDeepStrictEqual(this.#address, next.operator);
    if (isMoved) assertOtherPort('gateway.operator', this.#address, next.operator);
    const listener = isMoved ? await this.#listen(next) : this.#listener;
    return {
      apply: async () => {
        const [before, address] = [this.#listener, this.#address];
        this.#listener = listener;
        this.#address = next.operator;
        if (before === undefined || address === undefined) return;
        // Open connections to an address that is about to close are served by the new config too.
        before.handler = this.#handlerOf(next, address);
        if (isMoved) await this.#retire(before, next.reload.drainMs);
      },
      abandon: async () => {
        if (isMoved) await listener?.close();
      },
    };
  }

  async #listen(config: Config): Promise<Listener | undefined> {
    const { operator: address, operatorMayMove } = config;
    if (address === undefined) return undefined;
    return await Listener.open(address, 'gateway.operator or --operator', () => this.#handlerOf(config, address), {
      ports: operatorMayMove ? PORTS : 1,
      connections: OPERATOR_CONNECTIONS,
    });
  }

  async #retire(listener: Listener, drainMs: number): Promise<void> {
    this.#retiring.add(listener);
    await listener.retire(drainMs);
    this.#retiring.delete(listener);
  }

  /** Closes the port and its connections. */
  async close(): Promise<void> {
    await this.#listener?.close();
    await Promise.all([...this.#retiring].map((listener) => listener.close()));
  }
}
