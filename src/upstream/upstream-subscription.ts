import { setTimeout as sleep } from 'node:timers/promises';
import type { Logger } from 'pino';
import { GatewayError } from '../errors.ts';
import { JsonTextError, RawObject, rawItems } from '../json/json.ts';
import type { Notification } from '../protocol/jsonrpc.ts';
import { META, withoutMeta } from '../protocol/meta.ts';
import { declaresTasks, withTasks } from '../protocol/tasks.ts';
import { backoffMs } from './rpc/backoff.ts';
import type { Call } from './rpc/call.ts';
import type { Connection } from './rpc/connection.ts';
import type { ServerHello } from './initialize.ts';

export interface UpstreamSubscriptionParts<Owner> {
  readonly upstream: string;
  readonly connection: Connection<Owner>;
  readonly hello: ServerHello;
  /** How long the acknowledgement may take. */
  readonly callMs: number;
  readonly log: Logger;
  readonly onNotification: (notification: Notification, about: undefined) => void;
}

/** A stream of `subscriptions/listen`, and what the upstream agreed to tell on it. */
interface ListenStream {
  readonly call: Call<unknown>;
  readonly uris: ReadonlySet<string>;
  readonly tasks: ReadonlySet<string>;
}

const ACKNOWLEDGED = 'notifications/subscriptions/acknowledged';

/** `resources` → `resourcesListChanged`, `notifications/resources/list_changed` */
const KINDS = ['tools', 'prompts', 'resources'] as const;

/**
 * What a modern upstream tells of its own accord: changes of its lists, always, and of resources and tasks somebody wants to
 * hear of.
 * What is listened to cannot be changed under way, so a change opens a new stream, and ends the old one once the new one
 * stands. A stream that breaks is opened again, and what may have been missed meanwhile is taken to have happened.
 *
 * @see https://modelcontextprotocol.io/specification/2026-07-28/basic/patterns/subscriptions
 */
export class UpstreamSubscription {
  readonly #parts: UpstreamSubscriptionParts<unknown>;
  readonly #wanted = new Set<string>();
  /** Tasks by how many want to hear of them. */
  readonly #tasks = new Map<string, number>();
  #stream: ListenStream | undefined;
  #renewing: Promise<void> | undefined;
  /** Set while a renewal runs that does not know of the latest wish. */
  #isStale = false;
  readonly #closing = new AbortController();

  constructor(parts: UpstreamSubscriptionParts<unknown>) {
    this.#parts = parts;
    if (this.#wantsLists) this.#renewInBackground();
  }

  get #wantsLists(): boolean {
    return KINDS.some((kind) => this.#canNotify(kind));
  }

  #canNotify(kind: (typeof KINDS)[number]): boolean {
    return this.#parts.hello.capabilities.object(kind)?.raw('listChanged') === 'true';
  }

