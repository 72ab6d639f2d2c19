import type { Preparsed } from '../json/json.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../protocol/jsonrpc.ts';

/**
 * Reads one JSON text: a message, or the batch of them that 2025-03-26 allows. What is none is handed to `malformed`.
 *
 * @param preparsed the member of each message that the caller will read.
 * @param isAscii whether the text is known to be.
 */
export function readMessages(
  text: string,
  message: (message: Message) => void,
  malformed: (error: MessageError) => void,
  preparsed?: Preparsed,
  isAscii?: boolean,
): void {
  if (!isBatch(text)) {
    const only = oneOf(text, preparsed, isAscii);
    if (only instanceof MessageError) malformed(only);
    else message(only);
    return;
  }
  for (const item of eachOf(text)) {
    if (item instanceof MessageError) malformed(item);
    else message(item);
  }
}

function oneOf(text: string, preparsed: Preparsed | undefined, isAscii: boolean | undefined): Message | MessageError {
  try {
    return parseMessage(text, preparsed, isAscii);
  } catch (thrown) {
    if (thrown instanceof MessageError) return thrown;
    throw thrown;
  }
}

function eachOf(text: string): readonly (Message | MessageError)[] {
  try {
    return parseBatch(text);
  } catch (thrown) {
    if (thrown instanceof MessageError) return [thrown];
    throw thrown;
  }
}
