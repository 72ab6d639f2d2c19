import assert from 'node:assert/strict';
import { test } from 'node:test';
import { GatewayError } from '../../../src/errors.ts';
import { NO_CONTROL } from '../../../src/http1/wire.ts';
import { UpstreamPost, type UpstreamPostHandler } from '../../../src/upstream/http/http-post.ts';
import { OpenPosts } from '../../../src/upstream/http/open-posts.ts';
import { UndeliveredMessages } from '../../../src/upstream/http/undelivered-messages.ts';
import { UNBOUNDED } from '../../support/receiving.ts';

const ignore = (): void => undefined;
const IGNORING: UpstreamPostHandler = {
  options: { upstream: 'up', messageBytes: 1_000, receiving: UNBOUNDED },
  onAccepted: ignore,
  onText: ignore,
  onDone: ignore,
  onRefused: () => false,
  onInterrupted: ignore,
  onFailed: ignore,
};

function newPost(id?: number): UpstreamPost {
  const message = id === undefined ? { method: 'notifications/cancelled' } : { id, method: 'tools/call' };
  return new UpstreamPost(IGNORING, { ...message, text: '' }, id !== undefined);
}

/** Returns whether a POST refuses to be sent. */
function isCancelled(post: UpstreamPost): boolean {
  try {
    post.onRequestStart(NO_CONTROL);
    return false;
  } catch (thrown) {
    assert.ok(thrown instanceof GatewayError && thrown.code === 'cancelled');
    return true;
  }
}

test('an answered request is not in flight, and its POST is cancelled with the others', () => {
  const posts = new OpenPosts(new UndeliveredMessages());
  const post = newPost(1);
  posts.add(post);
  assert.equal(posts.get(1)?.post, post);
  assert.equal(posts.markAnswered(1), true);
  assert.equal(posts.get(1), undefined);
  assert.equal(posts.markAnswered(1), false);
  assert.equal(posts.pause(1, 10), undefined);
  posts.cancelRequests();
  assert.equal(isCancelled(post), false);
  posts.cancelOthers();
  assert.equal(isCancelled(post), true);
});

test('a cancelled request ends, and one of another id stays in flight', () => {
  const posts = new OpenPosts(new UndeliveredMessages());
  const [first, second] = [newPost(1), newPost(2)];
  posts.add(first);
  posts.add(second);
  posts.cancel(1);
  posts.cancel(3);
  assert.deepEqual([isCancelled(first), isCancelled(second)], [true, false]);
  assert.deepEqual([posts.get(1), posts.get(2)?.post], [undefined, second]);
});

test('the end of an earlier POST does not remove a request with the same id', () => {
  const posts = new OpenPosts(new UndeliveredMessages());
  const [earlier, later] = [newPost(1), newPost(1)];
  posts.add(later);
  posts.remove(earlier);
  assert.equal(posts.get(1)?.post, later);
});

test(
  'the wait for delivery cancels answered requests, and ends with the last message',
  { timeout: 120_000 },
  async () => {
    const posts = new OpenPosts(new UndeliveredMessages());
    const [answered, notification] = [newPost(1), newPost()];
    posts.add(answered);
    posts.add(notification);
    posts.markAnswered(1);
    const delivered = posts.awaitDelivery(60_000);
    assert.deepEqual([isCancelled(answered), isCancelled(notification)], [true, false]);
    posts.remove(notification);
    await delivered;
  },
);
