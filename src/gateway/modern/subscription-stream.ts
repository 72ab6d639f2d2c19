import { GatewayError } from '../../errors.ts';
import { JsonTextError, RawObject, rawItems } from '../../json/json.ts';
import { detach, KeptSet } from '../../json/kept-text.ts';
import { type Answer, type Id, notificationText } from '../../protocol/jsonrpc.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import { LIST_KINDS, type ListKind } from '../../catalog/offer.ts';
import type { Link } from '../../upstream/link/link.ts';
import type { ClientGroup, Subscriber } from '../clients/client-group.ts';
import type { Exchange } from '../exchange/exchange.ts';
import type { MessageSink } from '../front.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { isWithin } from '../connections/link-subscriptions.ts';
import type { ConnectionHolder } from '../exchange/connection-holder.ts';
import { resolveUri } from '../exchange/route.ts';
import type { TaskSubscriptions } from '../tasks/task-subscriptions.ts';

/** What a `subscriptions/listen` stream is for. */
interface Filter {
  readonly kinds: ReadonlySet<ListKind>;
  /** As the client knows them. */
  readonly uris: readonly string[];
  /** Likewise. */
  readonly taskIds: readonly string[];
}

/** Of each kind. */
const MAX_ENTRIES = 1_000;

/** @throws {GatewayError} `invalid-params` */
export function readFilter(params: RawObject | undefined): Filter {
  const filter = params?.object('notifications');
  if (filter === undefined) throw new GatewayError('invalid-params', { message: '"notifications" must be an object' });
  const kinds = LIST_KINDS.filter((kind) => filter.raw(`${kind}ListChanged`) === 'true');
  const uris = readTexts(filter, 'resourceSubscriptions');
  return { kinds: new Set(kinds), uris, taskIds: readTexts(filter, 'taskIds') };
}

/** @throws {GatewayError} `invalid-params` */
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
  /** Those the client is told of. */
  readonly #uris = new KeptSet();
  readonly #tasks: TaskSubscriptions;
  readonly #closed = Promise.withResolvers<void>();
  /** Before that nothing may be said. */
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

  /** Resolves with the answer when the stream is over. Never rejects. */
  async run(uris: readonly string[], taskIds: readonly string[]): Promise<Answer> {
    // From here on nobody else who ends takes its subscriptions along.
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

  #acknowledgedFilter(): string {
    let honoured = RawObject.EMPTY;
    for (const kind of this.#kinds) honoured = honoured.with(`${kind}ListChanged`, 'true');
    if (this.#uris.size > 0) honoured = honoured.with('resourceSubscriptions', JSON.stringify([...this.#uris]));
    const { ids } = this.#tasks;
    if (ids.length > 0) honoured = honoured.with('taskIds', JSON.stringify(ids));
    return honoured.toString();
  }

  /** What cannot be subscribed to is left out of the acknowledgement. */
  async #subscribe(uri: string): Promise<void> {
    const group = this.#group;
    const owner = group.subscriptions.get(uri) ?? resolveUri(group.catalog, uri);
    if (owner instanceof GatewayError) return;
    try {
      if (!group.subscriptions.has(uri)) {
        const to = { upstream: owner.upstream, uri: detach(owner.uri) };
        const subscribe = () => this.#links.subscribe(group, uri, to);
        // A link that is lost under way says nothing about the subscription: a new link is tried once.
        const answer = await subscribe().catch((thrown: unknown) =>
          isLost(thrown) ? subscribe() : Promise.reject(thrown),
        );
        if (answer.kind === 'error') return;
      }
      this.#uris.add(detach(uri));
    } catch {
      // Its upstream is down or has no subscriptions: not honoured, which the acknowledgement says.
    }
  }

  #unsubscribe(uri: string): void {
    const group = this.#group;
    const to = group.subscriptions.get(uri);
    for (const other of group.subscribers) if (other instanceof SubscriptionStream && other.#uris.has(uri)) return;
    // The upstream may be gone, and the subscription with it.
    if (to !== undefined) this.#links.unsubscribe(group, uri, to).catch(() => undefined);
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

  onTaskChange(link: Link<Exchange, ConnectionHolder>, task: string): void {
    if (!this.#isAcknowledged) return;
    this.#tasks.state(link, task).then(
      (state) => state && this.#send('notifications/tasks', state),
      // It was news, and the client may still ask.
      () => undefined,
    );
  }

  #send(method: string, params: RawObject): void {
    const text = notificationText(method, withMeta(params, [[META.subscriptionId, this.#id]]));
    // Whoever cannot be told anything more has gone.
    if (!this.#sink.send(text)) this.close();
  }

  close(): void {
    this.#closed.resolve();
  }
}

function isLost(thrown: unknown): boolean {
  return thrown instanceof GatewayError && (thrown.code === 'upstream-lost' || thrown.code === 'upstream-session-lost');
}
