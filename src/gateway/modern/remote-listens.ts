import { resultWithin } from '../../deadline.ts';
import { RawObject } from '../../json/json.ts';
import { changedKindOf, type ListKind } from '../../catalog/offer.ts';
import { MessageError, type Notification, parseMessage, type Request } from '../../protocol/jsonrpc.ts';
import type { ModernClient } from '../clients/modern-client.ts';
import type { ConnectionOwners } from '../connections/connection-owners.ts';
import type { Owners } from '../exchange/owners.ts';
import { resolveUri } from '../exchange/route.ts';
import type { MessageSink, ModernCall, ModernCaller, Owner, Ownership } from '../front/front.ts';
import { GatewayError } from '../../errors.ts';
import { getOrMake } from '../../map-entries.ts';
import { resultOrError } from '../../thrown.ts';
import type { TaskIds } from '../handles/task-ids.ts';
import { type Filter, filterText, readFilter } from './listen-filter.ts';

/** The longest wait for the acknowledgement of another process. */
export const ACKNOWLEDGE_MS = 5_000;
/** The most that is held for one stream before its acknowledgement. Beyond it, the client has to listen again. */
const HELD_CHARS = 1_048_576;

export interface SplitParts {
  readonly owners: Owners;
  readonly connectionOwners: ConnectionOwners;
  readonly taskIds: TaskIds;
}

/** The parts of a filter by the process that serves them. */
export interface SplitFilter {
  readonly here: Filter;
  readonly elsewhere: ReadonlyMap<Owner, Filter>;
}

/**
 * Divides the filter of a `subscriptions/listen` request among the processes that have the connections and tasks. List changes are reported by each of
 * them. Asks for all owners at the same time, since each answer of a store may take a while. It asks once for each upstream, and for each process
 * that has made tasks.
 */
export async function splitFilter(parts: SplitParts, client: ModernClient, filter: Filter): Promise<SplitFilter> {
  const { owners, connectionOwners, taskIds } = parts;
  const { group, caller } = client;
  const { restriction, view } = group.catalog;
  const [uris, tasks]: [string[], string[]] = [[], []];
  const elsewhere = new Map<Owner, { kinds: ReadonlySet<ListKind>; uris: string[]; taskIds: string[] }>();
  const partOf = (owner: Owner) => getOrMake(elsewhere, owner, () => ({ kinds: filter.kinds, uris: [], taskIds: [] }));
  const asked = new Map<string, Promise<Owner | undefined>>();
  const ownerAt = (key: string, find: () => Ownership | Promise<Ownership>) =>
    getOrMake(asked, key, () => ownerElsewhere(find));
  const ownersOfUris = filter.uris.map(async (uri) => {
    const resource = resolveUri(group.catalog, uri);
    // The question may open a connection, so it is asked about nothing that this process will deny.
    if (resource instanceof GatewayError || restriction?.allowsUpdates(resource.upstream, resource.uri) === false)
      return undefined;
    const { upstream } = resource;
    return await ownerAt(upstream, () => connectionOwners.ownerOf(group, upstream));
  });
  const ownersByProcess = new Map<string, Ownership | Promise<Ownership>>();
  const ownersOfTasks = filter.taskIds.map((id) =>
    ownerElsewhere(async () => {
      const { process } = await taskIds.open(caller, id);
      return await getOrMake(ownersByProcess, process, () => owners.ownerOf({ kind: 'task', process }));
    }),
  );
  const listed = filter.kinds.size > 0 ? view.upstreams : [];
  const ownersOfLists = listed.map(({ id }) => ownerAt(id, () => connectionOwners.ownerIfKnown(group, id)));
  const [ofUris, ofTasks, ofLists] = await Promise.all([
    Promise.all(ownersOfUris),
    Promise.all(ownersOfTasks),
    Promise.all(ownersOfLists),
  ]);
  for (const [at, uri] of filter.uris.entries()) {
    const owner = ofUris[at];
    (owner === undefined ? uris : partOf(owner).uris).push(uri);
  }
  for (const [at, id] of filter.taskIds.entries()) {
    const owner = ofTasks[at];
    (owner === undefined ? tasks : partOf(owner).taskIds).push(id);
  }
  for (const owner of ofLists) if (owner !== undefined) partOf(owner);
  return { here: { kinds: filter.kinds, uris, taskIds: tasks }, elsewhere };
}

