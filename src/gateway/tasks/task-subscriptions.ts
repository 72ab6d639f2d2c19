import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { META, withoutMeta } from '../../protocol/meta.ts';
import type { Link } from '../../upstream/link/link.ts';
import type { UpstreamSubscription } from '../../upstream/link/upstream-subscription.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { OpenExchange } from '../exchange/open-exchange.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import type { TaskIds, TaskAddress } from '../handles/task-ids.ts';
import type { Tasks } from './tasks.ts';
import type { ModernClient } from '../clients/modern-client.ts';

export interface TaskSubscriptionsParts {
  readonly ids: TaskIds;
  readonly links: HolderLinks;
  readonly tasks: Tasks;
}

interface FollowedTask extends TaskAddress {
  readonly task: KeptText;
  /** Of a modern upstream. One of the legacy era tells unasked, or not at all. */
  readonly listening: UpstreamSubscription | undefined;
}

const NOWHERE = { send: () => false };

/** The tasks that one `subscriptions/listen` stream of a client is about. */
export class TaskSubscriptions {
  readonly #parts: TaskSubscriptionsParts;
  readonly #modernClient: ModernClient;
  /** By the id the client knows. */
  readonly #followed = new KeptMap<FollowedTask>();

  constructor(parts: TaskSubscriptionsParts, modernClient: ModernClient) {
    this.#parts = parts;
    this.#modernClient = modernClient;
  }

  /** Those the client is told of. */
  get ids(): readonly string[] {
    return [...this.#followed.keys()];
  }

  /** What is not this client's, or cannot be listened to, is left out. Never rejects. */
  async follow(id: string): Promise<void> {
    const { ids, links } = this.#parts;
    const { caller, group } = this.#modernClient;
    try {
      const place = await ids.open(caller, id);
      const { subscription } = await links.open(group.byKey(place.holder), place.upstream);
      if (subscription === undefined || (await subscription.addTask(place.task))) {
        const task = detach(place.task);
        this.#followed.set(detach(id), { ...place, task, listening: subscription });
      }
    } catch {
      // Its upstream is down, or it is nobody's: not honoured, which the acknowledgement says.
    }
  }

  /** How a task stands that has changed, as `tasks/get` would say; undefined where it is none of these. */
  async state(link: Link<Exchange, ConnectionHolder>, task: string): Promise<RawObject | undefined> {
    const found = [...this.#followed].find(([, one]) => one.task === task && isAt(one, link));
    if (found === undefined) return undefined;
    const params = RawObject.of({ taskId: found[0] });
    const request = { kind: 'request', id: '0', method: 'tasks/get', params } as const;
    const exchange = new OpenExchange(this.#modernClient, this.#modernClient.group, request, NOWHERE);
    const answer = await this.#parts.tasks.request(exchange);
    if (answer.kind === 'error') return undefined;
    return withoutMeta(RawObject.parse(answer.result), [META.serverInfo]).with('resultType', undefined);
  }

  close(): void {
    for (const { listening, task } of this.#followed.values()) listening?.removeTask(task);
    this.#followed.clear();
  }
}

function isAt({ upstream, holder, listening }: FollowedTask, link: Link<Exchange, ConnectionHolder>): boolean {
  if (upstream !== link.upstream) return false;
  return listening !== undefined || [...link.users].some(({ key }) => key === holder);
}
