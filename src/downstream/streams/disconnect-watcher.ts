import type { Socket } from 'node:net';
import { ArraySet } from '../../small-collections.ts';

/** Something that is over when its client goes away. */
interface Disconnectable {
  onDisconnect(): void;
}

export type UnderWay = Pick<ArraySet<Disconnectable>, 'delete'>;

/** Tells what is under way on a connection when that closes: one listener for each connection, where one for each request is dear. */
export class DisconnectWatcher {
  readonly #underWay = new WeakMap<Socket, ArraySet<Disconnectable>>();

  /** @returns where it is under way, to be taken out of when it no longer is. */
  watch(socket: Socket, one: Disconnectable): UnderWay {
    const there = this.#underWay.get(socket) ?? this.#attend(socket);
    there.add(one);
    // No event will tell any more.
    if (socket.destroyed) one.onDisconnect();
    return there;
  }

  #attend(socket: Socket): ArraySet<Disconnectable> {
    const there = new ArraySet<Disconnectable>();
    this.#underWay.set(socket, there);
    socket.once('close', () => {
      for (const one of there) one.onDisconnect();
    });
    return there;
  }
}
