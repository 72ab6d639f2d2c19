import { GatewayError } from '../../errors.ts';
import { FairSlots } from '../../fair-slots.ts';
import type { KnownTask, TaskAddress, TaskStore } from '../../store/task-store.ts';
import type { Caller } from '../front/caller.ts';
import type { Sealer } from './sealer.ts';

/** The content of a task id. */
export interface OpenedTask extends TaskAddress {
  /** The process that sealed the id, which may have the task. */
  readonly process: string;
  /** The upstream's name of the tool whose call is the task. */
  readonly tool: string;
}

/** The lifetime of an id. The upstream decides how long it keeps a task, so this is only an upper bound. */
const ID_MS = 365 * 86_400_000;

/** The most ids of one client that are added to the store at the same time. A stream may name a thousand that are not known here. */
const ADDED_AT_ONCE = 32;

/**
 * Task ids for clients. They are sealed, so that no other client can use them or learn from them, also after a restart.
 * A client gets the same id for the same task each time, as long as the store keeps it.
 */
export class TaskIds {
  readonly #sealer: Sealer;
  readonly #store: TaskStore;
  readonly #process: string;
  readonly #adding = new FairSlots({
    slots: Infinity,
    slotsPerOwner: ADDED_AT_ONCE,
    waiting: Infinity,
    waitingPerOwner: Infinity,
  });

  /** @param process name of this process; see `Owners.name`. */
  constructor(sealer: Sealer, store: TaskStore, process: string) {
    this.#sealer = sealer;
    this.#store = store;
    this.#process = process;
  }

  /** Returns the id of a task for this client. @param tool the upstream's name of the tool that was called. */
  async seal(caller: Caller, address: TaskAddress, tool: string): Promise<string> {
    const known = this.find(caller, address);
    if (known !== undefined) return known.id;
    const payload = { for: claimOf(caller), ...address, process: this.#process, tool };
    const id = await this.#sealer.seal('task', payload, Date.now() + ID_MS);
    await this.#store.add(claimOf(caller), { ...address, id });
    return id;
  }

  /**
   * Returns the content of a task id. @throws {GatewayError} `unknown-task` for an id that was not sealed for this
   * client.
   */
  async open(caller: Caller, id: string): Promise<OpenedTask> {
    const payload = await this.#sealer.unseal('task', id, Date.now());
    // Older ids have no "run".
    const { upstream, task, holder, run = '', process, tool } = payload ?? {};
    const isOwn = payload?.['for'] === claimOf(caller);
    if (!isOwn || typeof upstream !== 'string' || typeof task !== 'string' || typeof holder !== 'string')
      throw unknown();
    if (typeof run !== 'string' || typeof process !== 'string' || typeof tool !== 'string') throw unknown();
    const address = { upstream, task, holder, run };
    const claim = claimOf(caller);
    if (this.find(caller, address)?.id !== id)
      await this.#adding.run(claim, () => this.#store.add(claim, { ...address, id }));
    return { ...address, process, tool };
  }

  /** Returns the task if this process has sealed or opened an id of it for this client. */
  find(caller: Caller, address: TaskAddress): KnownTask | undefined {
    return this.#store.find(claimOf(caller), address);
  }

  /** Returns the known tasks of this client, the oldest first. */
  list(caller: Caller): Promise<readonly KnownTask[]> {
    return this.#store.list(claimOf(caller));
  }

  /** Removes a task that its upstream does not have any more. */
  remove(caller: Caller, address: TaskAddress): Promise<void> {
    return this.#store.remove(claimOf(caller), address);
  }
}

function unknown(): GatewayError {
  return new GatewayError('unknown-task');
}

/** Returns the key of the clients that may use an id: a principal at an endpoint. */
function claimOf({ principal, view }: Caller): string {
  return JSON.stringify([principal.key, view]);
}
