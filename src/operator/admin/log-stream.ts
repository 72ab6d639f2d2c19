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
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: LIMITS.logFollowerBytes });
  let stop = (): void => undefined;
  let dropped = 0;
  return new ReadableStream<Uint8Array>(
    {
      // Runs at once, so that a refusal to follow is an answer and not a broken stream.
      start: (controller) => {
        for (const text of port.recentLog()) controller.enqueue(encoder.encode(text));
        if (!follow) {
          controller.close();
          return;
        }
        stop = port.followLog((text) => {
          if (!isAllowed()) {
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
        });
      },
      cancel: () => stop(),
    },
    strategy,
  );
}
