import type { ModernCall } from '../gateway/front/front.ts';

/** The POSTs of other processes that this one answers, until their responses are sent. */
export class ForwardedWork {
  /** Subscription streams, which last until a side ends them. */
  readonly listens = new Set<Pick<ModernCall, 'close'>>();
  #openCount = 0;

  begin(): void {
    this.#openCount++;
  }

  readonly end = (): void => {
    this.#openCount--;
  };

  /** The number of responses that are not sent completely, without subscription streams. */
  get answeringCount(): number {
    return this.#openCount - this.listens.size;
  }
}
