import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { META, withoutMeta } from '../../protocol/meta.ts';
import type { UpstreamSubscription } from '../../upstream/link/upstream-subscription.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { NULL_SINK, OpenExchange } from '../exchange/open-exchange.ts';
import type { Link } from '../exchange/connection-holder.ts';
import type { TaskAddress } from '../../store/task-store.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import type { Tasks } from './tasks.ts';
import type { ModernClient } from '../clients/modern-client.ts';

export interface TaskSubscriptionsParts {
  readonly ids: TaskIds;
  readonly links: HolderLinks;
  readonly tasks: Tasks;
}

interface FollowedTask extends TaskAddress {
  readonly task: KeptText;
  /** Undefined for a legacy upstream, which sends changes without a subscription or not at all. */
  readonly subscription: UpstreamSubscription | undefined;
}

/** The tasks of one `subscriptions/listen` stream. */
export class TaskSubscriptions {
  readonly #parts: TaskSubscriptionsParts;
  readonly #modernClient: ModernClient;
  /** By the id that the client uses. */
  readonly #followed = new KeptMap<FollowedTask>();

  constructor(parts: TaskSubscriptionsParts, modernClient: ModernClient) {
    this.#parts = parts;
    this.#modernClient = modernClient;
  }

  /** The ids, as the client uses them, of the tasks whose changes reach the stream. */
  get ids(): readonly string[] {
    return [...this.#followed.keys()];
  }

  /** Adds a task, unless it belongs to another client or its upstream is down. Never rejects. */
  async follow(id: string): Promise<void> {
    const { ids, links, tasks } = this.#parts;
    const { caller, group } = this.#modernClient;
    try {
      const address = await ids.open(caller, id);
      tasks.assertAllowed(this.#modernClient, { method: 'subscriptions/listen' }, address);
      const { subscription } = await links.open(tasks.creatorOf(group, address), address.upstream);
      if (subscription === undefined || (await subscription.addTask(address.task))) {
        this.#followed.set(detach(id), { ...address, task: detach(address.task), subscription });
      }
    } catch {
      // The acknowledgement shows the client that this task is not followed.
    }
  }

  /** Returns the state of a changed task, as `tasks/get` returns it; undefined if the stream does not follow the task. */
  async state(link: Link, task: string): Promise<RawObject | undefined> {
    const found = [...this.#followed].find(([, one]) => one.task === task && isAt(one, link));
    if (found === undefined) return undefined;
    const params = RawObject.of({ taskId: found[0] });
    const request = { kind: 'request', id: '0', method: 'tasks/get', params } as const;
    const exchange = new OpenExchange(this.#modernClient, this.#modernClient.group, request, NULL_SINK);
    const answer = await this.#parts.tasks.request(exchange);
    if (answer.kind !== 'result') return undefined;
    return withoutMeta(RawObject.parse(answer.result), [META.serverInfo]).with('resultType', undefined);
  }

  close(): void {
    for (const { subscription, task } of this.#followed.values()) subscription?.removeTask(task);
    this.#followed.clear();
  }
}

/** Returns whether a message on this link can be about the task. */
function isAt({ upstream, holder, subscription }: FollowedTask, link: Link): boolean {
  if (upstream !== link.upstream) return false;
  return subscription !== undefined || [...link.users].some(({ key }) => key === holder);
}
