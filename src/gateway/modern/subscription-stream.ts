import type { SharedParts } from '../records/shared-parts.ts';
import { GatewayError } from '../../errors.ts';
import { RawObject } from '../../json/json.ts';
import { detach, KeptMap, type KeptText } from '../../json/kept-text.ts';
import { type Answer, type Id, notificationText } from '../../protocol/jsonrpc.ts';
import { LIMITS } from '../../limits.ts';
import { META, withMeta } from '../../protocol/meta.ts';
import { changedKindOf, type ListKind } from '../../catalog/offer.ts';
import { uriToClient } from '../../catalog/uri.ts';
import { upstreamIn, type View } from '../../catalog/view.ts';
import type { ClientGroup, Subscriber } from '../clients/client-group.ts';
import type { MessageSink } from '../front/front.ts';
import type { HolderLinks } from '../connections/holder-links.ts';
import { isWithin } from '../connections/link-subscriptions.ts';
import type { Link } from '../exchange/connection-holder.ts';
import { filterText } from './listen-filter.ts';
import type { Caller } from '../front/caller.ts';
import type { ByteBounds } from '../../upstream/quota/byte-bounds.ts';
import type { ExternalDecisions } from '../exchange/external-decisions.ts';
import { resolveUri } from '../exchange/route.ts';
import type { TaskSubscriptions } from '../tasks/task-subscriptions.ts';
import type { PartQuestions } from './part-questions.ts';
import type { RemoteListens } from './remote-listens.ts';

export interface SubscriptionStreamParts extends Pick<SharedParts, 'gate' | 'onLimit'> {
  readonly id: Id;
  readonly sink: MessageSink;
  readonly caller: Caller;
  readonly group: ClientGroup;
  readonly links: HolderLinks;
  readonly external: Pick<ExternalDecisions, 'askAboutResource'>;
  readonly kinds: ReadonlySet<ListKind>;
  readonly tasks: TaskSubscriptions;
  readonly remote: RemoteListens | undefined;
  /** Those to a decision point, if the config has one. */
  readonly questions: PartQuestions;
  /** Bounds the resources that all streams are subscribed to. */
  readonly streamBytes: ByteBounds;
}

/** Memory of a subscription besides its URI, and of each character: streams, groups and links keep the URI. */
const ENTRY_BYTES = 256;
const CHAR_BYTES = 8;

const LISTEN = { method: 'subscriptions/listen' };
const UPDATED = 'notifications/resources/updated';

/**
 * One `subscriptions/listen` stream of a client, from its acknowledgement to its end.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
 */
export class SubscriptionStream implements Subscriber {
  readonly caller: Caller;
  readonly #parts: SubscriptionStreamParts;
  /** The rights of the caller when the stream was opened. */
  readonly #rights: string;
  /** The published URIs of the resources, by the URIs of the client, which may leave out the prefix. */
  readonly #uris = new KeptMap<KeptText>();
  /** The view by which they are published; undefined before the first update. */
  #view: View | undefined;
  /** Give back the bytes of the subscriptions. */
  readonly #releases: (() => void)[] = [];
  readonly #closed = Promise.withResolvers<void>();
  /** Before the acknowledgement, nothing else may be sent. */
  #isAcknowledged = false;
  #isClosed = false;
  /** The kinds of lists, and the resources, that have changed before the acknowledgement. */
  readonly #changedLists = new Set<string>();
  readonly #updated = new Set<KeptText>();

  constructor(parts: SubscriptionStreamParts) {
    this.caller = parts.caller;
    this.#parts = parts;
    this.#rights = this.#rightsOf(this.caller);
  }

