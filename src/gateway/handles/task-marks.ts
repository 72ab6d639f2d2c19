import type { RawObject } from '../../json/json.ts';
import { withoutCoreTaskMeta } from '../../protocol/meta.ts';
import { relatedTask, withRelatedTask } from '../../protocol/tasks.ts';
import type { Client } from '../exchange/exchange.ts';
import type { Link } from '../exchange/connection-holder.ts';
import type { TaskIds } from './task-ids.ts';

/** Returns whether the params may name a related task. Most do not, and need not be parsed. */
export function mayBeMarked(params: RawObject): boolean {
  return params.raw('_meta')?.includes('related-task') === true;
}

/** Replaces the task ids of upstreams in messages by those of the client. */
export class TaskMarks {
  readonly #ids: TaskIds;

  constructor(ids: TaskIds) {
    this.#ids = ids;
  }

  /** Returns params with the client's id of the related task, or without that task if the client does not know it. */
  withTaskId(link: Link, client: Client, params: RawObject): RawObject {
    if (!mayBeMarked(params)) return params;
    const task = relatedTask(params);
    const id = task === undefined ? undefined : this.idFor(link, client.lasting, task);
    return id === undefined ? withoutCoreTaskMeta(params) : withRelatedTask(params, id);
  }

  /** Returns the id of a task for a client of this connection; undefined if this process has not sealed it. */
  idFor(link: Link, { caller }: Pick<Client, 'caller'>, task: string): string | undefined {
    for (const holder of link.users) {
      if (holder.caller !== caller) continue;
      return this.#ids.find(caller, { upstream: link.upstream, task, holder: holder.key, run: link.run })?.id;
    }
    return undefined;
  }
}
