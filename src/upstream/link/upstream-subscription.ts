import { setTimeout as sleep } from 'node:timers/promises';
import { resultOrLate } from '../../deadline.ts';
import type { Logger } from 'pino';
import { LIST_KINDS, type ListKind } from '../../catalog/offer.ts';
import { GatewayError, upstreamError } from '../../errors.ts';
import { RawObject, rawItems } from '../../json/json.ts';
import { unlessMalformed } from '../../json/malformed.ts';
import { detach, KeptMap, KeptSet } from '../../json/kept-text.ts';
import { LIMITS } from '../../limits.ts';
import type { Notification } from '../../protocol/jsonrpc.ts';
import { META, withoutMeta } from '../../protocol/meta.ts';
import { declaresTasks, withTasks } from '../../protocol/tasks.ts';
import { RPC } from '../../protocol/rpc-codes.ts';
import { retryUntilDone } from '../lifecycle/retry-until-done.ts';
import { backoffMs } from '../rpc/backoff.ts';
import type { Call } from '../rpc/call.ts';
import type { Connection } from '../rpc/connection.ts';
import { isRefusedAsUnknown } from './era-evidence.ts';
import type { ServerHello } from './initialize.ts';

export interface UpstreamSubscriptionParts {
  readonly connection: Connection;
  readonly hello: ServerHello;
  /** Returns the longest wait for the acknowledgement. A reload may change it. */
  readonly timeouts: () => { readonly callMs: number };
  readonly log: Logger;
  readonly onNotification: (notification: Notification, about: undefined) => void;
  /** Runs when there is a stream again. Changes of lists and resources may have been missed without one. */
  readonly onGap: () => void;
}

/** A stream of `subscriptions/listen`, with the resources and tasks that the upstream has acknowledged. */
interface ListenStream {
  readonly call: Call<unknown>;
  readonly uris: KeptSet;
  readonly tasks: KeptSet;
  readonly openedMs: number;
}

/** Longest wait of the first listing for the stream, as over legacy HTTP. */
const LISTEN_MS = 250;

/** A stream that lives longer has worked. After shorter ones, each further attempt waits longer. */
const STEADY_MS = 30_000;

const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';

/**
 * The subscription at a modern upstream: to changes of all its lists, and of the resources and tasks that have been added.
 *
 * The filter of a stream cannot be changed, so each change opens a new stream. The old one is cancelled when the new one is acknowledged. A
 * stream that breaks or fails is opened again. After that, the gap is reported.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
 */
export class UpstreamSubscription {
  readonly #parts: UpstreamSubscriptionParts;
  readonly #wantedUris = new KeptSet();
  readonly #taskCounts = new KeptMap<number>();
  #stream: ListenStream | undefined;
  #renewing: Promise<void> | undefined;
  /** True if resources or tasks have changed since the running renewal has opened its stream. */
  #isStale = false;
  /** Number of streams in a row that ended soon after they were acknowledged. */
  #shortStreams = 0;
  #isResuming = false;
  /** True if the upstream has acknowledged a stream, so that a status that refuses another one is transient. */
  #hasWorked = false;
  #isUnsupported = false;
  readonly #closing = new AbortController();
  /** Resolves when the first stream is open, or is not open soon: lists that are read before may change unnoticed. */
  readonly beginning: Promise<void> | undefined;

  constructor(parts: UpstreamSubscriptionParts) {
    this.#parts = parts;
    this.beginning = this.#wantsLists ? this.#begin() : undefined;
  }

