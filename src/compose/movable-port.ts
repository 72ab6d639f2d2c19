import { isDeepStrictEqual } from 'node:util';
import type { Address, Config } from '../config/values/config.ts';
import { OPERATOR_CONNECTIONS } from './connection-limit.ts';
import { assertOtherPort, type HttpHandler, Listener } from './listener.ts';

/** The number of ports that are tried if none was configured. */
const PORTS = 100;

/** Another config for one or more ports, of which nothing has taken effect. Exactly one of its methods must be called. */
export interface PortChange {
  /** Serves requests by the config. Resolves when the addresses that it does not have are closed. */
  apply(): Promise<void>;
  /** Closes the addresses that were opened for it. */
  abandon(): Promise<void>;
}

/** Makes the handler of an address, which may be about to close. @param origin of the listener that stays. */
export type HandlerOf = (config: Config, address: Address, origin: string) => HttpHandler;

/** The place of a port in configs. `L` includes undefined if a config may lack it. */
interface PortKind<L extends Listener | undefined> {
  readonly key: string;
  readonly addressOf: (config: Config) => Address | undefined;
  /** Returns whether the port may be another one than in the config. */
  readonly mayMove: (config: Config) => boolean;
  readonly listen: (config: Config, handlerOf: HandlerOf) => Promise<L>;
}

export const CLIENT_PORT: PortKind<Listener> = {
  key: 'gateway.listen',
  // A change between HTTP and HTTPS needs another listener.
  addressOf: ({ listen, tls }) => ({ ...listen, isTls: tls !== undefined }),
  mayMove: ({ listen }) => listen.port === 0,
  listen: async (config, handlerOf) => {
    const { listen, tls } = config;
    const make = (origin: string) => handlerOf(config, listen, origin);
    return await Listener.open(listen, 'gateway.listen or --listen', make, { tls });
  },
};

export const OPERATOR_PORT: PortKind<Listener | undefined> = {
  key: 'gateway.operator',
  addressOf: ({ operator }) => operator,
  mayMove: ({ operator, operatorMayMove }) => operatorMayMove || operator?.port === 0,
  listen: async (config, handlerOf) => {
    const { operator: address, operatorMayMove } = config;
    if (address === undefined) return undefined;
    const make = (origin: string) => handlerOf(config, address, origin);
    const options = { ports: operatorMayMove ? PORTS : 1, connections: OPERATOR_CONNECTIONS };
    return await Listener.open(address, 'gateway.operator or --operator', make, options);
  },
};

/** A port whose address changes with the config: its listener, and earlier ones that still finish requests. */
export class MovablePort<L extends Listener | undefined> {
  readonly #kind: PortKind<L>;
  readonly #handlerOf: HandlerOf;
  /** The address in the config. */
  #address: Address | undefined;
  #listener: L;
  readonly #retiring = new Set<Listener>();

  private constructor(kind: PortKind<L>, config: Config, handlerOf: HandlerOf, listener: L) {
    this.#kind = kind;
    this.#handlerOf = handlerOf;
    this.#address = kind.addressOf(config);
    this.#listener = listener;
  }

  /** Opens the port, if the config has it. @throws {StartError} if it cannot be used. */
  static async open<L extends Listener | undefined>(
    kind: PortKind<L>,
    config: Config,
    handlerOf: HandlerOf,
  ): Promise<MovablePort<L>> {
    return new MovablePort(kind, config, handlerOf, await kind.listen(config, handlerOf));
  }

  get listener(): L {
    return this.#listener;
  }

  /**
   * Opens the address of another config, if it is not open yet.
   *
   * @param handlerOf of that config. Default: the one that the port was opened with.
   * @throws {StartError} if it cannot be used. Then nothing has changed.
   */
  async prepare(next: Config, handlerOf = this.#handlerOf): Promise<PortChange> {
    const { key, addressOf, mayMove, listen } = this.#kind;
    const address = addressOf(next);
    const bound = this.#address && { ...this.#address, port: this.#listener?.port ?? this.#address.port };
    const isKept = mayMove(next) && isDeepStrictEqual(this.#address, address);
    const isMoved = !isKept && !isDeepStrictEqual(bound, address);
    if (isMoved) assertOtherPort(key, bound, address);
    const listener = isMoved ? await listen(next, handlerOf) : this.#listener;
    return {
      apply: async () => {
        const [before, addressBefore] = [this.#listener, this.#address];
        this.#listener = listener;
        this.#address = address;
        if (before === undefined || addressBefore === undefined) return;
        // Open connections to an address that is about to close are served by the new config too.
        before.handler = handlerOf(next, addressBefore, (listener ?? before).origin);
        if (isMoved) await this.#retire(before, next.reload.drainMs);
      },
      abandon: async () => {
        if (isMoved) await listener?.close();
      },
    };
  }

  async #retire(listener: Listener, drainMs: number): Promise<void> {
    this.#retiring.add(listener);
    await listener.retire(drainMs);
    this.#retiring.delete(listener);
  }

  get #open(): readonly Listener[] {
    return this.#listener === undefined ? [...this.#retiring] : [this.#listener, ...this.#retiring];
  }

  /** Resolves when the responses that have begun are written, at the latest after `waitMs`. */
  async finish(waitMs: number): Promise<void> {
    await Promise.all(this.#open.map((listener) => listener.finish(waitMs)));
  }

  /** Closes all listeners and their connections. */
  async close(): Promise<void> {
    await Promise.all(this.#open.map((listener) => listener.close()));
  }
}
