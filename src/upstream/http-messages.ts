import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../protocol/jsonrpc.ts';

/** Reads one JSON text: a message, or the batch of them that 2025-03-26 allows. What is none is handed to `malformed`. */
export function readMessages(
  text: string,
  message: (message: Message) => void,
  malformed: (error: MessageError) => void,
): void {
  for (const item of parse(text)) {
    if (item instanceof MessageError) malformed(item);
    else message(item);
  }
}

function parse(text: string): (Message | MessageError)[] {
  try {
    return isBatch(text) ? parseBatch(text) : [parseMessage(text)];
  } catch (thrown) {
    if (thrown instanceof MessageError) return [thrown];
    throw thrown;
  }
}
