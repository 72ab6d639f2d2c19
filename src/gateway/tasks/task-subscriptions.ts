import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { META, withoutMeta } from '../../protocol/meta.ts';
import { isTerminal } from '../../protocol/tasks.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { NULL_SINK, OpenExchange } from '../exchange/open-exchange.ts';
import type { Link, Upstream } from '../exchange/connection-holder.ts';
import type { Cancellable } from '../exchange/external-decisions.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import type { Tasks } from './tasks.ts';
import type { ModernClient } from '../clients/modern-client.ts';

export interface TaskSubscriptionsParts {
  readonly ids: TaskIds;
  readonly links: HolderLinks;
  readonly tasks: Tasks;
  /** Those to a decision point, if the config has one. */
  readonly questions: Cancellable;
}

interface FollowedTask {
  readonly task: KeptText;
  readonly upstream: Upstream;
  /** The link that carries messages about the task. A legacy upstream sends them without a subscription or not at all. */
  readonly link: Link;
  /** True if the task has changed since its state was last read. */
  hasChanged: boolean;
  isReading: boolean;
  /** Stops waiting for the end of the link. */
  readonly forgetLink: () => void;
}

/** The tasks of one `subscriptions/listen` stream. */
export class TaskSubscriptions {
  readonly #parts: TaskSubscriptionsParts;
  readonly #modernClient: ModernClient;
  /** By the id that the client uses. */
  readonly #followed = new KeptMap<FollowedTask>();
  /** Sends a state to the client. Undefined before the acknowledgement. */
  #onState: ((state: RawObject) => void) | undefined;

  constructor(parts: TaskSubscriptionsParts, modernClient: ModernClient) {
    this.#parts = parts;
    this.#modernClient = modernClient;
  }

  /** The ids, as the client uses them, of the tasks whose changes reach the stream. */
  get ids(): readonly string[] {
    return [...this.#followed.keys()];
  }

  /**
   * Adds a task, unless it belongs to another client or its upstream is down. Never rejects.
   *
   * @param onLost runs when the link has closed before the end of the task. The client then has to listen again.
   */
  async follow(id: string, onLost: () => void): Promise<void> {
    const { ids, links, tasks, questions } = this.#parts;
    const { caller, group } = this.#modernClient;
    try {
      const address = await ids.open(caller, id);
      const asked = { method: 'subscriptions/listen' };
      tasks.assertAllowed(this.#modernClient, asked, address);
      const asking = tasks.askAbout(this.#modernClient, asked, address, questions);
      if (asking !== undefined) {
        await asking;
        tasks.assertAllowed(this.#modernClient, asked, address, true);
      }
      const { upstream } = tasks.placeOf(this.#modernClient, address);
      const link = await links.openAt(tasks.creatorOf(group, address), upstream);
      const task = detach(address.task);
      const forgetLink = link.connection.onClosed(onLost);
      // A change may come together with the acknowledgement of the upstream.
      this.#followed.set(detach(id), { task, upstream, link, hasChanged: false, isReading: false, forgetLink });
      if (link.subscription === undefined || (await link.subscription.addTask(task))) return;
    } catch {
      // The acknowledgement shows the client that this task is not followed.
    }
    const refused = this.#followed.get(id);
    if (refused !== undefined) this.#forget(id, refused);
  }

  /** Begins to send the states of tasks that change, or have changed since they are followed: in the form of `tasks/get`. */
  start(onState: (state: RawObject) => void): void {
    this.#onState = onState;
    for (const [id, followed] of this.#followed) void this.#report(id, followed);
  }

  /** Handles a change of a task, which the stream may not follow. */
  onChange(link: Link, task: string): void {
    for (const [id, followed] of this.#followed) {
      if (followed.link !== link || followed.task !== task) continue;
      followed.hasChanged = true;
      void this.#report(id, followed);
    }
  }

  /** Sends the state of a task until it changes no more. Reads one at a time, so that none is older than the last. Never rejects. */
  async #report(id: string, followed: FollowedTask): Promise<void> {
    if (this.#onState === undefined || followed.isReading) return;
    followed.isReading = true;
    while (followed.hasChanged) {
      followed.hasChanged = false;
      // After a failure, the client can still poll the task.
      const state = await this.#read(id).catch(() => undefined);
      if (this.#followed.get(id) !== followed) return;
      if (state === undefined) continue;
      this.#onState(state);
      if (isTerminal(state.string('status'))) this.#remove(id, followed);
    }
    followed.isReading = false;
  }

  /** Returns the state of a task as `tasks/get` returns it; undefined if its upstream does not know it. */
  async #read(id: string): Promise<RawObject | undefined> {
    const params = RawObject.of({ taskId: id });
    const request = { kind: 'request', id: '0', method: 'tasks/get', params } as const;
    const exchange = new OpenExchange(this.#modernClient, this.#modernClient.group, request, NULL_SINK);
    const answer = await this.#parts.tasks.request(exchange, true);
    if (answer.kind !== 'result') return undefined;
    return withoutMeta(RawObject.parse(answer.result), [META.serverInfo]).with('resultType', undefined);
  }

  #remove(id: string, followed: FollowedTask): void {
    followed.link.subscription?.removeTask(followed.task);
    this.#forget(id, followed);
  }

  #forget(id: string, { upstream, link, forgetLink }: FollowedTask): void {
    this.#followed.delete(id);
    forgetLink();
    upstream.leave(link);
  }

  close(): void {
    for (const [id, followed] of this.#followed) this.#remove(id, followed);
  }
}