  /** Listens to a resource too. False when the upstream does not agree. */
  async add(uri: string): Promise<boolean> {
    if (this.#wanted.has(uri) && this.#stream?.uris.has(uri) === true) return true;
    this.#wanted.add(uri);
    await this.#renewal();
    const isHeard = this.#stream?.uris.has(uri) === true;
    if (!isHeard) this.#wanted.delete(uri);
    return isHeard;
  }

  remove(uri: string): void {
    if (this.#wanted.delete(uri)) this.#renewInBackground();
  }

  /** Listens to a task too. False when the upstream does not agree. */
  async addTask(task: string): Promise<boolean> {
    if (!declaresTasks(this.#parts.hello.capabilities)) return false;
    this.#tasks.set(task, (this.#tasks.get(task) ?? 0) + 1);
    let isHeard = false;
    try {
      if (this.#stream?.tasks.has(task) !== true) await this.#renewal();
      isHeard = this.#stream?.tasks.has(task) === true;
      return isHeard;
    } finally {
      if (!isHeard) this.removeTask(task);
    }
  }

  removeTask(task: string): void {
    const wanting = (this.#tasks.get(task) ?? 0) - 1;
    if (wanting > 0) this.#tasks.set(task, wanting);
    else if (this.#tasks.delete(task)) this.#renewInBackground();
  }

  close(): void {
    this.#closing.abort();
    this.#stream?.call.cancel('no longer listening');
    this.#stream = undefined;
  }

  #renewInBackground(): void {
    this.#renewal().catch((thrown: unknown) => {
      const { log, upstream } = this.#parts;
      if (!this.#closing.signal.aborted) log.warn({ err: thrown, upstream }, 'not listening to the upstream');
    });
  }

  /** Resolves when a stream stands that was opened for what is wanted now. @throws {GatewayError} */
  async #renewal(): Promise<void> {
    this.#isStale = true;
    this.#renewing ??= this.#renew().finally(() => {
      this.#renewing = undefined;
    });
    await this.#renewing;
  }

  async #renew(): Promise<void> {
    while (this.#isStale && !this.#closing.signal.aborted) {
      this.#isStale = false;
      const before = this.#stream;
      const isWanted = this.#wantsLists || this.#wanted.size > 0 || this.#tasks.size > 0;
      this.#stream = isWanted ? await this.#open() : undefined;
      before?.call.cancel('replaced');
    }
  }

  /** @throws {GatewayError} when the upstream does not acknowledge. */
  async #open(): Promise<ListenStream> {
    const { connection, callMs, upstream } = this.#parts;
    const wanted = [...this.#wanted];
    let filter = RawObject.EMPTY;
    for (const kind of KINDS) if (this.#canNotify(kind)) filter = filter.with(`${kind}ListChanged`, 'true');
    if (wanted.length > 0) filter = filter.with('resourceSubscriptions', JSON.stringify(wanted));
    const tasks = [...this.#tasks.keys()];
    if (tasks.length > 0) filter = filter.with('taskIds', JSON.stringify(tasks));
    const { promise: acknowledged, resolve, reject } = Promise.withResolvers<Notification>();
    const call = connection.call('subscriptions/listen', RawObject.EMPTY.with('notifications', filter.toString()), {
      timeoutMs: Infinity,
      maxMs: Infinity,
      progress: false,
      background: true,
      context: undefined,
      capabilities: tasks.length > 0 ? withTasks(RawObject.EMPTY) : RawObject.EMPTY,
      onNotification: (notification) => {
        if (notification.method === ACKNOWLEDGED) resolve(notification);
        else this.#onNotification(call, notification);
      },
    });
    call.answer.then(
      () => this.#onEnd(call, reject),
      () => this.#onEnd(call, reject),
    );
    const timer = setTimeout(() => {
      const message = `upstream "${upstream}" did not acknowledge subscriptions/listen in time`;
      reject(new GatewayError('upstream-timeout', { upstream, message }));
      call.cancel('not acknowledged');
    }, callMs);
    try {
      const honoured = await acknowledged;
      const texts = (name: string) => acknowledgedTexts(honoured, name);
      return { call, uris: texts('resourceSubscriptions'), tasks: texts('taskIds') };
    } finally {
      clearTimeout(timer);
    }
  }

  /** Of two streams the older one is believed until the newer one stands, so that nothing is heard twice. */
  #onNotification(call: Call<unknown>, { method, params }: Notification): void {
    if (this.#stream !== undefined && this.#stream.call !== call) return;
    const told = params === undefined ? undefined : withoutMeta(params, [META.subscriptionId]);
    this.#parts.onNotification({ kind: 'notification', method, params: told }, undefined);
  }

  #onEnd(call: Call<unknown>, reject: (error: GatewayError) => void): void {
    const { upstream } = this.#parts;
    reject(
      new GatewayError('upstream-lost', { upstream, message: `upstream "${upstream}" ended subscriptions/listen` }),
    );
    if (this.#stream?.call !== call) return;
    this.#stream = undefined;
    void this.#resume();
  }

  async #resume(): Promise<void> {
    const { signal } = this.#closing;
    for (let attempt = 1; !signal.aborted && !this.#parts.connection.isClosed; attempt++) {
      await sleep(backoffMs(attempt, Math.random()), undefined, { signal, ref: false }).catch(() => undefined);
      if (signal.aborted) return;
      const isBack = await this.#renewal().then(
        () => true,
        () => false,
      );
      if (!isBack) continue;
      this.#announceAll();
      return;
    }
  }

  /** Whatever may have happened while nobody listened. */
  #announceAll(): void {
    const { onNotification } = this.#parts;
    for (const kind of KINDS) {
      const method = `notifications/${kind}/list_changed`;
      if (this.#canNotify(kind)) onNotification({ kind: 'notification', method, params: undefined }, undefined);
    }
    for (const uri of this.#stream?.uris ?? []) {
      const params = RawObject.of({ uri });
      onNotification({ kind: 'notification', method: 'notifications/resources/updated', params }, undefined);
    }
  }
}

function acknowledgedTexts({ params }: Notification, name: string): ReadonlySet<string> {
  try {
    const raw = params?.object('notifications')?.raw(name) ?? '[]';
    return new Set(rawItems(raw).map((text) => String(JSON.parse(text))));
  } catch (thrown) {
    if (thrown instanceof JsonTextError || thrown instanceof SyntaxError) return new Set();
    throw thrown;
  }
}
