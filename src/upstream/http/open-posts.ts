import { resultWithin } from '../../deadline.ts';
import type { GatewayError } from '../../errors.ts';
import { ArrayMap, ArraySet } from '../../small-collections.ts';
import { INITIALIZED } from './handshake-queue.ts';
import type { UpstreamPost } from './http-post.ts';
import type { ReconnectingStream } from './http-stream.ts';
import type { OwnMessages, UndeliveredMessages } from './undelivered-messages.ts';

/** A request in flight: its POST, and the stream that has replaced the response, if any. */
interface OpenRequest {
  readonly post: UpstreamPost;
  stream: ReconnectingStream | undefined;
}

/** The POSTs of one session that have not ended, with the streams that continue their responses. */
export class OpenPosts {
  readonly #undelivered: UndeliveredMessages;
  readonly #own: OwnMessages = { count: 0, bytes: 0 };
  readonly #requests = new ArrayMap<number, OpenRequest>();
  /** POSTs whose answer is not awaited: notifications, responses, and answered requests. */
  readonly #others = new ArraySet<UpstreamPost>();
  #onOthersDone: (() => void) | undefined;

  constructor(undelivered: UndeliveredMessages) {
    this.#undelivered = undelivered;
  }

  /** Adds a POST before it is sent. Returns false if too many messages without an answer are not delivered, so that it must not be sent. */
  add(post: UpstreamPost): boolean {
    if (isCounted(post) && !this.#undelivered.take(this.#own, post.bytes)) return false;
    if (post.id === undefined) this.#others.add(post);
    else this.#requests.set(post.id, { post, stream: undefined });
    return true;
  }

  get(id: number | undefined): OpenRequest | undefined {
    return id === undefined ? undefined : this.#requests.get(id);
  }

  remove(post: UpstreamPost): void {
    if (post.id !== undefined && this.#requests.get(post.id)?.post === post) this.#requests.delete(post.id);
    if (this.#others.delete(post)) this.#release(post);
    if (this.#others.size === 0) this.#onOthersDone?.();
  }

  /** Ends a request. Returns `unsent` if no byte of it was sent. */
  cancel(id: number): 'unsent' | undefined {
    const { post, stream } = this.#requests.get(id) ?? {};
    this.#requests.delete(id);
    stream?.close();
    return post?.cancel();
  }

  /** Marks the request of this id as answered. Its POST stays open until the response ends. Returns false if it is not in flight. */
  markAnswered(id: number): boolean {
    const open = this.#requests.get(id);
    if (open === undefined) return false;
    this.#requests.delete(id);
    open.stream?.close();
    open.post.markAnswered();
    if (open.stream === undefined && !open.post.hasEnded) this.#others.add(open.post);
    return true;
  }

  /** Pauses the stream of the request of this id. Returns undefined if it is not in flight. */
  pause(id: number | undefined, forMs: number): boolean | undefined {
    const open = this.get(id);
    return open && (open.stream?.pause(forMs) ?? open.post.pause(forMs));
  }

  /** Pauses the streams of answered POSTs. Returns true if one of them was not paused already. */
  pauseAnswered(forMs: number): boolean {
    let isPaused = false;
    for (const post of this.#others) if (post.pause(forMs)) isPaused = true;
    return isPaused;
  }

  /** Fails the requests whose answers are expected on the server's stream. */
  failElsewhere(error: GatewayError): void {
    for (const { post } of this.#requests.values()) if (post.awaitsOtherStream) post.fail(error);
  }

  cancelRequests(): void {
    for (const { post, stream } of this.#requests.values()) {
      post.cancel();
      stream?.close();
    }
    this.#requests.clear();
  }

  cancelOthers(): void {
    for (const post of this.#others) {
      post.cancel();
      this.#release(post);
    }
    this.#others.clear();
  }

  #release(post: UpstreamPost): void {
    if (isCounted(post)) this.#undelivered.release(this.#own, post.bytes);
  }

  /** Waits for the delivery of messages without an answer, such as a cancellation, at most this long. */
  async awaitDelivery(limitMs: number): Promise<void> {
    for (const post of this.#others) {
      if (!post.isAnswered) continue;
      post.cancel();
      this.#others.delete(post);
    }
    if (this.#others.size === 0) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#onOthersDone = resolve;
    await resultWithin(promise, limitMs);
  }
}

/** Returns whether a POST counts as an undelivered message. Without `notifications/initialized` no other message follows, so it always goes out. */
function isCounted({ id, method }: UpstreamPost): boolean {
  return id === undefined && method !== INITIALIZED;
}
