import { setDeadline } from '../deadline.ts';
import type { Duplex } from 'node:stream';
import { bareFrame, type Frame, FRAME, FrameReader } from './frames.ts';

/** Bytes that wait for the other side. Bodies wait beyond it; other frames are few and small. */
const BLOCKED_BYTES = 1_048_576;

export interface ChannelHandler {
  /** Receives the frames of a chunk. Those of unknown kinds are to be ignored. If it throws, the channel is closed. */
  onFrames(frames: readonly Frame[]): void;
  /** Called once, after the last frame. */
  onClosed(): void;
}

/**
 * A connection between two processes of a gateway, which carries many requests at once. Frames of one turn of the event loop are written
 * together, because a write costs more than all else here.
 */
export class Channel {
  readonly #socket: Duplex;
  readonly #handler: ChannelHandler;
  readonly #reader = new FrameReader();
  #unwritten: Buffer[] = [];
  #unwrittenBytes = 0;
  #isClosed = false;
  #heardMs: number = performance.now();
  /** Functions that run when the other side has read enough. */
  readonly #waiting = new Set<() => void>();
  /** The ping that is not answered yet. */
  #ping: { readonly answered: PromiseWithResolvers<boolean>; readonly timer: NodeJS.Timeout } | undefined;

  constructor(socket: Duplex, handler: ChannelHandler) {
    this.#socket = socket;
    this.#handler = handler;
    socket.on('data', (chunk: Buffer) => this.#read(chunk));
    socket.on('drain', () => this.#drain());
    // A `close` event follows.
    socket.on('error', () => undefined);
    socket.on('end', () => this.destroy());
    socket.on('close', () => this.#close());
  }

  /** The time of the last frame of the other side; monotonic ms. */
  get heardMs(): number {
    return this.#heardMs;
  }

  get isClosed(): boolean {
    return this.#isClosed;
  }

  /** Sends a frame. Does nothing if the channel is closed. */
  write(frame: Buffer): void {
    if (this.#isClosed) return;
    this.#unwrittenBytes += frame.length;
    if (this.#unwritten.push(frame) === 1) setImmediate(() => this.#flush());
  }

  /** True if the other side reads too slowly for bodies. */
  get isBlocked(): boolean {
    return this.#socket.writableLength + this.#unwrittenBytes > BLOCKED_BYTES;
  }

  /** Calls a function once, when the channel is not blocked any more. */
  whenDrained(listener: () => void): void {
    this.#waiting.add(listener);
  }

  /** Asks the other side to answer. Resolves with whether it has answered in time. */
  async isAnswering(timeoutMs: number): Promise<boolean> {
    if (this.#isClosed) return false;
    if (this.#ping === undefined) {
      const fail = () => {
        if (this.#ping === ping) this.#settlePing(false);
      };
      const timer = setDeadline(fail, timeoutMs).unref();
      const ping = { answered: Promise.withResolvers<boolean>(), timer };
      this.#ping = ping;
      this.write(bareFrame(FRAME.ping, 0));
    }
    return await this.#ping.answered.promise;
  }

  destroy(): void {
    this.#socket.destroy();
    this.#close();
  }

  #flush(): void {
    const frames = this.#unwritten;
    this.#unwritten = [];
    this.#unwrittenBytes = 0;
    const [first] = frames;
    if (this.#isClosed || first === undefined) return;
    this.#socket.write(frames.length === 1 ? first : Buffer.concat(frames));
    // The socket emits `drain` only if it was full itself.
    if (this.#waiting.size > 0 && !this.isBlocked) this.#drain();
  }

  #read(chunk: Buffer): void {
    if (this.#isClosed) return;
    try {
      const frames = this.#reader.read(chunk);
      if (frames.length === 0) return;
      this.#heardMs = performance.now();
      this.#settlePing(true);
      const isPing = ({ kind }: Frame) => kind === FRAME.ping;
      if (frames.some(isPing)) this.write(bareFrame(FRAME.pong, 0));
      this.#handler.onFrames(frames);
    } catch {
      // The other side is of no version that this one knows, or broken.
      this.destroy();
    }
  }

  #settlePing(isAnswered: boolean): void {
    const ping = this.#ping;
    if (ping === undefined) return;
    this.#ping = undefined;
    clearTimeout(ping.timer);
    ping.answered.resolve(isAnswered);
  }

  #drain(): void {
    const waiting = [...this.#waiting];
    this.#waiting.clear();
    for (const listener of waiting) listener();
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#unwritten = [];
    this.#waiting.clear();
    this.#settlePing(false);
    this.#handler.onClosed();
  }
}
