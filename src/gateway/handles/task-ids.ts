import { GatewayError } from '../../errors.ts';
import type { Caller } from '../exchange/caller.ts';
import type { Sealer } from './sealer.ts';

/** Whose task it is, and its id there. */
export interface TaskAddress {
  readonly upstream: string;
  readonly task: string;
  /** Key of the holder on whose connection it was made: two processes of an upstream may choose the same id. */
  readonly holder: string;
}

/** A task as its client knows it. */
export interface KnownTask extends TaskAddress {
  readonly id: string;
}

/** A client that has more of them is not told of the oldest any more, though it may still ask about it. */
const MAX_KNOWN = 256;
/** Clients whose tasks are remembered. */
const MAX_CLAIMS = 4_096;
/** An upstream says itself how long it keeps a task, so an id only needs an end. */
const ID_MS = 365 * 86_400_000;

/**
 * The ids that clients know tasks by: sealed, so that nobody else can use them or learn from them, also after a restart. A
 * client that compares ids always gets the same one for the same task, as far as this process remembers.
 */
export class TaskIds {
  readonly #sealer: Sealer;
  /** By client, then by task. */
  readonly #known = new Map<string, Map<string, KnownTask>>();

  constructor(sealer: Sealer) {
    this.#sealer = sealer;
  }

  /** The id by which this client knows the task. */
  async seal(caller: Caller, place: TaskAddress): Promise<string> {
    const known = this.known(caller, place);
    if (known !== undefined) return known.id;
    const payload = { for: claimOf(caller), ...place };
    const id = await this.#sealer.seal('task', payload, Date.now() + ID_MS);
    this.#remember(caller, { ...place, id });
    return id;
  }

  /** @throws {GatewayError} `unknown-task` for what is not ours, or not this client's. */
  async open(caller: Caller, id: string): Promise<TaskAddress> {
    const payload = await this.#sealer.unseal('task', id, Date.now());
    const { upstream, task, holder } = payload ?? {};
    const isOwn = payload?.['for'] === claimOf(caller);
    if (!isOwn || typeof upstream !== 'string' || typeof task !== 'string' || typeof holder !== 'string') {
      throw new GatewayError('unknown-task');
    }
    const place = { upstream, task, holder };
    if (this.known(caller, place)?.id !== id) this.#remember(caller, { ...place, id });
    return place;
  }

  /** At once, for what this process has seen. */
  known(caller: Caller, place: TaskAddress): KnownTask | undefined {
    return this.#known.get(claimOf(caller))?.get(keyOf(place));
  }

  /** Everything this client may know of, the oldest first. */
  all(caller: Caller): readonly KnownTask[] {
    return [...(this.#known.get(claimOf(caller))?.values() ?? [])];
  }

  /** Its upstream does not know it any more. */
  forget(caller: Caller, place: TaskAddress): void {
    const claim = claimOf(caller);
    const tasks = this.#known.get(claim);
    tasks?.delete(keyOf(place));
    if (tasks?.size === 0) this.#known.delete(claim);
  }

  #remember(caller: Caller, known: KnownTask): void {
    const claim = claimOf(caller);
    const tasks = this.#known.get(claim) ?? new Map<string, KnownTask>();
    // Put last again, so that the ones in use are the ones that stay.
    this.#known.delete(claim);
    this.#known.set(claim, tasks);
    tasks.set(keyOf(known), known);
    dropOldest(tasks, MAX_KNOWN);
    dropOldest(this.#known, MAX_CLAIMS);
  }
}

/** Whoever may use an id: a principal at an endpoint. */
function claimOf({ principal, view }: Caller): string {
  return JSON.stringify([principal.key, view]);
}

function keyOf({ upstream, task, holder }: TaskAddress): string {
  return `${upstream} ${holder} ${task}`;
}

function dropOldest<Value>(map: Map<string, Value>, limit: number): void {
  const [oldest] = map.keys();
  if (map.size > limit && oldest !== undefined) map.delete(oldest);
}
