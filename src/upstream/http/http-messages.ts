import type { Preparsed } from '../../json/json.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../../protocol/jsonrpc.ts';

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
  if (!isBatch(text)) {
    const only = parseOne(text, preparsed);
    if (only instanceof MessageError) onMalformed(only);
    else onMessage(only);
    return;
  }
  for (const item of parseAll(text)) {
    if (item instanceof MessageError) onMalformed(item);
    else onMessage(item);
  }
}

function parseOne(text: string, preparsed: Preparsed | undefined): Message | MessageError {
  try {
    return parseMessage(text, preparsed);
  } catch (thrown) {
    if (thrown instanceof MessageError) return thrown;
    throw thrown;
  }
}

function parseAll(text: string): readonly (Message | MessageError)[] {
  try {
    return parseBatch(text);
  } catch (thrown) {
    if (thrown instanceof MessageError) return [thrown];
    throw thrown;
  }
}