  async #begin(): Promise<void> {
    let isLate = false;
    const opening = this.#renewInBackground().then(() => {
      if (isLate && this.#stream !== undefined) this.#reportGap();
    });
    await Promise.race([opening, sleep(LISTEN_MS, undefined, { ref: false })]);
    isLate = true;
  }

  get #wantsLists(): boolean {
    return LIST_KINDS.some((kind) => this.#canNotify(kind));
  }

  #canNotify(kind: ListKind): boolean {
    return this.#parts.hello.capabilities.object(kind)?.raw('listChanged') === 'true';
  }

  /** Subscribes to a resource. Resolves with whether the upstream has acknowledged it. */
  async add(uri: string): Promise<boolean> {
    if (this.#wantedUris.has(uri) && this.#stream?.uris.has(uri) === true) return true;
    this.#wantedUris.add(detach(uri));
    return await this.#renewFor(
      ({ uris }) => uris.has(uri),
      () => this.#wantedUris.delete(uri),
    );
  }

  remove(uri: string): void {
    if (this.#wantedUris.delete(uri)) void this.#renewInBackground();
  }

  get hasTasks(): boolean {
    return this.#taskCounts.size > 0;
  }

  /** Subscribes to a task for one more user. Resolves with whether the upstream has acknowledged it. */
  async addTask(task: string): Promise<boolean> {
    if (!declaresTasks(this.#parts.hello.capabilities)) return false;
    this.#taskCounts.set(detach(task), (this.#taskCounts.get(task) ?? 0) + 1);
    if (this.#stream?.tasks.has(task) === true) return true;
    return await this.#renewFor(
      ({ tasks }) => tasks.has(task),
      () => this.removeTask(task),
    );
  }

  /** Resolves with whether the next stream has what was added to the filter, and takes that back if not. @throws {GatewayError} */
  async #renewFor(isIn: (stream: ListenStream) => boolean, takeBack: () => void): Promise<boolean> {
    let isAcknowledged = false;
    try {
      await this.#renewal();
      isAcknowledged = this.#stream !== undefined && isIn(this.#stream);
      return isAcknowledged;
    } finally {
      if (!isAcknowledged) takeBack();
    }
  }

  /** Unsubscribes one user from a task. */
  removeTask(task: string): void {
    const count = (this.#taskCounts.get(task) ?? 0) - 1;
    if (count > 0) this.#taskCounts.set(detach(task), count);
    else if (this.#taskCounts.delete(task)) void this.#renewInBackground();
  }

  /** Ends the stream, and opens no other. */
  close(): void {
    this.#closing.abort();
    this.#stream?.call.cancel('no longer listening');
    this.#stream = undefined;
  }

  async #renewInBackground(): Promise<void> {
    await this.#renewal().catch((thrown: unknown) => {
      if (this.#closing.signal.aborted) return;
      this.#parts.log.warn({ err: thrown }, 'cannot subscribe to changes of the upstream');
      if (this.#stream === undefined) void this.#resume(1);
    });
  }

  /** Resolves when a stream with the current filter is acknowledged. @throws {GatewayError} */
  async #renewal(): Promise<void> {
    this.#isStale = true;
    this.#renewing ??= this.#renew();
    await this.#renewing;
  }

  async #renew(): Promise<void> {
    try {
      while (this.#isStale && !this.#closing.signal.aborted) {
        this.#isStale = false;
        const before = this.#stream;
        const isWanted = this.#wantsLists || this.#wantedUris.size > 0 || this.#taskCounts.size > 0;
        this.#stream = await (isWanted ? this.#open() : undefined);
        if (this.#stream !== undefined) this.#watch(this.#stream);
        before?.call.cancel('replaced');
        // It was closed before the acknowledgement.
        if (this.#closing.signal.aborted) this.close();
      }
    } finally {
      // In the turn of the last look at the filter: a later change needs another renewal.
      this.#renewing = undefined;
    }
  }

  /** Opens a stream with the current filter. @throws {GatewayError} if the upstream does not acknowledge it. */
  async #open(): Promise<ListenStream> {
    const { connection, timeouts } = this.#parts;
    const { upstream } = connection;
    const wanted = [...this.#wantedUris];
    let filter = RawObject.EMPTY;
    for (const kind of LIST_KINDS) if (this.#canNotify(kind)) filter = filter.with(`${kind}ListChanged`, 'true');
    if (wanted.length > 0) filter = filter.with('resourceSubscriptions', JSON.stringify(wanted));
    this.#isUnsupported = false;
    const tasks = [...this.#taskCounts.keys()];
    if (tasks.length > 0) filter = filter.with('taskIds', JSON.stringify(tasks));
    const { promise: acknowledged, resolve, reject } = Promise.withResolvers<Notification>();
    const call = connection.call('subscriptions/listen', RawObject.EMPTY.with('notifications', filter.toString()), {
      timeoutMs: Infinity,
      maxMs: Infinity,
      progress: false,
      isBackground: true,
      context: undefined,
      capabilities: tasks.length > 0 ? withTasks(RawObject.EMPTY) : RawObject.EMPTY,
      onNotification: (notification) => {
        if (notification.method === ACKNOWLEDGED) resolve(notification);
        else this.#forward(notification);
      },
    });
    const onEnd = (thrown?: unknown) => {
      if (!this.#hasWorked && thrown instanceof GatewayError && isRefusedAsUnknown(thrown)) this.#isUnsupported = true;
      reject(upstreamError('upstream-lost', upstream, 'ended subscriptions/listen'));
    };
    call.answer.then((answer) => {
      this.#isUnsupported = answer.kind === 'error' && answer.error.code === RPC.methodNotFound;
      onEnd();
    }, onEnd);
    const late = () => upstreamError('upstream-timeout', upstream, 'did not acknowledge subscriptions/listen in time');
    const acknowledgement = await resultOrLate(acknowledged, timeouts().callMs, late).catch((thrown: unknown) => {
      call.cancel('not acknowledged');
      throw thrown;
    });
    this.#hasWorked = true;
    const texts = (name: string, asked: readonly string[]) => acknowledgedTexts(acknowledgement, name, asked);
    const openedMs = performance.now();
    return { call, uris: texts('resourceSubscriptions', wanted), tasks: texts('taskIds', tasks), openedMs };
  }

  /**
   * Forwards a notification of any open stream. A new stream may report a change together with its acknowledgement, when the old one
   * is still open. A change that both report is forwarded twice.
   */
  #forward({ method, params }: Notification): void {
    const forwarded = params === undefined ? undefined : withoutMeta(params, [META.subscriptionId]);
    this.#parts.onNotification({ kind: 'notification', method, params: forwarded }, undefined);
  }

  /** Opens another stream after the end of this one, which may have come with the acknowledgement. Who waits for that hears of it first. */
  #watch(stream: ListenStream): void {
    const onEnd = () => setImmediate(() => this.#onStreamEnd(stream));
    stream.call.answer.then(onEnd, onEnd);
  }

  #onStreamEnd(stream: ListenStream): void {
    if (this.#stream !== stream) return;
    this.#stream = undefined;
    this.#shortStreams = performance.now() - stream.openedMs < STEADY_MS ? this.#shortStreams + 1 : 0;
    void this.#resume(Math.max(1, this.#shortStreams));
  }

  /** Opens a stream after pauses that grow, until that succeeds or is in vain. */
  async #resume(first: number): Promise<void> {
    if (this.#isResuming) return;
    this.#isResuming = true;
    const pauseMs = (retry: number) => backoffMs(first + retry - 1, Math.random());
    await retryUntilDone(() => this.#openAgain(), pauseMs, this.#closing.signal);
    this.#isResuming = false;
  }

  async #openAgain(): Promise<void> {
    if (this.#isUnsupported || this.#parts.connection.isClosed) return;
    await this.#renewal();
    this.#reportGap();
  }

  /** Reports the gap, and every task that may have changed without a stream. */
  #reportGap(): void {
    const { onNotification, onGap } = this.#parts;
    onGap();
    for (const taskId of this.#stream?.tasks ?? []) {
      const params = RawObject.of({ taskId });
      onNotification({ kind: 'notification', method: 'notifications/tasks', params }, undefined);
    }
  }
}

/** Returns which of the texts that were asked for the upstream has acknowledged. */
function acknowledgedTexts({ params }: Notification, name: string, asked: readonly string[]): KeptSet {
  const texts = new KeptSet();
  const raw = asked.length === 0 ? undefined : params?.object('notifications')?.raw(name);
  if (raw === undefined) return texts;
  const most = asked.length + LIMITS.listenEntries;
  const read = () => rawItems(raw, most).map((text) => String(JSON.parse(text)));
  const named = new Set(unlessMalformed(read, []));
  for (const text of asked) if (named.has(text)) texts.add(detach(text));
  return texts;
}
