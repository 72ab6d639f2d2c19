import type { Preparsed } from '../../json/json.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../../protocol/jsonrpc.ts';
import { resultOrError } from '../../thrown.ts';

/**
 * Parses one JSON text: a message, or a batch, which 2025-03-26 allows. Calls `onMalformed` for text that is no message.
 *
 * @param preparsed the member of messages that the caller is going to read.
 */
export function readMessages(
  text: string,
  onMessage: (message: Message) => void,
  onMalformed: (error: MessageError) => void,
  preparsed?: Preparsed,
): void {
  const parse = () => (isBatch(text) ? parseBatch(text) : [parseMessage(text, preparsed)]);
  const read = resultOrError(MessageError, parse);
  for (const item of read instanceof MessageError ? [read] : read) {
    if (item instanceof MessageError) onMalformed(item);
    else onMessage(item);
  }
}