/** Returns the other process that has a state; undefined if this one is to answer, also for a state that is not found. */
async function ownerElsewhere(find: () => Ownership | Promise<Ownership>): Promise<Owner | undefined> {
  try {
    const ownership = await find();
    return ownership.kind === 'elsewhere' ? ownership.owner : undefined;
  } catch (thrown) {
    if (thrown instanceof GatewayError) return undefined;
    throw thrown;
  }
}

/** The parts of one `subscriptions/listen` stream that other processes serve. */
export class RemoteListens {
  readonly #caller: ModernCaller;
  readonly #sink: MessageSink;
  /** The requests to the other processes, until they are sent. */
  readonly #requests: Map<Owner, Request>;
  readonly #calls: ModernCall[] = [];
  /** The URIs and task ids that the other processes have acknowledged. */
  readonly uris: string[] = [];
  readonly taskIds: string[] = [];
  #isAcknowledged = false;
  /** Messages before the acknowledgement of the whole stream, the last of each about the same. */
  readonly #held = new Map<string, string>();
  #heldChars = 0;
  #isClosed = false;

  /** @param sink accepts the messages of the other processes, which are those of the stream. */
  constructor(request: Request, caller: ModernCaller, sink: MessageSink, parts: ReadonlyMap<Owner, Filter>) {
    this.#caller = caller;
    this.#sink = sink;
    const { params = RawObject.EMPTY } = request;
    const requestOf = (filter: Filter) => ({ ...request, params: params.with('notifications', filterText(filter)) });
    this.#requests = new Map([...parts].map(([owner, filter]) => [owner, requestOf(filter)]));
  }

  /**
   * Opens the streams at the other processes. Resolves when they are acknowledged. Never rejects.
   *
   * @param onEnd runs when one of them ends. The client then has to listen again.
   */
  async open(onEnd: () => void): Promise<void> {
    const opening = [...this.#requests].map(([owner, request]) => this.#open(owner, request, onEnd));
    this.#requests.clear();
    await Promise.all(opening);
  }

  async #open(owner: Owner, request: Request, onEnd: () => void): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    // The acknowledgement of the whole stream names nothing of a part that is late.
    let isLate = false;
    const onGone = () => {
      resolve();
      if (!this.#isClosed) onEnd();
    };
    const sink = {
      receivedMs: performance.now(),
      send: (text: string) => {
        // It may exceed a bound of messages by the subscription id, which the other process has added. An error here would break the channel.
        const message = resultOrError(MessageError, () => parseMessage(text));
        if (message instanceof MessageError) return this.#isAcknowledged && !isLate ? this.#sink.send(text) : true;
        if (message.kind !== 'notification') return true;
        if (message.method === 'notifications/subscriptions/acknowledged') {
          isLate = this.#isAcknowledged;
          // It contains no more than this process has asked for.
          const { uris, taskIds } = readFilter(message.params, () => undefined);
          this.uris.push(...uris);
          this.taskIds.push(...taskIds);
          resolve();
          return true;
        }
        if (isLate && changedKindOf(message.method) === undefined) return true;
        if (this.#isAcknowledged) return this.#sink.send(text);
        if (!this.#hold(message, text)) onEnd();
        return true;
      },
      answer: onGone,
    };
    this.#calls.push(owner.handleModernRequest(request, this.#caller, sink, onGone));
    await resultWithin(promise, ACKNOWLEDGE_MS);
  }

  /** Keeps a message until the acknowledgement of the whole stream. Returns false if there are too many. */
  #hold({ method, params }: Notification, text: string): boolean {
    const key = JSON.stringify([method, params?.string('uri') ?? params?.string('taskId')]);
    const chars = this.#heldChars + text.length - (this.#held.get(key)?.length ?? 0);
    if (chars > HELD_CHARS) return false;
    this.#heldChars = chars;
    this.#held.set(key, text);
    return true;
  }

  /** Passes messages on: those that were held, and all from now on. */
  onAcknowledged(): void {
    this.#isAcknowledged = true;
    for (const text of this.#held.values()) this.#sink.send(text);
    this.#held.clear();
  }

  close(): void {
    this.#isClosed = true;
    for (const call of this.#calls) call.cancel('the stream has ended');
  }
}
