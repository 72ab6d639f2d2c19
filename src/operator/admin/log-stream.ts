import { LIMITS, type LimitName } from '../../limits.ts';
import type { AdminPort } from './admin-port.ts';

export interface LogStreamOptions {
  /** Sends further lines after the latest ones. */
  readonly follow: boolean;
  /** Returns whether the reader still may read the log. Its stream ends before the first line after that. */
  readonly isAllowed: () => boolean;
  readonly onLimit: (limit: LimitName) => void;
}

/**
 * Returns the latest lines of the log as a stream; with `follow`, further lines until the reader goes. A reader that is too slow
 * loses lines, and gets a line that says how often.
 *
 * @throws {AdminError} `overloaded` if too many operators follow the log.
 */
export function logStream(
  port: Pick<AdminPort, 'recentLog' | 'followLog'>,
  { follow, isAllowed, onLimit }: LogStreamOptions,
): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  const recent = port.recentLog().map((text) => encoder.encode(text));
  let dropped = 0;
  let write: (text: string) => void = () => undefined;
  // Called before the stream is made, so that a refusal is an answer and not a broken stream.
  const stop = follow ? port.followLog((text) => write(text)) : undefined;
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: LIMITS.logFollowerBytes });
  return new ReadableStream<Uint8Array>(
    {
      start: (controller) => {
        for (const chunk of recent) controller.enqueue(chunk);
        if (stop === undefined) {
          controller.close();
          return;
        }
        write = (text) => {
          if (!isAllowed()) {
            write = () => undefined;
            stop();
            controller.close();
            return;
          }
          if ((controller.desiredSize ?? 0) <= 0) {
            if (dropped++ === 0) onLimit('logFollowerBytes');
            return;
          }
          if (dropped > 0) {
            const line = {
              level: 40,
              time: new Date().toISOString(),
              dropped,
              msg: 'lines dropped: the reader is too slow',
            };
            controller.enqueue(encoder.encode(`${JSON.stringify(line)}\n`));
            dropped = 0;
          }
          controller.enqueue(encoder.encode(text));
        };
      },
      cancel: () => stop?.(),
    },
    strategy,
  );
}
