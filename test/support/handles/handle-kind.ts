import assert from 'node:assert/strict';
import type { Got } from '../../downstream/client.ts';
import type { HttpUpstream } from '../http-upstream.ts';
import { answerOf } from '../modern-wire.ts';
import { type Actor, type Seen, seenOf } from './actors.ts';
import type { SpyUpstream } from './spy-upstream.ts';

/** A handle that its owner has got from the gateway, or has given to it. */
export interface Handle {
  readonly text: string;
  /** A text of the same form that names nothing. */
  readonly unknown: string;
  /** Uses the text as an actor. Resolves with all that the actor gets. */
  use(actor: Actor, text: string): Promise<readonly Seen[]>;
  /** Resolves if the owner can use the handle, and nothing has happened to what it names. */
  assertWorks(): Promise<void>;
}

export interface Upstreams {
  readonly leg: SpyUpstream;
  readonly mod: HttpUpstream;
}

export interface HandleKind {
  readonly name: string;
  /** The purpose of the sealed value, with the kind of a request state; undefined if the handle is not sealed. */
  readonly sealed?: string;
  /** True if a use makes a call of its own, as a client that never heard of the handle does. */
  readonly calls?: true;
  make(owner: Actor, upstreams: Upstreams): Promise<Handle>;
}

/** Cancels a request by its id: as a client of 2026-07-28, and in the session of the actor. */
export async function cancelModern(actor: Actor, id: string): Promise<readonly Seen[]> {
  const params = { requestId: Number(id) };
  return [
    seenOf(await actor.modernTell('notifications/cancelled', params)),
    seenOf(await actor.sendMessage({ method: 'notifications/cancelled', params })),
  ];
}

/** Changes the last part of a sealed text, which keeps its form. */
export function changed(text: string): string {
  const at = text.length - 8;
  return `${text.slice(0, at)}${text[at] === 'A' ? 'B' : 'A'}${text.slice(at + 1)}`;
}

export function resultIn(got: Got): Readonly<Record<string, unknown>> {
  const { result } = answerOf(got);
  assert.ok(result !== undefined, `${got.status} ${got.text}`);
  return result;
}

export function textAt(value: unknown, ...path: readonly string[]): string {
  let found = value;
  for (const name of path) {
    found =
      typeof found === 'object' && found !== null
        ? Object.entries(found).find(([key]) => key === name)?.[1]
        : undefined;
  }
  assert.ok(typeof found === 'string', JSON.stringify(value));
  return found;
}
