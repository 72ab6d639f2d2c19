import type { RawObject } from '../../json/json.ts';
import { withoutCoreTaskMeta } from '../../protocol/meta.ts';
import { relatedTask, withRelatedTask } from '../../protocol/tasks.ts';
import type { Link } from '../../upstream/link.ts';
import type { Client, Exchange } from '../exchange/exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { TaskIds } from './task-ids.ts';

/** Whether a message can say which task it belongs to: most do not, and are not cut open. */
function mayBeMarked(params: RawObject): boolean {
  return params.raw('_meta')?.includes('related-task') === true;
}

/** Puts the client's ids of tasks into what upstreams say about them. */
export class TaskMarks {
  readonly #ids: TaskIds;

  constructor(ids: TaskIds) {
    this.#ids = ids;
  }

  /** A message about a task, with the id that this client knows it by; about one it knows nothing of, without any. */
  withTaskId(link: Link<Exchange, ConnectionHolder>, client: Client, params: RawObject): RawObject {
    if (!mayBeMarked(params)) return params;
    const task = relatedTask(params);
    const id = task === undefined ? undefined : this.idFor(link, client, task);
    return id === undefined ? withoutCoreTaskMeta(params) : withRelatedTask(params, id);
  }

  /** At once, for a task of this client on this connection. */
  idFor(link: Link<Exchange, ConnectionHolder>, { caller }: Pick<Client, 'caller'>, task: string): string | undefined {
    for (const holder of link.users) {
      if (holder.caller !== caller) continue;
      return this.#ids.known(caller, { upstream: link.upstream, task, holder: holder.key })?.id;
    }
    return undefined;
  }
}
