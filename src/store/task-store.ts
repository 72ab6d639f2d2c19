import type { LimitName } from '../limits.ts';

/** Receives the bound for which a store removes a task: it is not listed or announced any more, but can still be queried. */
export type OnTaskLimit = (limit: Extract<LimitName, `knownTask${string}`>) => void;

/** The address of a task: its upstream, its id there, and what has created it. */
export interface TaskAddress {
  readonly upstream: string;
  readonly task: string;
  /** Key of the holder whose connection created the task: two processes of an upstream may choose the same id. */
  readonly holder: string;
  /** Name of the process that has created it, if principals share it; else empty: the next one may choose the same id. */
  readonly run: string;
}

/** A task with the id that its client uses. */
export interface KnownTask extends TaskAddress {
  readonly id: string;
}

/**
 * Stores the tasks whose ids clients have, so that a client gets the same id each time, and can list its tasks. A lost task can
 * still be queried by its id, so a store that all processes share fails no request for lack of it. A client is named by a text that is equal for the clients that may use an id.
 */
export interface TaskStore {
  /** Returns a task that this process has added. */
  find(client: string, address: TaskAddress): KnownTask | undefined;
  /** Returns the tasks of a client, the one that was added first at the beginning. */
  list(client: string): Promise<readonly KnownTask[]>;
  /** Adds a task. Beyond its bounds the store removes the oldest tasks of the client, and the client that added nothing for longest. */
  add(client: string, known: KnownTask): Promise<void>;
  remove(client: string, address: TaskAddress): Promise<void>;
}
