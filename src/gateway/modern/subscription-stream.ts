import { GatewayError } from '../../errors.ts';
import { JsonTextError, RawObject, rawItems } from '../../json/json.ts';
import { detach, KeptSet } from '../../json/kept-text.ts';
import { type Answer, type Id, notificationText } from '../../protocol/jsonrpc.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import { LIST_KINDS, type ListKind } from '../../catalog/offer.ts';
import type { ClientGroup, Subscriber } from '../clients/client-group.ts';
import type { MessageSink } from '../front.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { isWithin } from '../connections/link-subscriptions.ts';
import type { Link } from '../exchange/connection-holder.ts';
import { resolveUri } from '../exchange/route.ts';
import type { TaskSubscriptions } from '../tasks/task-subscriptions.ts';

/** The notifications that a `subscriptions/listen` request asks for. */
interface Filter {
  readonly kinds: ReadonlySet<ListKind>;
  /** Published URIs. */
  readonly uris: readonly string[];
  /** Ids that the client uses. */
  readonly taskIds: readonly string[];
}

/** The largest number of URIs, and of task ids. */
const MAX_ENTRIES = 1_000;

/** Reads the filter of a `subscriptions/listen` request. @throws {GatewayError} `invalid-params` */
export function readFilter(params: RawObject | undefined): Filter {
  const filter = params?.object('notifications');
  if (filter === undefined) throw new GatewayError('invalid-params', { message: '"notifications" must be an object' });
  const kinds = LIST_KINDS.filter((kind) => filter.raw(`${kind}ListChanged`) === 'true');
  const uris = readTexts(filter, 'resourceSubscriptions');
  return { kinds: new Set(kinds), uris, taskIds: readTexts(filter, 'taskIds') };
}

/** Returns the different strings of an array member. @throws {GatewayError} `invalid-params` */
function readTexts(filter: RawObject, name: string): readonly string[] {
  const texts = new Set<string>();
  try {
    for (const item of rawItems(filter.raw(name) ?? '[]')) {
      if (!item.startsWith('"')) throw new JsonTextError('not a string', 0);
      texts.add(String(JSON.parse(item)));
    }
  } catch (thrown) {
    if (!(thrown instanceof JsonTextError)) throw thrown;
    throw new GatewayError('invalid-params', { message: `"${name}" must be an array of strings` });
  }
  if (texts.size > MAX_ENTRIES) {
    throw new GatewayError('invalid-params', { message: `"${name}" may hold ${MAX_ENTRIES} entries` });
  }
  return [...texts];
}

/**
 * One `subscriptions/listen` stream of a client, from its acknowledgement to its end.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
 */
export class SubscriptionStream implements Subscriber {
  readonly #id: Id;
  readonly #sink: MessageSink;
  readonly #group: ClientGroup;
  readonly #links: HolderLinks;
  readonly #kinds: ReadonlySet<ListKind>;
  /** The published URIs whose updates the client gets. */
  readonly #uris = new KeptSet();
  readonly #tasks: TaskSubscriptions;
  readonly #closed = Promise.withResolvers<void>();
  /** Before the acknowledgement, nothing else may be sent. */
  #isAcknowledged = false;

  constructor(
    id: Id,
    sink: MessageSink,
    group: ClientGroup,
    links: HolderLinks,
    kinds: ReadonlySet<ListKind>,
    tasks: TaskSubscriptions,
  ) {
    this.#id = id;
    this.#sink = sink;
    this.#group = group;
    this.#links = links;
    this.#kinds = kinds;
    this.#tasks = tasks;
  }

  /** Subscribes, and resolves with the answer when the stream is closed. Never rejects. */
  async run(uris: readonly string[], taskIds: readonly string[]): Promise<Answer> {
    // Added before it subscribes, so that another stream that closes does not remove a subscription of this one.
    this.#group.subscribers.add(this);
    await Promise.all([...uris.map((uri) => this.#subscribe(uri)), ...taskIds.map((id) => this.#tasks.follow(id))]);
    this.#isAcknowledged = true;
    this.#send(
      'notifications/subscriptions/acknowledged',
      RawObject.EMPTY.with('notifications', this.#acknowledgedFilter()),
    );
    await this.#closed.promise;
    this.#group.subscribers.delete(this);
    for (const uri of this.#uris) this.#unsubscribe(uri);
    this.#tasks.close();
    const meta = RawObject.EMPTY.with(META.subscriptionId, this.#id);
    return { kind: 'result', result: RawObject.EMPTY.with('_meta', meta.toString()).toString() };
  }

  /** Returns the part of the filter that the gateway supports, as JSON. */
  #acknowledgedFilter(): string {
    let filter = RawObject.EMPTY;
    for (const kind of this.#kinds) filter = filter.with(`${kind}ListChanged`, 'true');
    if (this.#uris.size > 0) filter = filter.with('resourceSubscriptions', JSON.stringify([...this.#uris]));
    const { ids } = this.#tasks;
    if (ids.length > 0) filter = filter.with('taskIds', JSON.stringify(ids));
    return filter.toString();
  }

  /** Subscribes to a resource. The acknowledgement names it only if this succeeds. Never rejects. */
  async #subscribe(uri: string): Promise<void> {
    const group = this.#group;
    const resource = group.subscriptions.get(uri) ?? resolveUri(group.catalog, uri);
    if (resource instanceof GatewayError) return;
    try {
      if (!group.subscriptions.has(uri)) {
        const to = { upstream: resource.upstream, uri: detach(resource.uri) };
        const subscribe = () => this.#links.subscribe(group, uri, to);
        // The loss of a link is no refusal: a new link is tried once.
        const answer = await subscribe().catch((thrown: unknown) =>
          isLost(thrown) ? subscribe() : Promise.reject(thrown),
        );
        if (answer.kind === 'error') return;
      }
      this.#uris.add(detach(uri));
    } catch {
      // Its upstream is down or has no subscriptions. The acknowledgement shows it.
    }
  }

  #unsubscribe(uri: string): void {
    const group = this.#group;
    const to = group.subscriptions.get(uri);
    for (const other of group.subscribers) if (other.isSubscribedTo(uri)) return;
    // If the upstream is down, the subscription is lost anyway.
    if (to !== undefined) this.#links.unsubscribe(group, uri, to).catch(() => undefined);
  }

  isSubscribedTo(uri: string): boolean {
    return this.#uris.has(uri);
  }

  announce(method: string, params: RawObject | undefined): void {
    if (!this.#isAcknowledged) return;
    if (method === 'notifications/resources/updated') {
      const updated = params?.string('uri');
      if (updated === undefined || ![...this.#uris].some((uri) => isWithin(updated, uri))) return;
    } else if (!LIST_KINDS.some((kind) => this.#kinds.has(kind) && method === `notifications/${kind}/list_changed`)) {
      return;
    }
    this.#send(method, params ?? RawObject.EMPTY);
  }

  onTaskChange(link: Link, task: string): void {
    if (!this.#isAcknowledged) return;
    this.#tasks.state(link, task).then(
      (state) => state && this.#send('notifications/tasks', state),
      // The client can still poll the task.
      () => undefined,
    );
  }

  #send(method: string, params: RawObject): void {
    const text = notificationText(method, withMeta(params, [[META.subscriptionId, this.#id]]));
    // The client has disconnected.
    if (!this.#sink.send(text)) this.close();
  }

  close(): void {
    this.#closed.resolve();
  }
}

/** Returns whether the link was lost before the upstream answered. */
function isLost(thrown: unknown): boolean {
  return thrown instanceof GatewayError && (thrown.code === 'upstream-lost' || thrown.code === 'upstream-session-lost');
}