  /** Subscribes, and resolves when the stream is acknowledged. Never rejects. */
  async open(uris: readonly string[], taskIds: readonly string[]): Promise<void> {
    const { group, tasks, remote } = this.#parts;
    // A group that was released meanwhile gets nothing for its streams any more. A reload may have given it other rights than this client.
    const isUsable = !group.closed.aborted && this.#rightsOf(group.caller) === this.#rights;
    // The client may have gone, too.
    if (this.#isClosed || !isUsable) this.close();
    else await this.#subscribeToAll(uris, taskIds);
    this.#isAcknowledged = true;
    this.#send(
      'notifications/subscriptions/acknowledged',
      RawObject.EMPTY.with('notifications', this.#acknowledgedFilter()),
    );
    remote?.onAcknowledged();
    for (const method of this.#changedLists) this.announce(method, undefined);
    for (const uri of this.#updated) this.announce(UPDATED, RawObject.of({ uri }));
    this.#changedLists.clear();
    this.#updated.clear();
    tasks.start((state) => this.#send('notifications/tasks', state));
  }

  /** Resolves with the answer when the open stream is closed. Never rejects. */
  async end(): Promise<Answer> {
    const { id, group, tasks, remote } = this.#parts;
    await this.#closed.promise;
    group.subscribers.delete(this);
    for (const uri of this.#uris.keys()) this.#unsubscribe(uri);
    for (const release of this.#releases) release();
    tasks.close();
    remote?.close();
    const meta = RawObject.EMPTY.with(META.subscriptionId, id);
    return { kind: 'result', result: RawObject.EMPTY.with('_meta', meta.toString()).toString() };
  }

  async #subscribeToAll(uris: readonly string[], taskIds: readonly string[]): Promise<void> {
    const { group, tasks, remote } = this.#parts;
    // Added before it subscribes, so that another stream that closes does not remove a subscription of this one.
    group.subscribers.add(this);
    await Promise.all([
      ...uris.map((uri) => this.#subscribe(uri)),
      ...taskIds.map((id) => tasks.follow(id, () => this.close())),
      remote?.open(() => this.close()),
    ]);
  }

  /** Returns the part of the filter that the gateway supports, as JSON. */
  #acknowledgedFilter(): string {
    const { kinds, tasks, remote } = this.#parts;
    const uris = [...this.#uris.keys(), ...(remote?.uris ?? [])];
    return filterText({ kinds, uris, taskIds: [...tasks.ids, ...(remote?.taskIds ?? [])] });
  }

  /** Subscribes to a resource. The acknowledgement names it only if this succeeds. Never rejects. */
  async #subscribe(uri: string): Promise<void> {
    const { caller, group, gate, external, links, questions, streamBytes, onLimit } = this.#parts;
    // Before it is judged: all URIs of a request are judged in one turn of the event loop.
    if (Buffer.byteLength(uri) > LIMITS.subscriptionUriBytes) {
      onLimit('subscriptionUriBytes');
      return;
    }
    const { catalog } = group;
    const found = group.subscriptions.get(uri) ?? resolveUri(catalog, uri);
    const resource = gate.judgeSubscription({ caller, catalog }, LISTEN, uri, found);
    if (resource instanceof GatewayError) return;
    const release = streamBytes.take(group.principal, ENTRY_BYTES + CHAR_BYTES * uri.length);
    if (release === undefined) return;
    this.#releases.push(release);
    const judgeAgain = () => {
      const refusal = gate.refusalOfSubscription(caller, LISTEN, uri, resource, true);
      if (refusal !== undefined) throw refusal;
      if (group.closed.aborted) throw new GatewayError('cancelled', { executed: 'no' });
    };
    try {
      const asking = external.askAboutResource(caller, LISTEN, uri, resource, questions);
      if (asking !== undefined) {
        await asking;
        judgeAgain();
      }
      if (!group.subscriptions.has(uri)) {
        const to = { upstream: resource.upstream, uri: detach(resource.uri) };
        const subscribe = () => links.subscribe(group, uri, to, judgeAgain);
        // The loss of a link is no refusal: a new link is tried once.
        const answer = await subscribe().catch((thrown: unknown) =>
          isLost(thrown) ? subscribe() : Promise.reject(thrown),
        );
        // A reload may have removed the upstream before it answered.
        if (answer?.kind === 'error' || !group.subscriptions.has(uri)) return;
      }
      this.#publish(uri);
    } catch {
      // Its upstream is down or has no subscriptions, or the external decision is not for it. The acknowledgement shows it.
    }
  }

  /** Sets the published URI of a resource by the view of now. */
  #publish(uri: string): void {
    const { catalog, subscriptions } = this.#parts.group;
    const to = subscriptions.get(uri);
    const viewed = to && upstreamIn(catalog.view, to.upstream);
    const published = viewed === undefined || to === undefined ? uri : uriToClient(viewed, to.uri);
    this.#uris.set(detach(uri), detach(published));
  }

  #unsubscribe(uri: string): void {
    const { group, links } = this.#parts;
    const to = group.subscriptions.get(uri);
    for (const other of group.subscribers) if (other.isSubscribedTo(uri)) return;
    // If the upstream is down, the subscription is lost anyway.
    if (to !== undefined) links.unsubscribe(group, uri, to).catch(() => undefined);
  }

  #rightsOf({ principal, view }: Caller): string {
    return this.#parts.gate.shownRightsOf(principal, view)?.content ?? '';
  }

  get hasOtherRights(): boolean {
    return this.#rightsOf(this.caller) !== this.#rights;
  }

  isSubscribedTo(uri: string): boolean {
    return this.#uris.has(uri);
  }

  announce(method: string, params: RawObject | undefined): void {
    if (method === UPDATED) {
      if (this.#isAcknowledged) this.#announceUpdate(method, params);
      else this.#keepUpdate(params?.string('uri'));
      return;
    }
    const kind = changedKindOf(method);
    if (kind === undefined || !this.#parts.kinds.has(kind)) return;
    if (this.#isAcknowledged) this.#send(method, params ?? RawObject.EMPTY);
    else this.#changedLists.add(method);
  }

  /**
   * Keeps the URI of an update until the acknowledgement. Whether the client has subscribed to it is known only then. The client listens
   * again if there are too many.
   */
  #keepUpdate(uri: string | undefined): void {
    if (uri === undefined || Buffer.byteLength(uri) > LIMITS.subscriptionUriBytes) return;
    if (this.#updated.size < LIMITS.listenEntries) this.#updated.add(detach(uri));
    else this.close();
  }

  /** Names a resource as the client has named it, once or twice, as its update may do already. A part of one has its published URI. */
  #announceUpdate(method: string, params: RawObject | undefined): void {
    const updated = params?.string('uri');
    if (params === undefined || updated === undefined) return;
    const { view } = this.#parts.group.catalog;
    // A reload may publish other URIs.
    if (this.#view !== view) for (const uri of this.#uris.keys()) this.#publish(uri);
    this.#view = view;
    const isNamed = ([own, published]: [string, string]) => own === updated || isWithin(updated, published);
    const subscribed = [...this.#uris].filter(isNamed);
    const names = new Set(subscribed.map(([own, published]) => (updated === published ? own : updated)));
    for (const name of names) this.#send(method, name === updated ? params : params.with('uri', JSON.stringify(name)));
  }

  onTaskChange(link: Link, task: string): void {
    this.#parts.tasks.onChange(link, task);
  }

  #send(method: string, params: RawObject): void {
    const text = notificationText(method, withMeta(params, [[META.subscriptionId, this.#parts.id]]));
    // The client has disconnected.
    if (!this.#parts.sink.send(text)) this.close();
  }

  close(): void {
    this.#isClosed = true;
    this.#parts.questions.close();
    this.#closed.resolve();
  }
}

/** Returns whether the link was lost before the upstream answered. */
function isLost(thrown: unknown): boolean {
  return thrown instanceof GatewayError && (thrown.code === 'upstream-lost' || thrown.code === 'upstream-session-lost');
}
