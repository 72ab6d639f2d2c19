import { RawObject } from '../json/json.ts';
import { META, withoutMeta } from '../protocol/meta.ts';
import type { Link } from '../upstream/link.ts';
import type { Listening } from '../upstream/listening.ts';
import type { Exchange } from './exchange.ts';
import type { Links } from './links.ts';
import { OpenExchange } from './open-exchange.ts';
import type { Party } from './party.ts';
import type { TaskIds, TaskPlace } from './task-ids.ts';
import type { Tasks } from './tasks.ts';
import type { Visit } from './visit.ts';

export interface TaskNewsParts {
  readonly ids: TaskIds;
  readonly links: Links;
  readonly tasks: Tasks;
}

interface Followed extends TaskPlace {
  /** Of a modern upstream. One of the legacy era tells unasked, or not at all. */
  readonly listening: Listening | undefined;
}

const NOWHERE = { send: () => false };

/** The tasks that one `subscriptions/listen` stream of a client is about. */
export class TaskNews {
  readonly #parts: TaskNewsParts;
  readonly #visit: Visit;
  /** By the id the client knows. */
  readonly #followed = new Map<string, Followed>();

  constructor(parts: TaskNewsParts, visit: Visit) {
    this.#parts = parts;
    this.#visit = visit;
  }

  /** Those the client is told of. */
  get ids(): readonly string[] {
    return [...this.#followed.keys()];
  }

  /** What is not this client's, or cannot be listened to, is left out. Never rejects. */
  async follow(id: string): Promise<void> {
    const { ids, links } = this.#parts;
    const { caller, affinity } = this.#visit;
    try {
      const place = await ids.place(caller, id);
      const { listening } = await links.of(affinity.named(place.party), place.upstream);
      if (listening === undefined || (await listening.addTask(place.task))) {
        this.#followed.set(id, { ...place, listening });
      }
    } catch {
      // Its upstream is down, or it is nobody's: not honoured, which the acknowledgement says.
    }
  }

  /** How a task stands that has changed, as `tasks/get` would say; undefined where it is none of these. */
  async state(link: Link<Exchange, Party>, task: string): Promise<RawObject | undefined> {
    const found = [...this.#followed].find(([, one]) => one.task === task && isAt(one, link));
    if (found === undefined) return undefined;
    const params = RawObject.of({ taskId: found[0] });
    const request = { kind: 'request', id: '0', method: 'tasks/get', params } as const;
    const exchange = new OpenExchange(this.#visit, this.#visit.affinity, request, NOWHERE);
    const answer = await this.#parts.tasks.request(exchange);
    if (answer.kind === 'error') return undefined;
    return withoutMeta(RawObject.parse(answer.result), [META.serverInfo]).with('resultType', undefined);
  }

  close(): void {
    for (const { listening, task } of this.#followed.values()) listening?.removeTask(task);
    this.#followed.clear();
  }
}

function isAt({ upstream, party, listening }: Followed, link: Link<Exchange, Party>): boolean {
  if (upstream !== link.upstream) return false;
  return listening !== undefined || [...link.users].some(({ key }) => key === party);
}
