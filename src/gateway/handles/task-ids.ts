import { GatewayError } from '../../errors.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import type { Caller } from '../exchange/caller.ts';
import type { Sealer } from './sealer.ts';

/** The address of a task: its upstream, its id there, and the connection holder. */
export interface TaskAddress {
  readonly upstream: string;
  readonly task: string;
  /** Key of the holder whose connection created the task: two processes of an upstream may choose the same id. */
  readonly holder: string;
}

/** A task with the id that its client uses. */
export interface KnownTask extends TaskAddress {
  readonly task: KeptText;
  readonly id: KeptText;
}

/** Tasks kept for one client. The oldest one beyond this is not announced any more, but can still be queried. */
const MAX_KNOWN = 256;
/** Clients whose tasks are kept. */
const MAX_CLAIMS = 4_096;
/** The lifetime of an id. The upstream decides how long it keeps a task, so this is only an upper bound. */
const ID_MS = 365 * 86_400_000;

/**
 * Task ids for clients. They are sealed, so that no other client can use them or learn from them, also after a restart.
 * A client gets the same id for the same task each time, as long as this process keeps it.
 */
export class TaskIds {
  readonly #sealer: Sealer;
  /** Known tasks by client, then by address. */
  readonly #known = new Map<string, KeptMap<KnownTask>>();

  constructor(sealer: Sealer) {
    this.#sealer = sealer;
  }

  /** Returns the id of a task for this client. */
  async seal(caller: Caller, address: TaskAddress): Promise<string> {
    const known = this.find(caller, address);
    if (known !== undefined) return known.id;
    const payload = { for: claimOf(caller), ...address };
    const id = await this.#sealer.seal('task', payload, Date.now() + ID_MS);
    this.#remember(caller, address, id);
    return id;
  }

  /**
   * Returns the address of a task id. @throws {GatewayError} `unknown-task` for an id that was not sealed for this
   * client.
   */
  async open(caller: Caller, id: string): Promise<TaskAddress> {
    const payload = await this.#sealer.unseal('task', id, Date.now());
    const { upstream, task, holder } = payload ?? {};
    const isOwn = payload?.['for'] === claimOf(caller);
    if (!isOwn || typeof upstream !== 'string' || typeof task !== 'string' || typeof holder !== 'string') {
      throw new GatewayError('unknown-task');
    }
    const address = { upstream, task, holder };
    if (this.find(caller, address)?.id !== id) this.#remember(caller, address, id);
    return address;
  }

  /** Returns the task if this process has sealed or opened an id of it for this client. */
  find(caller: Caller, address: TaskAddress): KnownTask | undefined {
    return this.#known.get(claimOf(caller))?.get(keyOf(address));
  }

  /** Returns the known tasks of this client, the oldest first. */
  list(caller: Caller): readonly KnownTask[] {
    return [...(this.#known.get(claimOf(caller))?.values() ?? [])];
  }

  /** Removes a task that its upstream does not have any more. */
  remove(caller: Caller, address: TaskAddress): void {
    const claim = claimOf(caller);
    const tasks = this.#known.get(claim);
    tasks?.delete(keyOf(address));
    if (tasks?.size === 0) this.#known.delete(claim);
  }

  #remember(caller: Caller, { upstream, task, holder }: TaskAddress, id: string): void {
    const claim = claimOf(caller);
    const known = { upstream, task: detach(task), holder: detach(holder), id: detach(id) };
    const tasks = this.#known.get(claim) ?? new KeptMap<KnownTask>();
    // Moved to the end, so that the oldest unused entries are removed first.
    this.#known.delete(claim);
    this.#known.set(claim, tasks);
    tasks.set(detach(keyOf(known)), known);
    removeOldest(tasks, MAX_KNOWN);
    removeOldest(this.#known, MAX_CLAIMS);
  }
}

/** Returns the key of the clients that may use an id: a principal at an endpoint. */
function claimOf({ principal, view }: Caller): string {
  return JSON.stringify([principal.key, view]);
}

function keyOf({ upstream, task, holder }: TaskAddress): string {
  return `${upstream} ${holder} ${task}`;
}

function removeOldest<Value>(map: Map<string, Value> | KeptMap<Value>, limit: number): void {
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
