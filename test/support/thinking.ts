import { messagesOf, post, rpc } from '../downstream/client.ts';
import { type Members, membersOf } from './members.ts';

/** Calls a tool in a session. Returns the answer: a result or an error. */
export async function callTool(url: string, session: string, name: string, given: object): Promise<Members> {
  const got = await post(url, rpc(1, 'tools/call', { name, arguments: given }), session);
  return membersOf(messagesOf(got).find(({ id }) => id === 1));
}

/** A thought that does not end the thinking. */
export const THOUGHT = { thought: 'one', thoughtNumber: 1, totalThoughts: 9, nextThoughtNeeded: true };

/** Returns how many thoughts the server `thinking` of this session remembers, and what the answer says about lost state. */
export async function think(
  url: string,
  session: string,
): Promise<{ readonly thoughts: unknown; readonly lost: unknown }> {
  const answer = await callTool(url, session, 'thinking__sequentialthinking', THOUGHT);
  const result = membersOf(answer['result']);
  const thoughts = membersOf(result['structuredContent'])['thoughtHistoryLength'];
  return { thoughts, lost: membersOf(result['_meta'])['io.linkspan/stateLost'] };
}
