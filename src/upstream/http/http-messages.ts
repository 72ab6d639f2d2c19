import type { Preparsed } from '../../json/json.ts';
import { isBatch, type Message, MessageError, parseBatch, parseMessage } from '../../protocol/jsonrpc.ts';

/**
 * Reads one JSON text: a message, or the batch of them that 2025-03-26 allows. What is none is handed to `malformed`.
 *
 * @param open what of a message is going to be looked into.
 * @param isAscii whether the text is known to be.
 */
export function readMessages(
  text: string,
  message: (message: Message) => void,
  malformed: (error: MessageError) => void,
  open?: Preparsed,
  isAscii?: boolean,
): void {
  if (!isBatch(text)) {
    const only = oneOf(text, open, isAscii);
    if (only instanceof MessageError) malformed(only);
    else message(only);
    return;
  }
  for (const item of eachOf(text)) {
    if (item instanceof MessageError) malformed(item);
    else message(item);
  }
}

function oneOf(text: string, open: Preparsed | undefined, isAscii: boolean | undefined): Message | MessageError {
  try {
    return parseMessage(text, open, isAscii);
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
