import type { Socket } from 'node:net';
import { ArraySet } from '../../small-collections.ts';

/** A request that ends when its client disconnects. */
interface Disconnectable {
  onDisconnect(): void;
}

export type UnderWay = Pick<ArraySet<Disconnectable>, 'delete'>;

/** Notifies the requests of a connection when it closes. One listener for each connection costs less than one for each request. */
export class DisconnectWatcher {
  readonly #underWay = new WeakMap<Socket, ArraySet<Disconnectable>>();

  /** Returns the set that the request must be deleted from when it is answered. */
  watch(socket: Socket, one: Disconnectable): UnderWay {
    const there = this.#underWay.get(socket) ?? this.#attend(socket);
    there.add(one);
    // Its `close` event came before.
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
