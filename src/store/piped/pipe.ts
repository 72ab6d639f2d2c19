/** A connection between two processes of one gateway that carries whole messages: values that can be cloned. */
export interface Pipe {
  /** Sends a message. Does nothing if the pipe is closed. */
  send(message: object): void;
  onMessage(listener: (message: unknown) => void): void;
  /** Calls a function once, when the other side has gone. */
  onClosed(listener: () => void): void;
}

/** The part of a child process, or of this process as a child, that carries messages. */
interface MessagingProcess {
  readonly connected?: boolean;
  send?(message: object, ...more: readonly [undefined, undefined, (error: Error | null) => void]): boolean;
  on(event: 'message', listener: (message: unknown) => void): unknown;
  once(event: 'disconnect', listener: () => void): unknown;
}

/**
 * Returns the pipe to a process that was started with Node's IPC and `serialization: 'advanced'`, or to the one that has started this process. No other
 * process can reach it, because it has no name: it is a pair of sockets that the child inherits.
 */
export function processPipe(other: MessagingProcess): Pipe {
  return {
    send: (message) => {
      // An error here means that the other side has gone, which `disconnect` reports.
      if (other.connected === true) other.send?.(message, undefined, undefined, () => undefined);
    },
    onMessage: (listener) => void other.on('message', listener),
    onClosed: (listener) => void other.once('disconnect', listener),
  };
}
